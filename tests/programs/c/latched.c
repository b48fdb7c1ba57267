/*
 * latched.c [fixed] - unmarked.c with a lock of one's own, whose functions avtrace gets as an option: which functions are
 * atomic is for avtrace to find.
 *
 * `transfer` and `audit` take the latch, one directly and one through `enter`. Waiting for it sleeps, which is no reason
 * for them to be no regions. The latch keeps count of itself under a mutex, and is no region for that. With `fixed` the
 * transfer keeps the latch.
 */
#include <stdatomic.h>
#include <string.h>

#include "handshake.h"
#include "threads.h"

struct latch {
    atomic_int taken;
    pthread_mutex_t guard;
    long count; /* guarded by guard */
    int is_held;
};

static struct latch latch = { .guard = PTHREAD_MUTEX_INITIALIZER };
static long balance = 1000; /* guarded by latch */
static turn_t go_audit;
static turn_t go_transfer;
static int fixed;

/* A compiler that knows all callers of a function may leave arguments out; not with this attribute. */
__attribute__((noipa)) static void latch_take(struct latch *latch)
{
    while (atomic_exchange(&latch->taken, 1) != 0)
        usleep(100);
    pthread_mutex_lock(&latch->guard);
    latch->count++;
    pthread_mutex_unlock(&latch->guard);
    latch->is_held = 1;
}

__attribute__((noipa)) static void latch_give(struct latch *latch)
{
    latch->is_held = 0;
    atomic_store(&latch->taken, 0);
}

static __attribute__((noinline)) void transfer(long amount)
{
    latch_take(&latch);
    long before = balance;
    if (!fixed) {
        latch_give(&latch);                    /* @transfer_give */
        give_turn(go_audit);
        await_turn(go_transfer);
        latch_take(&latch);                    /* @transfer_retake */
    }
    balance = before - amount;
    latch_give(&latch);
    if (fixed) {
        give_turn(go_audit);
        await_turn(go_transfer);
    }
}

static __attribute__((noinline)) void enter(void)
{
    latch_take(&latch);
    balance -= 1;
}

static __attribute__((noinline)) void audit(void)
{
    enter();
    balance -= 5;
    latch_give(&latch);
}

static void *run_transfer(void *unused)
{
    transfer(100);
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
    printf("balance: %ld\n", balance);
    return 0;
}
