/*
 * A deposit that reads and writes the balance through two functions that each lock by themselves. No access is without
 * the lock, and still the other deposit is lost.
 *
 * Regions: deposit
 * Pattern: lost update
 * Evidence: data
 * Reference: Flanagan, Freund: Atomizer (POPL 2004), the textbook's bank account
 */
#include "turn.h"

#define QUIET_DEPOSITS 20

struct account {
    pthread_mutex_t lock;
    long balance; /* guarded by lock */
};

static struct account account = {PTHREAD_MUTEX_INITIALIZER, 0};
static struct turn other_may_go, first_may_go_on;

static long get(struct account *from)
{
    pthread_mutex_lock(&from->lock);
    long balance = from->balance;
    pthread_mutex_unlock(&from->lock);
    return balance;
}

static void set(struct account *to, long balance)
{
    pthread_mutex_lock(&to->lock);
    to->balance = balance;
    pthread_mutex_unlock(&to->lock);
}

static void deposit(struct account *to, long amount, int is_split)
{
    long balance = get(to);

    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    set(to, balance + amount);
}

static void *teller(void *unused)
{
    for (int i = 0; i < QUIET_DEPOSITS; i++)
        deposit(&account, 1, 0);
    deposit(&account, 100, 1);
    return unused;
}

static void *machine(void *unused)
{
    turn_await(&other_may_go);
    deposit(&account, 5, 0);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(teller, machine);
    turn_outcome(account.balance != QUIET_DEPOSITS + 105);
    return 0;
}
