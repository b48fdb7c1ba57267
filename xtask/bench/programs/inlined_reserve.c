/*
 * A seat is looked for in one section and taken in another, in a helper that is always inlined: two clerks sell the last
 * one.
 *
 * Regions: reserve_seat
 * Pattern: lost update, stale read
 * Evidence: data
 * Reference: check-then-act, Goetz et al.: Java Concurrency in Practice (2006), section 2.2
 */
#include "turn.h"

struct flight {
    pthread_mutex_t lock;
    int seats; /* guarded by lock */
};

static struct flight flight = {PTHREAD_MUTEX_INITIALIZER, 12};
static struct turn other_may_go, first_may_go_on;

static inline __attribute__((always_inline)) int reserve_seat(struct flight *flight, int is_split)
{
    pthread_mutex_lock(&flight->lock);
    int seats = flight->seats;
    pthread_mutex_unlock(&flight->lock);
    if (seats <= 0)
        return 0;
    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    pthread_mutex_lock(&flight->lock);
    flight->seats--;
    pthread_mutex_unlock(&flight->lock);
    return 1;
}

static void *clerk(void *unused)
{
    for (int sold = 0; sold < 11; sold++)
        reserve_seat(&flight, 0);
    reserve_seat(&flight, 1);
    return unused;
}

static void *other_clerk(void *unused)
{
    turn_await(&other_may_go);
    reserve_seat(&flight, 0);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(clerk, other_clerk);
    turn_outcome(flight.seats < 0);
    return 0;
}
