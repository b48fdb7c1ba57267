/*
 * many_threads.c [THREADS [wait]] - more threads than a table of fixed size would hold, a few at a time.
 *
 * THREADS threads (200 by default) come and go in waves of 20. Each adds 1 under the lock, in a region.
 * There is nothing to find. The threads of later waves have identities (stacks, pthread_t) of earlier ones. With `wait`
 * it prints "ready", and begins when it has read a line.
 */
#include "avtrace.h"
#include "threads.h"

#define WAVE 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */

static void *add_one(void *unused)
{
    AVTRACE_REGION("add_one");

    pthread_mutex_lock(&lock);
    count++;
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(int argc, char **argv)
{
    long number = argc > 1 ? atol(argv[1]) : 200;
    pthread_t wave[WAVE];

    if (argc > 2) {
        printf("ready\n");
        fflush(stdout);
        if (getchar() != '\n')
            return 1;
    }
    while (number > 0) {
        int size = number < WAVE ? (int)number : WAVE;

        for (int i = 0; i < size; i++)
            wave[i] = start(add_one, NULL);
        for (int i = 0; i < size; i++)
            join(wave[i]);
        number -= size;
    }
    printf("count: %ld\n", count);
    return 0;
}
