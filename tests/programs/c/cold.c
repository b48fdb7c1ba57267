/*
 * cold.c [fixed] - a region that a compiler splits: what is seldom executed is put elsewhere, and returns from there.
 *
 * As unmarked.c; but `transfer` reads a second time in a part that is cold, and leaves the function there. After that
 * the teller takes the lock once more outside of it, which must not count.
 */
#include <string.h>

#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static int fixed;

static __attribute__((cold, noinline)) void complain(long amount)
{
    fprintf(stdout, "transfer of %ld\n", amount);
}

__attribute__((noinline)) int transfer(long amount, int odd)
{                                              /* @transfer_begin */
    pthread_mutex_lock(&lock);
    long before = balance;
    pthread_mutex_unlock(&lock);               /* @transfer_unlock */
    if (__builtin_expect(odd, 0)) {
        complain(amount);
        if (!fixed) {
            give_turn(go_audit);
            await_turn(go_transfer);
            pthread_mutex_lock(&lock);         /* @transfer_relock */
            balance = before - amount;
            pthread_mutex_unlock(&lock);
        }
        complain(before);
        return 1;
    }
    return 0;
}

__attribute__((noinline)) void audit(void)
{
    pthread_mutex_lock(&lock);
    balance -= 5;
    pthread_mutex_unlock(&lock);
}

static void *run_transfer(void *unused)
{
    transfer(100, 1);
    if (fixed) {
        give_turn(go_audit);
        await_turn(go_transfer);
    }
    pthread_mutex_lock(&lock);
    balance -= 1;
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *run_audit(void *unused)
{
    await_turn(go_audit);
    audit();
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
    return 0;
}
