/*
 * counters.c KIND - a counter that `handle` changes twice, and the other thread in between.
 *
 * Correct, nothing is to be found in the data:
 * atomic: both add to it in one step, and use the result nowhere.
 * references: both take one off a reference count, which only decides who is the last.
 * mutex: both add to it in several steps, under a mutex, which `handle` releases in between.
 *
 * Not correct:
 * plain: as mutex, without the mutex.
 * other_mutex: as mutex, and each thread has a mutex of its own.
 * lost: `handle` loads the counter and stores another number; the other thread's addition is lost.
 * seen: as atomic, and the other thread reads the counter in between.
 * limited: as mutex, and `handle` has compared the counter with a limit under the mutex before.
 * numbered: the numbers are used, and those of `handle` are not consecutive.
 */
#include <stdatomic.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static atomic_long counter = 100;
static long plain;
static volatile long numbers[3];
static volatile int freed;
static __thread volatile int added;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other_mutex = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_other;
static turn_t go_handle;
static const char *kind;

static int is(const char *name)
{
    return strcmp(kind, name) == 0;
}

/* Something follows the instruction in its line of code, so that a probe has room behind it. */
__attribute__((noinline)) static void add(void)
{
    atomic_fetch_add(&counter, 1);                                   /* @add */
    added = 1;
}

__attribute__((noinline)) static void count(int who)
{
    if (is("references")) {
        if (atomic_fetch_sub(&counter, 1) == 1)
            freed = 1;
    } else if (is("limited") && who == 0) {
        pthread_mutex_lock(&mutex);
        added = plain < 100;
        pthread_mutex_unlock(&mutex);
    } else if (is("mutex") || is("limited") || is("other_mutex")) {
        pthread_mutex_t *own = is("other_mutex") && who == 2 ? &other_mutex : &mutex;

        pthread_mutex_lock(own);
        plain++;
        pthread_mutex_unlock(own);
    } else if (is("plain")) {
        plain++;
    } else if (is("numbered")) {
        numbers[who] = atomic_fetch_add(&counter, 1);
    } else if (is("seen") && who == 2) {
        numbers[2] = atomic_load(&counter);
    } else {
        add();
    }
}

static void others_turn(void)
{
    give_turn(go_other);
    await_turn(go_handle);
}

__attribute__((noinline)) static void handle(void)
{
    AVTRACE_REGION("handle");

    if (is("lost")) {
        long seen = atomic_load_explicit(&counter, memory_order_relaxed);

        others_turn();
        atomic_store_explicit(&counter, seen + 1, memory_order_relaxed);
        return;
    }
    count(0);
    others_turn();
    count(1);
}

static void *first(void *unused)
{
    for (int i = 0; i < 4; i++)
        handle();
    return unused;
}

static void *second(void *unused)
{
    for (int i = 0; i < 4; i++) {
        await_turn(go_other);
        count(2);
        give_turn(go_handle);
    }
    return unused;
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "atomic";
    make_turn(go_other);
    make_turn(go_handle);

    pthread_t one = start(first, NULL), other = start(second, NULL);

    join(one);
    join(other);
    printf("%ld %ld\n", atomic_load(&counter), plain);
    return 0;
}
