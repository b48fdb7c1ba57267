/*
 * barrier.c split|whole - barriers.
 *
 * split: each thread's region `step` spans two rounds of a barrier. What a thread does between the rounds comes after
 * the other one's first half and before its second half: neither is atomic.
 *
 *     thread 1: step                             thread 2: step
 *
 *     arrive, depart                             arrive, depart
 *     arrive, depart                             arrive, depart
 *
 * whole: many rounds, by more threads than the barrier waits for, with each region between two rounds. Nothing is to
 * be found. When there have been enough steps the program ends, with some threads at the barrier.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#define STEPS 300
#define THREADS 6
#define TOGETHER 3

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long steps; /* guarded by mutex */
static turn_t enough;

static void *twice(void *unused)
{
    AVTRACE_REGION("step");           /* @begin */

    pthread_barrier_wait(&barrier);   /* @first */
    pthread_barrier_wait(&barrier);   /* @second */
    return unused;
}

static void *many(void *unused)
{
    for (;;) {
        long now;

        pthread_barrier_wait(&barrier);
        {
            AVTRACE_REGION("step");

            pthread_mutex_lock(&mutex);
            now = ++steps;
            pthread_mutex_unlock(&mutex);
        }
        if (now == STEPS)
            give_turn(enough);
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "whole") == 0) {
        make_turn(enough);
        pthread_barrier_init(&barrier, NULL, TOGETHER);
        for (int i = 0; i < THREADS; i++)
            start(many, NULL);
        await_turn(enough);
        return 0;
    }
    pthread_barrier_init(&barrier, NULL, 2);

    pthread_t first = start(twice, NULL), second = start(twice, NULL);

    join(first);
    join(second);
    pthread_barrier_destroy(&barrier);
    return 0;
}
