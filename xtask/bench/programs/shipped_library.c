/*
 * The bug is in a shared library that lies beside the program: a sum is read in one section and written in another.
 *
 * Regions: ledger_add
 * Pattern: lost update, torn
 * Evidence: data
 * Library: ledger.c
 * Reference: the lost update of Flanagan, Freund: Atomizer (POPL 2004), in a library
 */
#include "ledger.h"
#include "turn.h"

static struct ledger ledger = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
static struct turn other_may_go, first_may_go_on;

static void let_other_go(void)
{
    turn_give(&other_may_go);
    turn_await(&first_may_go_on);
}

static void *clerk(void *unused)
{
    for (int i = 0; i < 20; i++)
        ledger_add(&ledger, 1, NULL);
    ledger_add(&ledger, 100, let_other_go);
    return unused;
}

static void *other_clerk(void *unused)
{
    turn_await(&other_may_go);
    ledger_add(&ledger, 5, NULL);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(clerk, other_clerk);
    turn_outcome(ledger.sum != 125);
    return 0;
}
