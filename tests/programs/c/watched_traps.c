/*
 * watched_traps.c [raise | block | ignore] - a variable that is watched, and SIGTRAPs that have nothing to do with it.
 *
 * Prints the sum of what two threads have added. With `raise` it sends itself SIGTRAP afterwards, of which it dies; with
 * `block` the threads block all signals; with `ignore` it is to be started with SIGTRAP ignored, and survives one.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long sum; /* guarded by lock */
static int blocks;

static void *add(void *unused)
{
    sigset_t all;

    if (blocks) {
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&lock);
        sum += 1;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";

    blocks = strcmp(how, "block") == 0;

    pthread_t first = start(add, NULL);
    pthread_t second = start(add, NULL);

    join(first);
    join(second);
    printf("sum: %ld\n", sum);
    fflush(stdout);
    if (strcmp(how, "raise") == 0 || strcmp(how, "ignore") == 0)
        raise(SIGTRAP);
    return 0;
}
