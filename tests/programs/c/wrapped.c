/*
 * wrapped.c - locks behind wrappers of the program's own, as portable code has them.
 *
 * `deposit` reads the balance under the lock and writes it under the lock, and releases the lock between the two, by its
 * wrappers. The other thread's deposit comes in between, and is lost.
 */
#include "handshake.h"
#include "threads.h"

struct mutex {
    pthread_mutex_t native;
};

static struct mutex account_lock = {PTHREAD_MUTEX_INITIALIZER};
static long balance = 1000; /* guarded by account_lock */
static turn_t go_second, go_first;

static __attribute__((noinline)) void mutex_lock(struct mutex *mutex)
{
    pthread_mutex_lock(&mutex->native);
    __asm__ volatile("");
}

static __attribute__((noinline)) void mutex_unlock(struct mutex *mutex)
{
    pthread_mutex_unlock(&mutex->native);
    __asm__ volatile("");
}

static __attribute__((noinline)) void deposit(long amount, int is_split)
{
    mutex_lock(&account_lock);
    long seen = balance;                  /* @read */
    mutex_unlock(&account_lock);          /* @unlock */

    if (is_split) {
        give_turn(go_second);
        await_turn(go_first);
    }
    mutex_lock(&account_lock);            /* @relock */
    balance = seen + amount;              /* @write */
    mutex_unlock(&account_lock);
}

static void *first(void *unused)
{
    for (int i = 0; i < 10; i++)
        deposit(1, 0);
    deposit(100, 1);                      /* @caller */
    return unused;
}

static void *second(void *unused)
{
    await_turn(go_second);
    deposit(5, 0);
    give_turn(go_first);
    return unused;
}

int main(void)
{
    make_turn(go_second);
    make_turn(go_first);

    pthread_t threads[] = {start(first, NULL), start(second, NULL)};

    join(threads[0]);
    join(threads[1]);
    printf("balance: %ld\n", balance);
    return 0;
}
