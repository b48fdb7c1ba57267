/*
 * Two threads, of which one gives the other its turn right before its last deposit: it is over before the other one
 * comes, whenever threads start. Only where it is held before that deposit does it get between the other one's steps.
 */
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long funds = 100;
static turn_t turn;

__attribute__((noinline)) static void deposit(long amount)
{
    pthread_mutex_lock(&lock);
    funds += amount;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void withdraw(long amount)
{
    long found;

    pthread_mutex_lock(&lock);
    found = funds; /* @read */
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
    funds = found - amount; /* @written */
    pthread_mutex_unlock(&lock);
}

static void *salary(void *unused)
{
    deposit(1);
    give_turn(turn);
    deposit(2);
    return unused;
}

static void *withdrawal(void *unused)
{
    await_turn(turn);
    withdraw(5);
    return unused;
}

int main(void)
{
    pthread_t first, other;

    make_turn(turn);
    first = start(salary, NULL);
    other = start(withdrawal, NULL);
    join(first);
    join(other);
    return 0;
}
