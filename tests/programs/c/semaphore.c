/*
 * semaphore.c wait|try|timed|clock|whole|pool|busy - semaphores.
 *
 * The first four: a semaphore of value 1 is used as a lock. `transfer` passes it twice, the second time by the
 * function that the word names, and the audit passes it in between: the transfer is not atomic.
 * whole: the transfer passes it once; the audit has to wait for its post.
 * pool: as wait, with a value of 2. The audit takes what nobody had taken before, and the transfer takes what it has
 * given back itself: no post lets the other one through.
 * busy: the transfer has taken the value of 1; the audit's tries fail, and it takes a mutex that the transfer takes
 * afterwards.
 * Nothing is to be found in the last three.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "soon.h"
#include "threads.h"

static sem_t semaphore;
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000;
static turn_t go_audit;
static turn_t go_transfer;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static void must(int status)
{
    if (status != 0) {
        perror("semaphore");
        exit(1);
    }
}

static void transfer(void)
{
    AVTRACE_REGION("transfer");                                   /* @begin */
    struct timespec until = never(is("clock") ? CLOCK_MONOTONIC : CLOCK_REALTIME);

    must(sem_wait(&semaphore));
    long seen = balance;
    if (is("whole")) {
        give_turn(go_audit);
        balance = seen - 100;
        must(sem_post(&semaphore));
        return;
    }
    if (is("busy")) {
        give_turn(go_audit);
        await_turn(go_transfer);
        pthread_mutex_lock(&meeting);
        pthread_mutex_unlock(&meeting);
        must(sem_post(&semaphore));
        return;
    }
    must(sem_post(&semaphore));                                   /* @post */

    give_turn(go_audit);
    await_turn(go_transfer);

    if (is("try"))
        must(sem_trywait(&semaphore));                            /* @try */
    else if (is("timed"))
        must(sem_timedwait(&semaphore, &until));                  /* @timed */
    else if (is("clock"))
        must(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &until)); /* @clock */
    else
        must(sem_wait(&semaphore));                               /* @wait */
    balance = seen - 100;
    must(sem_post(&semaphore));
}

static void audit(void)
{
    AVTRACE_REGION("audit");

    if (is("busy")) {
        struct timespec real = soon(CLOCK_REALTIME), monotonic = soon(CLOCK_MONOTONIC);
        int failed = 0;

        failed += sem_trywait(&semaphore) != 0 && errno == EAGAIN;
        failed += sem_timedwait(&semaphore, &real) != 0 && errno == ETIMEDOUT;
        failed += sem_clockwait(&semaphore, CLOCK_MONOTONIC, &monotonic) != 0 && errno == ETIMEDOUT;
        printf("failed: %d\n", failed);
        pthread_mutex_lock(&meeting);
        pthread_mutex_unlock(&meeting);
        return;
    }
    must(sem_wait(&semaphore));                                   /* @audit_wait */
    balance -= 5;
    must(sem_post(&semaphore));                                   /* @audit_post */
}

static void *first(void *unused)
{
    transfer();
    return unused;
}

static void *second(void *unused)
{
    await_turn(go_audit);
    audit();
    give_turn(go_transfer);
    return unused;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "wait";
    must(sem_init(&semaphore, 0, is("pool") ? 2 : 1));
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t teller = start(first, NULL), auditor = start(second, NULL);

    join(teller);
    join(auditor);
    printf("balance: %ld\n", balance);
    return 0;
}
