/*
 * published.c - a region reads an atomic variable twice, and another thread stores to it in between, by an exchange that
 * stands alone in its line of code: the region was split.
 */
#include <stdatomic.h>
#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static turn_t may_store, has_stored;
static _Atomic long published;

/* The store of a function of its own has nothing beside it that takes a probe, but its return. */
__attribute__((noinline)) static void publish(long value)
{
    atomic_store(&published, value); /* @publish */
}

static void *stores(void *unused)
{
    await_turn(may_store);
    publish(1);
    give_turn(has_stored);
    return unused;
}

int main(void)
{
    long sum;
    pthread_t thread;

    make_turn(may_store);
    make_turn(has_stored);
    thread = start(stores, NULL);
    AVTRACE_BEGIN("look");
    sum = atomic_load(&published);
    give_turn(may_store);
    await_turn(has_stored);
    sum += atomic_load(&published); /* @look_again */
    AVTRACE_END("look");
    join(thread);
    printf("%ld\n", sum);
    return 0;
}
