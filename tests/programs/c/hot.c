/*
 * hot.c - `refill` takes its lock once in 100,000 calls, and `deposit` each time: what the first costs by its probes is
 * for nothing. Alone it takes some milliseconds.
 */
#include <stdio.h>

#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance;

__attribute__((noinline)) static long get(void)
{
    pthread_mutex_lock(&lock);
    long now = balance;

    pthread_mutex_unlock(&lock);
    return now;
}

__attribute__((noinline)) static void set(long now)
{
    pthread_mutex_lock(&lock);
    balance = now;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void deposit(void)
{
    set(get() + 1);
}

__attribute__((noinline)) static void refill(long round)
{
    if (round % 100000 == 0)
        set(get() + 1);
}

static void *run(void *unused)
{
    for (long round = 0; round < 400000; round++) {
        refill(round);
        if (round % 40 == 0)
            deposit();
    }
    return unused;
}

int main(void)
{
    join(start(run, NULL));
    printf("%ld\n", balance);
    return 0;
}
