/*
 * counted.c LOCK apart|together - two threads take one lock a thousand times each, and nothing else is done with it.
 *
 * LOCK is `mutex`, `errorcheck`, `recursive`, `try`, `read`, `write` or `spin`; `read` and `write` are those of a
 * reader-writer lock. With `apart` one thread follows the other, so that nobody ever waits for the lock; with
 * `together` they run at the same time.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static pthread_barrier_t start;
static const char *lock;
static volatile long sum;

static int is(const char *word)
{
    return strcmp(lock, word) == 0;
}

static void must(int status)
{
    if (status != 0) {
        fprintf(stderr, "%s\n", strerror(status));
        exit(1);
    }
}

static void step(void)
{
    if (is("read")) {
        must(pthread_rwlock_rdlock(&rwlock));
        must(pthread_rwlock_unlock(&rwlock));
    } else if (is("write")) {
        must(pthread_rwlock_wrlock(&rwlock));
        sum++;
        must(pthread_rwlock_unlock(&rwlock));
    } else if (is("spin")) {
        must(pthread_spin_lock(&spinlock));
        sum++;
        must(pthread_spin_unlock(&spinlock));
    } else if (is("try")) {
        while (pthread_mutex_trylock(&mutex) != 0)
            sched_yield();
        sum++;
        must(pthread_mutex_unlock(&mutex));
    } else {
        must(pthread_mutex_lock(&mutex));
        sum++;
        must(pthread_mutex_unlock(&mutex));
    }
}

static void *steps(void *together)
{
    if (together)
        pthread_barrier_wait(&start);
    for (int i = 0; i < TIMES; i++)
        step();
    return NULL;
}

int main(int argc, char **argv)
{
    lock = argc > 1 ? argv[1] : "mutex";
    void *together = argc > 2 && strcmp(argv[2], "together") == 0 ? &start : NULL;
    pthread_mutexattr_t kind;
    pthread_t first;

    must(pthread_mutexattr_init(&kind));
    if (is("recursive"))
        must(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE));
    if (is("errorcheck"))
        must(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK));
    must(pthread_mutex_init(&mutex, &kind));
    must(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    must(pthread_barrier_init(&start, NULL, 2));
    must(pthread_create(&first, NULL, steps, together));
    if (!together)
        must(pthread_join(first, NULL));
    steps(together);
    if (together)
        must(pthread_join(first, NULL));
    printf("%ld\n", sum);
    return 0;
}
