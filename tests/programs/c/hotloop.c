/*
 * hotloop.c [ROUNDS] - a region that changes one variable many millions of times a second.
 *
 * To see each access would take hundreds of times as long: recording has to stop, and the report to say so.
 */
#include "handshake.h"
#include "threads.h"

static volatile long counter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void spin(long rounds)
{
    pthread_mutex_lock(&lock);
    for (long i = 0; i < rounds; i++)
        counter += i;
    pthread_mutex_unlock(&lock);
}

static void *run(void *rounds)
{
    for (int i = 0; i < 100; i++)
        spin(*(long *)rounds / 100);
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 200000000;

    join(start(run, &rounds));
    printf("%ld\n", counter);
    return 0;
}
