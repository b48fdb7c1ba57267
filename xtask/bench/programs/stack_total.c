/*
 * A total that lies on the stack of main, which hands a pointer to it to its threads: read in one section, written in
 * another.
 *
 * Regions: add_to
 * Pattern: lost update
 * Evidence: data
 * Reference: the lost update of Flanagan, Freund: Atomizer (POPL 2004), on a local variable
 */
#include "turn.h"

struct total {
    pthread_mutex_t lock;
    long value; /* guarded by lock */
    struct turn other_may_go, first_may_go_on;
};

static void add_to(struct total *total, long amount, int is_split)
{
    pthread_mutex_lock(&total->lock);
    long before = total->value;
    pthread_mutex_unlock(&total->lock);
    if (is_split) {
        turn_give(&total->other_may_go);
        turn_await(&total->first_may_go_on);
    }
    pthread_mutex_lock(&total->lock);
    total->value = before + amount;
    pthread_mutex_unlock(&total->lock);
}

static void *adder(void *argument)
{
    struct total *total = argument;

    for (int i = 0; i < 20; i++)
        add_to(total, 1, 0);
    add_to(total, 100, 1);
    return NULL;
}

static void *other_adder(void *argument)
{
    struct total *total = argument;

    turn_await(&total->other_may_go);
    add_to(total, 5, 0);
    turn_give(&total->first_may_go_on);
    return NULL;
}

int main(void)
{
    struct total total = {.lock = PTHREAD_MUTEX_INITIALIZER, .value = 0};
    pthread_t threads[2];

    turn_make(&total.other_may_go);
    turn_make(&total.first_may_go_on);
    pthread_create(&threads[0], NULL, adder, &total);
    pthread_create(&threads[1], NULL, other_adder, &total);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    turn_outcome(total.value != 125);
    return 0;
}
