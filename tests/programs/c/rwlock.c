/*
 * rwlock.c plain|try|timed|clock|whole|readers|busy - reader-writer locks.
 *
 * The first four: `transfer` reads the balance under the read lock, releases it, takes the write lock and writes; the
 * audit's write section comes in between, and so the transfer is not atomic. The word says by which functions the
 * transfer takes the lock.
 *
 *     thread 1: transfer                         thread 2: audit
 *
 *     read lock, read 1000, unlock
 *                              -- go_audit -->
 *                                                write lock, write 995, unlock
 *                            <-- go_transfer --
 *     write lock, write 900, unlock
 *
 * whole: one write section in the transfer. The audit has to wait for its end.
 * readers: the transfer only reads, twice, and the audit only reads, in between. Readers do not conflict.
 * busy: the transfer holds the write lock all along, the audit's tries for either lock all fail, and then it takes a
 * mutex that the transfer takes afterwards. A tracer that takes a failed try for an acquire sees a cycle.
 * Nothing is to be found in these three.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "soon.h"
#include "threads.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static void must(int error)
{
    if (error != 0) {
        fprintf(stderr, "rwlock: %s\n", strerror(error));
        exit(1);
    }
}

static void transfer(void)
{
    AVTRACE_REGION("transfer");                                   /* @begin */
    struct timespec until = never(is("clock") ? CLOCK_MONOTONIC : CLOCK_REALTIME);
    long seen;

    if (is("try"))
        must(pthread_rwlock_tryrdlock(&lock));                    /* @try_read */
    else if (is("timed"))
        must(pthread_rwlock_timedrdlock(&lock, &until));
    else if (is("clock"))
        must(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &until));
    else
        must(pthread_rwlock_rdlock(&lock));
    seen = balance;
    pthread_rwlock_unlock(&lock);                                 /* @read_unlock */

    give_turn(go_audit);
    await_turn(go_transfer);

    if (is("try"))
        must(pthread_rwlock_trywrlock(&lock));                    /* @try_write */
    else if (is("timed"))
        must(pthread_rwlock_timedwrlock(&lock, &until));          /* @timed_write */
    else if (is("clock"))
        must(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &until)); /* @clock_write */
    else
        must(pthread_rwlock_wrlock(&lock));                       /* @plain_write */
    balance = seen - 100;
    pthread_rwlock_unlock(&lock);
}

static void transfer_whole(void)
{
    AVTRACE_REGION("transfer");

    must(pthread_rwlock_wrlock(&lock));
    give_turn(go_audit);
    balance -= 100;
    pthread_rwlock_unlock(&lock);
}

static void transfer_reading(void)
{
    AVTRACE_REGION("transfer");

    must(pthread_rwlock_rdlock(&lock));
    give_turn(go_audit);
    await_turn(go_transfer);
    pthread_rwlock_unlock(&lock);
    must(pthread_rwlock_rdlock(&lock));
    pthread_rwlock_unlock(&lock);
}

static void transfer_holding(void)
{
    AVTRACE_REGION("transfer");

    must(pthread_rwlock_wrlock(&lock));
    give_turn(go_audit);
    await_turn(go_transfer);
    pthread_mutex_lock(&meeting);
    pthread_mutex_unlock(&meeting);
    pthread_rwlock_unlock(&lock);
}

static void audit(void)
{
    AVTRACE_REGION("audit");

    must(pthread_rwlock_wrlock(&lock));                           /* @audit_lock */
    balance -= 5;
    pthread_rwlock_unlock(&lock);                                 /* @audit_unlock */
}

static void audit_reading(void)
{
    AVTRACE_REGION("audit");

    must(pthread_rwlock_rdlock(&lock));
    pthread_rwlock_unlock(&lock);
}

static void audit_trying(void)
{
    AVTRACE_REGION("audit");
    struct timespec real = soon(CLOCK_REALTIME), monotonic = soon(CLOCK_MONOTONIC);
    int failed = 0;

    failed += pthread_rwlock_tryrdlock(&lock) == EBUSY;
    failed += pthread_rwlock_trywrlock(&lock) == EBUSY;
    failed += pthread_rwlock_timedrdlock(&lock, &real) == ETIMEDOUT;
    failed += pthread_rwlock_timedwrlock(&lock, &real) == ETIMEDOUT;
    failed += pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT;
    failed += pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT;
    pthread_mutex_lock(&meeting);
    pthread_mutex_unlock(&meeting);
    printf("failed: %d\n", failed);
}

static void *first(void *unused)
{
    if (is("whole"))
        transfer_whole();
    else if (is("readers"))
        transfer_reading();
    else if (is("busy"))
        transfer_holding();
    else
        transfer();
    return unused;
}

static void *second(void *unused)
{
    await_turn(go_audit);
    if (is("readers"))
        audit_reading();
    else if (is("busy"))
        audit_trying();
    else
        audit();
    give_turn(go_transfer);
    return unused;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "plain";
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t teller = start(first, NULL), auditor = start(second, NULL);

    join(teller);
    join(auditor);
    printf("balance: %ld\n", balance);
    return 0;
}
