/*
 * plugin.c - a library for host.c: `refill` is meant to be atomic, and releases its lock in between.
 *
 *     refill (region by markers with -DMARKED)      intrude
 *
 *     lock, read, unlock
 *                                                   lock, add 1, unlock
 *     lock, write, unlock
 *
 * Fixed, it holds the lock all the while, and the other thread comes after it. -DNAME names the region and the intruding
 * function's region, so that two libraries can be distinguished.
 */
#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#ifndef NAME
#define NAME "refill"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_intrude;
static turn_t go_refill;
static int balance;

__attribute__((noinline)) void refill(int fixed)
{
#ifdef MARKED
    AVTRACE_REGION(NAME);                /* @begin */
#endif
    pthread_mutex_lock(&lock);           /* @lock */
    int old = balance;
    if (!fixed) {
        pthread_mutex_unlock(&lock);     /* @unlock */
        give_turn(go_intrude);
        await_turn(go_refill);
        pthread_mutex_lock(&lock);       /* @relock */
    }
    balance = old + 10;
    pthread_mutex_unlock(&lock);
    if (fixed) {
        give_turn(go_intrude);
        await_turn(go_refill);
    }
}

static void *intrude(void *unused)
{
    await_turn(go_intrude);
    pthread_mutex_lock(&lock);           /* @intrude */
    balance++;
    pthread_mutex_unlock(&lock);
    give_turn(go_refill);
    return unused;
}

static void *run_refill(void *fixed)
{
    refill(*(int *)fixed);
    return NULL;
}

int run(int fixed);

int run(int fixed)
{
    make_turn(go_intrude);
    make_turn(go_refill);

    pthread_t first = start(run_refill, &fixed), second = start(intrude, NULL);

    join(first);
    join(second);
    return balance;
}
