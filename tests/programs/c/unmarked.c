/*
 * unmarked.c [fixed] - bank.c without markers: avtrace finds the atomic functions, or gets them as an option.
 *
 * `transfer` and `audit` take the lock, one directly and one through `take`, and each is called by the function that a
 * thread starts with. With `fixed` the transfer keeps the lock. `settle` waits for the threads while it holds a lock of
 * its own, `close_up` calls it, and `take_ticket`, which takes a lock too, is inlined everywhere.
 */
#include <string.h>

#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t tickets = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static long next_ticket;    /* guarded by tickets */
static turn_t go_audit;
static turn_t go_transfer;
static int fixed;

static inline __attribute__((always_inline)) long take_ticket(void)
{
    pthread_mutex_lock(&tickets);
    long ticket = next_ticket++;
    pthread_mutex_unlock(&tickets);            /* @take_ticket */
    return ticket;
}

static __attribute__((noinline)) void transfer(long amount)
{                                              /* @transfer_begin */
    pthread_mutex_lock(&lock);                 /* @transfer_lock */
    long before = balance;
    if (!fixed) {
        pthread_mutex_unlock(&lock);           /* @transfer_unlock */
        give_turn(go_audit);
        await_turn(go_transfer);
        pthread_mutex_lock(&lock);             /* @transfer_relock */
    }
    balance = before - amount;
    pthread_mutex_unlock(&lock);
    if (fixed) {
        give_turn(go_audit);
        await_turn(go_transfer);
    }
}

static __attribute__((noinline)) void take(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);                 /* @take_lock */
}

static __attribute__((noinline)) void audit(void)
{                                              /* @audit_begin */
    take(&lock);                               /* @audit_lock */
    balance -= 5;
    pthread_mutex_unlock(&lock);               /* @audit_unlock */
}

static void *run_transfer(void *unused)
{
    take_ticket();
    transfer(100);
    return unused;
}

static void *run_audit(void *unused)
{
    take_ticket();
    await_turn(go_audit);
    audit();
    give_turn(go_transfer);
    return unused;
}

static __attribute__((noinline)) void settle(pthread_t first, pthread_t second)
{
    static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&settling);
    if (pthread_join(first, NULL) != 0 || pthread_join(second, NULL) != 0)
        exit(1);
    pthread_mutex_unlock(&settling);
}

static __attribute__((noinline)) void close_up(pthread_t first, pthread_t second)
{
    settle(first, second);
    pthread_mutex_lock(&tickets);
    next_ticket = 0;
    pthread_mutex_unlock(&tickets);
}

int main(int argc, char **argv)
{
    fixed = argc > 1 && strcmp(argv[1], "fixed") == 0;
    make_turn(go_audit);
    make_turn(go_transfer);
    close_up(start(run_transfer, NULL), start(run_audit, NULL));
    pthread_mutex_lock(&lock);
    printf("balance: %ld\n", balance);
    pthread_mutex_unlock(&lock);
    return 0;
}
