/*
 * recursive.c [split] - locks taken twice, and locks not got.
 *
 * `owner` takes a recursive mutex twice and releases it once: it still holds the mutex. `prober` now tries
 * for it in three ways and gets it in none: trylock finds it taken, timedlock and clocklock time out. A
 * tracer that takes the inner unlock for a release, or a failed try for an acquire, sees `prober` enter a
 * locked section in the middle of `owner`. The two meet at a second mutex, which closes the cycle for such a
 * tracer:
 *
 *     thread 1: owner                            thread 2: prober
 *
 *     lock, lock, unlock
 *                            -- go_prober -->
 *                                                trylock: busy; timedlock, clocklock: timed out
 *                                                lock meeting, unlock meeting
 *                             <-- go_owner --
 *     lock meeting, unlock meeting, unlock
 *
 * So there is nothing to find. With `split` the owner releases the mutex altogether before the prober's
 * turn, and takes it again afterwards: the three tries succeed, and `owner` is not atomic.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <time.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_prober;
static turn_t go_owner;
static int split;

static void *owner(void *unused)
{
    AVTRACE_REGION("owner");                   /* @owner_begin */

    pthread_mutex_lock(&recursive);            /* @owner_lock */
    pthread_mutex_lock(&recursive);
    pthread_mutex_unlock(&recursive);
    if (split)
        pthread_mutex_unlock(&recursive);      /* @owner_unlock */

    give_turn(go_prober);
    await_turn(go_owner);

    if (split)
        pthread_mutex_lock(&recursive);        /* @owner_relock */
    pthread_mutex_lock(&meeting);
    pthread_mutex_unlock(&meeting);
    pthread_mutex_unlock(&recursive);
    return unused;
}

/* Prints the outcome of a try, and releases the mutex if it was acquired. */
static void tell(const char *function, int error)
{
    printf("%s: %s\n", function,
           error == 0 ? "got" : error == EBUSY ? "busy" : error == ETIMEDOUT ? "timed out" : strerror(error));
    if (error == 0)
        pthread_mutex_unlock(&recursive);
}

static struct timespec soon(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    time.tv_nsec += 10 * 1000 * 1000;
    if (time.tv_nsec >= 1000 * 1000 * 1000) {
        time.tv_sec++;
        time.tv_nsec -= 1000 * 1000 * 1000;
    }
    return time;
}

static void *prober(void *unused)
{
    struct timespec until;

    await_turn(go_prober);
    {
        AVTRACE_REGION("prober");

        tell("trylock", pthread_mutex_trylock(&recursive)); /* @prober_trylock */
        until = soon(CLOCK_REALTIME);
        tell("timedlock", pthread_mutex_timedlock(&recursive, &until));
        until = soon(CLOCK_MONOTONIC);
        tell("clocklock", pthread_mutex_clocklock(&recursive, CLOCK_MONOTONIC, &until));
        pthread_mutex_lock(&meeting);
        pthread_mutex_unlock(&meeting);
    }
    give_turn(go_owner);
    return unused;
}

int main(int argc, char **argv)
{
    split = argc > 1 && strcmp(argv[1], "split") == 0;
    make_turn(go_prober);
    make_turn(go_owner);

    pthread_t first = start(owner, NULL), second = start(prober, NULL);

    join(first);
    join(second);
    return 0;
}
