/*
 * inlined.c [fixed] - bank.c without markers, with `transfer` and `audit` inlined into their callers.
 *
 * With `fixed` the transfer keeps the lock. `transfer` runs twice, one after the other, so that the end of the first run
 * and the begin of the second meet. The functions that they were inlined into take the lock once more behind them, which
 * is outside of every region: seen inside one, it would be found.
 */
#include <string.h>

#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static int fixed;

static inline __attribute__((always_inline)) void transfer(long amount, int meets)
{
    pthread_mutex_lock(&lock);                 /* @transfer_lock */
    long before = balance;
    if (!fixed && meets) {
        pthread_mutex_unlock(&lock);           /* @transfer_unlock */
        give_turn(go_audit);
        await_turn(go_transfer);
        pthread_mutex_lock(&lock);             /* @transfer_relock */
    }
    balance = before - amount;
    pthread_mutex_unlock(&lock);
}

static inline __attribute__((always_inline)) void audit(void)
{
    pthread_mutex_lock(&lock);                 /* @audit_lock */
    balance -= 5;
    pthread_mutex_unlock(&lock);               /* @audit_unlock */
}

static void look(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void *run_transfer(void *unused)
{
    transfer(60, 0);
    transfer(40, 1);
    if (fixed) {
        give_turn(go_audit);
        await_turn(go_transfer);
    }
    look();
    give_turn(go_audit);
    await_turn(go_transfer);
    look();
    return unused;
}

static void *run_audit(void *unused)
{
    await_turn(go_audit);
    audit();
    give_turn(go_transfer);
    await_turn(go_audit);
    look();
    give_turn(go_transfer);
    return unused;
}

int main(int argc, char **argv)
{
    fixed = argc > 1 && strcmp(argv[1], "fixed") == 0;
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t first = start(run_transfer, NULL), second = start(run_audit, NULL);

    join(first);
    join(second);
    printf("balance: %ld\n", balance);
    return 0;
}
