/*
 * relay.c - a cycle through four threads, and regions within regions.
 *
 * `announce` writes a price and then reads which price has been shipped. Meanwhile a clerk takes the price for an order,
 * a packer the order for a parcel, and a shipper the parcel for a shipment: the announcement meets its own price, which
 * it believes nobody has seen. `announce` runs within `morning`.
 *
 *     morning > announce      clerk               packer              shipper
 *
 *     price = 7
 *                             order = price
 *                                                 parcel = order
 *                                                                     shipped = parcel
 *     read shipped: 7
 *
 * Each number has a lock of its own.
 */
#include "handshake.h"
#include "threads.h"

struct number {
    pthread_mutex_t lock;
    long value; /* guarded by lock */
};

static struct number price = {PTHREAD_MUTEX_INITIALIZER, 0}, order = {PTHREAD_MUTEX_INITIALIZER, 0},
                     parcel = {PTHREAD_MUTEX_INITIALIZER, 0}, shipped = {PTHREAD_MUTEX_INITIALIZER, 0};
static turn_t go_clerk, go_packer, go_shipper, go_on;

static long get(struct number *from)
{
    pthread_mutex_lock(&from->lock);
    long value = from->value;
    pthread_mutex_unlock(&from->lock);
    return value;
}

static void set(struct number *to, long value)
{
    pthread_mutex_lock(&to->lock);
    to->value = value;
    pthread_mutex_unlock(&to->lock);
}

static long announce(long value, int is_disturbed)
{
    set(&price, value);
    if (is_disturbed) {
        give_turn(go_clerk);
        await_turn(go_on);
    }
    return get(&shipped);
}

static long morning(long value, int is_disturbed)
{
    return announce(value, is_disturbed);
}

static void place_order(void)
{
    set(&order, get(&price));
}

static void pack(void)
{
    set(&parcel, get(&order));
}

static void ship(void)
{
    set(&shipped, get(&parcel));
}

static void *publisher(void *unused)
{
    for (int i = 0; i < 10; i++)
        morning(0, 0);
    printf("shipped: %ld\n", morning(7, 1));
    return unused;
}

static void *clerk(void *unused)
{
    await_turn(go_clerk);
    place_order();
    give_turn(go_packer);
    return unused;
}

static void *packer(void *unused)
{
    await_turn(go_packer);
    pack();
    give_turn(go_shipper);
    return unused;
}

static void *shipper(void *unused)
{
    await_turn(go_shipper);
    ship();
    give_turn(go_on);
    return unused;
}

int main(void)
{
    make_turn(go_clerk);
    make_turn(go_packer);
    make_turn(go_shipper);
    make_turn(go_on);

    pthread_t threads[] = {
        start(publisher, NULL),
        start(clerk, NULL),
        start(packer, NULL),
        start(shipper, NULL),
    };

    for (int i = 0; i < 4; i++)
        join(threads[i]);
    return 0;
}
