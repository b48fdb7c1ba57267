/*
 * A publisher writes a price and, in another section, reads what has been ordered so far. Between the two a clerk takes
 * the price for an order, and a shipper the order for a shipment: the publisher sees a shipment by a price that it
 * believes nobody has seen.
 *
 * Regions: publish
 * Pattern: chain
 * Evidence: data
 * Reference: Davida, Figure 2: a cycle through third transactions
 */
#include "turn.h"

struct cell {
    pthread_mutex_t lock;
    long value; /* guarded by lock */
};

static struct cell price = {PTHREAD_MUTEX_INITIALIZER, 0}, order = {PTHREAD_MUTEX_INITIALIZER, 0},
                   shipped = {PTHREAD_MUTEX_INITIALIZER, 0};
static struct turn clerk_may_go, shipper_may_go, publisher_may_go_on;
static long seen;

static long get(struct cell *from)
{
    pthread_mutex_lock(&from->lock);
    long value = from->value;
    pthread_mutex_unlock(&from->lock);
    return value;
}

static void set(struct cell *to, long value)
{
    pthread_mutex_lock(&to->lock);
    to->value = value;
    pthread_mutex_unlock(&to->lock);
}

static long publish(long value, int is_split)
{
    set(&price, value);
    if (is_split) {
        turn_give(&clerk_may_go);
        turn_await(&publisher_may_go_on);
    }
    return get(&shipped);
}

static void copy(struct cell *from, struct cell *to)
{
    set(to, get(from));
}

static void *publisher(void *unused)
{
    for (int i = 0; i < 10; i++)
        publish(0, 0);
    seen = publish(7, 1);
    return unused;
}

static void *clerk(void *unused)
{
    turn_await(&clerk_may_go);
    copy(&price, &order);
    turn_give(&shipper_may_go);
    return unused;
}

static void *shipper(void *unused)
{
    turn_await(&shipper_may_go);
    copy(&order, &shipped);
    turn_give(&publisher_may_go_on);
    return unused;
}

static void *clerk_and_shipper(void *unused)
{
    run_both(clerk, shipper);
    return unused;
}

int main(void)
{
    turn_make(&clerk_may_go);
    turn_make(&shipper_may_go);
    turn_make(&publisher_may_go_on);
    run_both(publisher, clerk_and_shipper);
    turn_outcome(seen == 7);
    return 0;
}
