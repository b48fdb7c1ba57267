/*
 * reused.c [whole] - bank.c, with a teller that has the id of a thread that came before and was joined.
 *
 * The two are different threads: a tracer that takes them for one sees events of a thread after its end. With `whole`
 * the transfer is one locked section, and nothing is to be found. Where the system does not let the program choose
 * ids, it says so and does nothing; where another process has taken each id that it chose, it fails.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static pid_t wanted;
static int whole;

static void *look(void *unused)
{
    AVTRACE_REGION("look");

    pthread_mutex_lock(&lock);
    wanted = gettid();
    pthread_mutex_unlock(&lock);
    return unused;
}

static void transfer(void)
{
    AVTRACE_REGION("transfer");        /* @begin */

    pthread_mutex_lock(&lock);
    long seen = balance;
    if (whole) {
        give_turn(go_audit);
        balance = seen - 100;
        pthread_mutex_unlock(&lock);
        return;
    }
    pthread_mutex_unlock(&lock);       /* @unlock */

    give_turn(go_audit);
    await_turn(go_transfer);

    pthread_mutex_lock(&lock);         /* @relock */
    balance = seen - 100;
    pthread_mutex_unlock(&lock);
}

/* The transfer, if the thread has the id that it should have. */
static void *transfer_as_wanted(void *result)
{
    *(int *)result = gettid() == wanted;
    if (gettid() == wanted)
        transfer();
    return result;
}

static void *audit(void *unused)
{
    await_turn(go_audit);
    {
        AVTRACE_REGION("audit");

        pthread_mutex_lock(&lock);     /* @audit_lock */
        balance -= 5;
        pthread_mutex_unlock(&lock);   /* @audit_unlock */
    }
    give_turn(go_transfer);
    return unused;
}

/* Makes the system give out an id next, unless another process comes in between. */
static int choose_next(pid_t id)
{
    int file = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
    int done = file >= 0 && dprintf(file, "%d", id - 1) > 0;

    if (file >= 0)
        close(file);
    return done;
}

int main(int argc, char **argv)
{
    int done = 0;

    (void)argv;
    whole = argc > 1;
    make_turn(go_audit);
    make_turn(go_transfer);
    pthread_t auditor = start(audit, NULL);
    for (int tries = 0; !done && tries < 1000; tries++) {
        /* A process that came in between may keep the id for as long as it lives: then there has to be another. */
        if (tries % 50 == 0)
            join(start(look, NULL));
        if (!choose_next(wanted)) {
            puts("ids cannot be chosen");
            return 0;
        }
        join(start(transfer_as_wanted, &done));
    }
    if (!done) {
        /* The auditor waits for its turn for ever. */
        fputs("no id was used again\n", stderr);
        return 1;
    }
    join(auditor);
    printf("balance: %ld\n", balance);
    return 0;
}
