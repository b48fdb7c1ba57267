/*
 * tally.c ROUNDS [child] - two threads count in one table in turn, so often that not all of it can be seen; after that
 * `transfer` loses an update by `audit`.
 *
 * child    a child does all this, once its parent has ended
 */
#include <stdlib.h>
#include <unistd.h>

#include "threads.h"
#include "two_turns.h"

#define ENTRIES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long table[ENTRIES];
static volatile long balance = 1000; /* guarded by lock */
static pthread_barrier_t both;
static long rounds;

static __attribute__((noinline)) void tally(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ENTRIES; i++)
        table[i] = table[i] + i;
    pthread_mutex_unlock(&lock);
}

static __attribute__((noinline)) void transfer(long amount)
{
    pthread_mutex_lock(&lock);
    long before = balance;
    pthread_mutex_unlock(&lock);
    let_other();
    pthread_mutex_lock(&lock);
    balance = before - amount;
    pthread_mutex_unlock(&lock);
}

static __attribute__((noinline)) void audit(void)
{
    await_turn(go_other);
    pthread_mutex_lock(&lock);
    balance = balance - 5;
    pthread_mutex_unlock(&lock);
    give_turn(go_on);
}

static void work(void)
{
    for (long i = 0; i < rounds; i++)
        tally();
    pthread_barrier_wait(&both);
}

static void *first(void *unused)
{
    work();
    transfer(100);
    return unused;
}

static void *second(void *unused)
{
    work();
    audit();
    return unused;
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    if (argc > 2) {
        pid_t parent = getpid();
        if (fork() != 0)
            return 0;
        while (getppid() == parent)
            usleep(1000);
    }
    make_turns();
    pthread_barrier_init(&both, NULL, 2);

    pthread_t one = start(first, NULL), other = start(second, NULL);

    join(one);
    join(other);
    printf("%ld %ld\n", balance, table[1]);
    return 0;
}
