/*
 * words.c KIND - words that are accessed by atomic instructions: locks of one's own, and data.
 *
 * Correct, nothing is to be found:
 * compare, exchange, bit: `transfer` holds a spin lock from its begin to its end, and the other thread tries to take it
 * meanwhile: by a compare-and-swap, by an exchange, by an `or` of a bit.
 * look: as compare, and the other thread reads the lock word before it tries, as a test-and-test-and-set does.
 * shared: `transfer` holds a lock shared twice, whose word counts readers by a compare-and-swap, and releases it by a
 * subtraction; a reader comes in between.
 * checked: `transfer` checks a flag again before it acts on it; the other thread sets the flag by an exchange in between,
 * and looks at its result.
 * flags: `transfer` sets two bits of a word one after the other, and the other thread sets a third in between.
 *
 * Not correct:
 * twice: `transfer` holds the spin lock twice, and the other thread holds it in between: split, by the lock's word alone.
 * lost, lost_exchange: `transfer` loads a number and stores another one, and the other thread's store in between is lost;
 * an exchange whose result nobody looks at is a store (the compiler shows that when it optimises). All of it four times.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static atomic_int word;
static long limit; /* read in the sections of `twice` */
static __thread volatile long sum;
static turn_t go_other;
static turn_t go_transfer;
static const char *kind;

static int is(const char *name)
{
    return strcmp(kind, name) == 0;
}

__attribute__((noinline)) static bool try(void)
{
    if (is("exchange"))
        return atomic_exchange(&word, 1) == 0;
    if (is("bit"))
        return (atomic_fetch_or(&word, 4) & 4) == 0;
    if (is("look") && atomic_load(&word) != 0)
        return false;
    int unlocked = 0;
    return atomic_compare_exchange_strong(&word, &unlocked, 1);      /* @take */
}

__attribute__((noinline)) static void take(void)
{
    while (!try())
        ;
}

__attribute__((noinline)) static void give(void)
{
    if (is("bit"))
        atomic_fetch_and(&word, ~4);
    else
        atomic_store_explicit(&word, 0, memory_order_release);       /* @give */
}

__attribute__((noinline)) static void section(void)
{
    take();
    sum = limit;
    give();
}

__attribute__((noinline)) static void share(void)
{
    int readers = atomic_load(&word);
    while (!atomic_compare_exchange_weak(&word, &readers, readers + 2))
        ;
}

__attribute__((noinline)) static void unshare(void)
{
    atomic_fetch_sub(&word, 2);
}

__attribute__((noinline)) static void store(int value)
{
    if (is("lost"))
        atomic_store_explicit(&word, value, memory_order_relaxed);   /* @store */
    else
        (void)atomic_exchange(&word, value);                         /* @exchange */
}

__attribute__((noinline)) static int load(void)
{
    return atomic_load_explicit(&word, memory_order_relaxed);        /* @load */
}

static void others_turn(void)
{
    give_turn(go_other);
    await_turn(go_transfer);
}

__attribute__((noinline)) static void transfer(void)
{
    AVTRACE_REGION("transfer");

    if (is("shared")) {
        share();
        unshare();
        others_turn();
        share();
        unshare();
    } else if (is("checked")) {
        if (load() == 0) {
            others_turn();
            if (load() == 0)
                store(2);
        }
    } else if (is("flags")) {
        atomic_fetch_or(&word, 1);
        others_turn();
        atomic_fetch_or(&word, 2);
    } else if (is("twice")) {
        section();
        others_turn();
        section();
    } else if (is("lost") || is("lost_exchange")) {
        int seen = load();
        others_turn();
        store(seen + 1);
    } else {
        take();
        others_turn();
        give();
    }
}

__attribute__((noinline)) static void meanwhile(void)
{
    if (is("shared")) {
        share();
        unshare();
    } else if (is("checked")) {
        if (atomic_exchange(&word, 1) != 0)
            exit(1);
    } else if (is("flags")) {
        atomic_fetch_or(&word, 4);
    } else if (is("twice")) {
        section();
    } else if (is("lost") || is("lost_exchange")) {
        store(load() + 1);
    } else if (try()) {
        exit(1);
    }
}

static int times(void)
{
    return is("lost") || is("lost_exchange") ? 4 : 1;
}

static void *first(void *unused)
{
    for (int i = 0; i < times(); i++)
        transfer();
    return unused;
}

static void *second(void *unused)
{
    for (int i = 0; i < times(); i++) {
        await_turn(go_other);
        meanwhile();
        give_turn(go_transfer);
    }
    return unused;
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "compare";
    limit = argc;
    make_turn(go_other);
    make_turn(go_transfer);

    pthread_t one = start(first, NULL), other = start(second, NULL);

    join(one);
    join(other);
    printf("word: %d\n", atomic_load(&word));
    return 0;
}
