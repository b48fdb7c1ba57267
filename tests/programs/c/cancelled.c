/*
 * cancelled.c - threads that are cancelled in calls that avtrace looks into, each a thousand times.
 *
 * A thread waits for a semaphore, for another thread's end, for a condition, or in a once routine, and is cancelled
 * there; its clean-up handlers run. Afterwards each object does what it is for. Prints what was cancelled, the same as
 * without avtrace. Nothing is to be found.
 */
#include <pthread.h>
#include <semaphore.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#define TIMES 1000

static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static turn_t ready;
static turn_t never;
static pthread_t other;
static long cleanups;
static int runs;

static void count(void *unused)
{
    (void)unused;
    __atomic_fetch_add(&cleanups, 1, __ATOMIC_RELAXED);
}

static void *wait_for_semaphore(void *unused)
{
    pthread_cleanup_push(count, NULL);
    give_turn(ready);
    sem_wait(&semaphore);
    pthread_cleanup_pop(0);
    return unused;
}

static void *wait_for_turn(void *unused)
{
    await_turn(never);
    return unused;
}

static void *wait_for_thread(void *unused)
{
    pthread_cleanup_push(count, NULL);
    give_turn(ready);
    pthread_join(other, NULL);
    pthread_cleanup_pop(0);
    return unused;
}

static void unlock(void *unused)
{
    count(unused);
    pthread_mutex_unlock(&mutex);
}

static void *wait_for_condition(void *unused)
{
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, NULL);
    give_turn(ready);
    for (;;)
        pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(0);
    return unused;
}

static void slow_routine(void)
{
    pthread_cleanup_push(count, NULL);
    give_turn(ready);
    await_turn(never);
    pthread_cleanup_pop(0);
}

static void *run_once(void *unused)
{
    pthread_once(&once, slow_routine);
    return unused;
}

static void routine(void)
{
    runs++;
}

/* How many of the threads with this body were cancelled. */
static int cancel_in(void *(*body)(void *))
{
    int cancelled = 0;

    for (int i = 0; i < TIMES; i++) {
        void *result;
        pthread_t thread = start(body, NULL);

        await_turn(ready);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    return cancelled;
}

int main(void)
{
    sem_init(&semaphore, 0, 0);
    make_turn(ready);
    make_turn(never);
    printf("semaphore: %d\n", cancel_in(wait_for_semaphore));
    other = start(wait_for_turn, NULL);
    printf("thread: %d\n", cancel_in(wait_for_thread));
    give_turn(never);
    join(other);
    printf("condition: %d\n", cancel_in(wait_for_condition));
    printf("once: %d\n", cancel_in(run_once));
    printf("clean-ups: %ld\n", cleanups);

    AVTRACE_REGION("afterwards");
    sem_post(&semaphore);
    sem_wait(&semaphore);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_once(&once, routine);
    pthread_once(&once, routine);
    printf("runs: %d\n", runs);
    return 0;
}
