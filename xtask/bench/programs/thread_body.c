/*
 * A thread's own function counts what it has done: the total is read in one section and written in another, both in the
 * function that the thread starts with.
 *
 * Regions: count_to_total
 * Pattern: lost update
 * Evidence: data
 * Reference: the lost update of Flanagan, Freund: Atomizer (POPL 2004), in a thread's body
 */
#include "turn.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total; /* guarded by lock */
static struct turn other_may_go, first_may_go_on;

static void *count_to_total(void *unused)
{
    pthread_mutex_lock(&lock);
    long before = total;
    pthread_mutex_unlock(&lock);

    turn_give(&other_may_go);
    turn_await(&first_may_go_on);

    pthread_mutex_lock(&lock);
    total = before + 100;
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *count_once(void *unused)
{
    turn_await(&other_may_go);
    pthread_mutex_lock(&lock);
    total += 5;
    pthread_mutex_unlock(&lock);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(count_to_total, count_once);
    turn_outcome(total != 105);
    return 0;
}
