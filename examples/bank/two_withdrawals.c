/*
 * two_withdrawals.c - a small test for `avtrace explore`, which tries all interleavings: nothing is forced here.
 *
 * Two threads take 70 out of an account of 100. `withdraw` looks whether there is enough under the lock, and pays under
 * the lock, and releases the lock between the two; with -DFIXED it does both at once.
 */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 100;
static int paid[2];

__attribute__((noinline)) static int withdraw(long amount)
{
    pthread_mutex_lock(&lock);
    int is_enough = balance >= amount;
#ifndef FIXED
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
#endif
    if (is_enough)
        balance -= amount;
    pthread_mutex_unlock(&lock);
    return is_enough;
}

static void *run(void *result)
{
    *(int *)result = withdraw(70);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run, &paid[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("paid: %d %d, balance: %ld\n", paid[0], paid[1], balance);
    return 0;
}
