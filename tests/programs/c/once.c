/*
 * once.c split|whole - routines that run once.
 *
 * split: `prepare` runs the routine, and takes a mutex later in the same region. `use` comes in between: the once flag
 * lets it through, because `prepare` has run the routine, and it holds the mutex first. `prepare` is not atomic.
 *
 *     thread 1: prepare                          thread 2: use
 *
 *     once (runs the routine)
 *                              -- go_use -->
 *                                                once (passes), lock, unlock
 *                           <-- go_prepare --
 *     lock, unlock
 *
 * whole: as split, but main has run the routine before: `prepare` passes the flag as `use` does, and does not order
 * it. Nothing is to be found.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int runs;
static turn_t go_use;
static turn_t go_prepare;

static void routine(void)
{
    runs++;
}

static void *prepare(void *unused)
{
    AVTRACE_REGION("prepare");         /* @begin */

    pthread_once(&once, routine);      /* @run */
    give_turn(go_use);
    await_turn(go_prepare);
    pthread_mutex_lock(&mutex);        /* @prepare_lock */
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void *use(void *unused)
{
    await_turn(go_use);
    {
        AVTRACE_REGION("use");

        pthread_once(&once, routine);  /* @pass */
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);  /* @use_unlock */
    }
    give_turn(go_prepare);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "whole") == 0)
        pthread_once(&once, routine);
    make_turn(go_use);
    make_turn(go_prepare);

    pthread_t first = start(prepare, NULL), second = start(use, NULL);

    join(first);
    join(second);
    printf("runs: %d\n", runs);
    return 0;
}
