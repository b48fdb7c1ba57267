/*
 * condvar.c wait|timed|clock|whole|timeout|late|cancel - condition variables.
 *
 * The first three: `take` waits for the condition inside its region. The wait releases the mutex, `put` comes in
 * between, and its signal lets the wait through: `take` is not atomic.
 *
 *     thread 1: take                             thread 2: put
 *
 *     lock
 *                              -- go_put -->
 *     wait (releases the mutex)
 *                                                lock, full = 1, signal, unlock
 *     (takes the mutex again) full = 0, unlock
 *
 * whole: `take` waits before its region, and looks again in it. Nothing is to be found.
 * timeout: nobody signals, and `peek` only looks, under the mutex, while `take` waits. The mutex alone is what
 * the cycle is made of.
 * late: `put` signals before anybody waits. The wait then times out with nobody having come in between. Nothing is to
 * be found.
 * cancel: a thread is cancelled while it waits. It takes the mutex again before its clean-up handler, which unlocks
 * it; `interrupt` holds the mutex before and after that, and is not atomic.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "soon.h"
#include "threads.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int full;   /* guarded by mutex */
static int peeked; /* guarded by mutex */
static turn_t go_put;
static turn_t go_take;
static turn_t taker;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static int wait_for_it(void)
{
    struct timespec real = never(CLOCK_REALTIME), monotonic = never(CLOCK_MONOTONIC);

    if (is("timed"))
        return pthread_cond_timedwait(&condition, &mutex, &real);                       /* @timed */
    if (is("clock"))
        return pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &monotonic); /* @clock */
    return pthread_cond_wait(&condition, &mutex);                                       /* @wait */
}

static void take(void)
{
    AVTRACE_REGION("take");                                 /* @begin */

    pthread_mutex_lock(&mutex);
    give_turn(go_put);
    while (!full)
        wait_for_it();
    full = 0;
    pthread_mutex_unlock(&mutex);
}

static void take_whole(void)
{
    pthread_mutex_lock(&mutex);
    give_turn(go_put);
    while (!full)
        wait_for_it();
    {
        AVTRACE_REGION("take");

        full = 0;
        pthread_mutex_unlock(&mutex);
    }
}

/* Waits until it is tired of it, or until somebody has looked. */
static void take_in_vain(void)
{
    AVTRACE_REGION("take");
    int error;

    pthread_mutex_lock(&mutex);
    give_turn(go_put);
    do {
        struct timespec until = soon(CLOCK_REALTIME);

        error = pthread_cond_timedwait(&condition, &mutex, &until); /* @timeout */
    } while (error == 0 || (is("timeout") && !peeked));
    pthread_mutex_unlock(&mutex);
    printf("wait: %s\n", error == ETIMEDOUT ? "timed out" : "let through");
}

static void put(void)
{
    AVTRACE_REGION("put");

    pthread_mutex_lock(&mutex);                             /* @put_lock */
    full = 1;
    pthread_cond_signal(&condition);                        /* @signal */
    pthread_mutex_unlock(&mutex);                           /* @put_unlock */
}

static void peek(void)
{
    AVTRACE_REGION("peek");

    pthread_mutex_lock(&mutex);                             /* @peek_lock */
    peeked = 1;
    pthread_mutex_unlock(&mutex);                           /* @peek_unlock */
}

static void unlock_mutex(void *unused)
{
    (void)unused;
    pthread_mutex_unlock(&mutex);                           /* @cleanup */
}

static void *wait_for_ever(void *unused)
{
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock_mutex, NULL);
    give_turn(go_put);
    for (;;)
        pthread_cond_wait(&condition, &mutex);              /* @cancelled */
    pthread_cleanup_pop(1);
    return unused;
}

static void interrupt(pthread_t waiter)
{
    AVTRACE_REGION("interrupt");                            /* @interrupt */
    void *result;

    pthread_mutex_lock(&mutex);
    pthread_cancel(waiter);
    pthread_mutex_unlock(&mutex);                           /* @interrupt_unlock */
    pthread_join(waiter, &result);
    pthread_mutex_lock(&mutex);                             /* @interrupt_relock */
    pthread_mutex_unlock(&mutex);
    printf("the waiter was %s\n", result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

static void *first(void *unused)
{
    give_thread(taker);
    if (is("late"))
        await_turn(go_take);
    if (is("whole"))
        take_whole();
    else if (is("timeout") || is("late"))
        take_in_vain();
    else
        take();
    return unused;
}

static void *second(void *unused)
{
    if (is("late")) {
        put();
        give_turn(go_take);
        return unused;
    }
    await_turn(go_put);
    await_futex(receive_thread(taker));
    if (is("timeout"))
        peek();
    else
        put();
    return unused;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "wait";
    make_turn(go_put);
    make_turn(go_take);
    make_turn(taker);

    if (is("cancel")) {
        pthread_t waiter = start(wait_for_ever, NULL);

        await_turn(go_put);
        interrupt(waiter);
        return 0;
    }
    pthread_t taker = start(first, NULL), putter = start(second, NULL);

    join(taker);
    join(putter);
    printf("full: %d\n", full);
    return 0;
}
