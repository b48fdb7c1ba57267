/*
 * crowd.c - threads that all take one lock again and again, meet at a barrier, and go on: cycles lead through all of
 * them. The argument is their number.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long first, second, many[64];

__attribute__((noinline)) static void work(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&lock);
        first++;
        second += 2;
        many[i & 63] += first & 1;
        pthread_mutex_unlock(&lock);
    }
}

static void *body(void *unused)
{
    work(20);
    pthread_barrier_wait(&barrier);
    work(5);
    return unused;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 10;
    pthread_t *threads = calloc(count, sizeof *threads);
    pthread_attr_t small;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&barrier, NULL, count);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], &small, body, NULL) != 0) {
            fputs("no thread\n", stderr);
            return 1;
        }
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", first);
    return 0;
}
