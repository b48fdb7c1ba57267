/*
 * homemade.c lock|try|whole|busy - a lock of one's own, whose functions avtrace gets as an option.
 *
 * lock, try: `transfer` holds the lock twice, the second time by latch_take or latch_try, and the audit holds it in
 * between: the transfer is not atomic.
 * whole: one section in the transfer; the audit spins until its end.
 * busy: the audit's try fails while the transfer holds the lock.
 * Nothing is to be found in the last two.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

struct latch {
    atomic_int taken;
};

static struct latch latch;
static long balance = 1000; /* guarded by latch */
static turn_t go_audit;
static turn_t go_transfer;
static const char *how;

/*
 * The latch is the second argument: the first one says who takes it. A compiler that knows all callers of a function
 * may leave arguments out that are always the same; not with this attribute.
 */
__attribute__((noipa)) static void latch_take(int who, struct latch *latch)
{
    while (atomic_exchange(&latch->taken, who) != 0)
        ;
}

__attribute__((noipa)) static bool latch_try(int who, struct latch *latch)
{
    return atomic_exchange(&latch->taken, who) == 0;
}

__attribute__((noipa)) static void latch_give(int who, struct latch *latch)
{
    if (who != 0)
        atomic_store(&latch->taken, 0);
}

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static void transfer(void)
{
    AVTRACE_REGION("transfer");

    latch_take(1, &latch);
    long seen = balance;
    if (is("whole")) {
        give_turn(go_audit);
        balance = seen - 100;
        latch_give(1, &latch);
        return;
    }
    if (is("busy")) {
        give_turn(go_audit);
        await_turn(go_transfer);
        balance = seen - 100;
        latch_give(1, &latch);
        return;
    }
    latch_give(1, &latch);           /* @give */

    give_turn(go_audit);
    await_turn(go_transfer);

    if (is("try")) {
        if (!latch_try(1, &latch))   /* @try */
            exit(1);
    } else {
        latch_take(1, &latch);       /* @lock */
    }
    balance = seen - 100;
    latch_give(1, &latch);
}

static void audit(void)
{
    AVTRACE_REGION("audit");

    if (is("busy")) {
        if (latch_try(1, &latch))
            exit(1);
        return;
    }
    latch_take(2, &latch);           /* @audit_take */
    balance -= 5;
    latch_give(2, &latch);           /* @audit_give */
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
    how = argc > 1 ? argv[1] : "lock";
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t teller = start(first, NULL), auditor = start(second, NULL);

    join(teller);
    join(auditor);
    printf("balance: %ld\n", balance);
    return 0;
}
