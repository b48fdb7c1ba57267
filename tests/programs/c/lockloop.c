/*
 * lockloop.c THREADS PAIRS [bare] - many lock operations, for volume and for overhead.
 *
 * Each of THREADS threads locks and unlocks one mutex PAIRS times, each pair in a region of its own, or in
 * none with `bare`. One locked section per region is atomic however the threads interleave, so there is
 * nothing to find. Prints nothing; exits with 1 if an increment was lost.
 */
#include <string.h>

#include "avtrace.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static long pairs;

static void *in_regions(void *unused)
{
    for (long pair = 0; pair < pairs; pair++) {
        AVTRACE_BEGIN("step");
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
        AVTRACE_END("step");
    }
    return unused;
}

static void *bare(void *unused)
{
    for (long pair = 0; pair < pairs; pair++) {
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: lockloop THREADS PAIRS [bare]\n", stderr);
        return 2;
    }
    long number = atol(argv[1]);
    void *(*body)(void *) = argc > 3 && strcmp(argv[3], "bare") == 0 ? bare : in_regions;
    pthread_t *threads = calloc((size_t)number, sizeof *threads);

    if (threads == NULL) {
        perror("lockloop");
        return 1;
    }
    pairs = atol(argv[2]);
    for (long i = 0; i < number; i++)
        threads[i] = start(body, NULL);
    for (long i = 0; i < number; i++)
        join(threads[i]);
    free(threads);
    return count == number * pairs ? 0 : 1;
}
