/*
 * published.c - a region loads an atomic variable and stores what it has computed from it, and another thread stores to it
 * in between, by an exchange that stands alone in its line of code: an update is lost, in each of three rounds.
 *
 * The first exchange makes the variable look like a lock's word, and only the second round shows that it is data.
 */
#include <stdatomic.h>
#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

enum { ROUNDS = 3 };

static turn_t may_store, has_stored;
static _Atomic long published;

/* The store of a function of its own has nothing beside it that takes a probe, but its return. */
__attribute__((noinline)) static void publish(long value)
{
    atomic_store(&published, value); /* @publish */
}

static void *stores(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        await_turn(may_store);
        publish(10 + round);
        give_turn(has_stored);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;

    make_turn(may_store);
    make_turn(has_stored);
    thread = start(stores, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        AVTRACE_BEGIN("update");
        long before = atomic_load(&published);
        give_turn(may_store);
        await_turn(has_stored);
        atomic_store_explicit(&published, before + 1, memory_order_release); /* @update */
        AVTRACE_END("update");
    }
    join(thread);
    printf("%ld\n", (long)published);
    return 0;
}
