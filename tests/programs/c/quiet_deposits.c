/* Two threads that deposit into one account, one after the other: nothing comes in between, and could. */
#include <pthread.h>
#include <stdio.h>

struct account {
    pthread_mutex_t lock;
    long balance;
};

static struct account account = {PTHREAD_MUTEX_INITIALIZER, 100};
static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static long get(struct account *from)
{
    pthread_mutex_lock(&from->lock);
    long balance = from->balance;
    pthread_mutex_unlock(&from->lock); /* @left */
    return balance;
}

__attribute__((noinline)) static void set(struct account *to, long balance)
{
    pthread_mutex_lock(&to->lock); /* @returned */
    to->balance = balance;
    pthread_mutex_unlock(&to->lock);
}

__attribute__((noinline)) static void deposit(struct account *to, long amount)
{
    long balance = get(to);
    set(to, balance + amount);
}

__attribute__((noinline)) static void private_twice(void)
{
    pthread_mutex_lock(&own);
    pthread_mutex_unlock(&own);
    pthread_mutex_lock(&own);
    pthread_mutex_unlock(&own);
}

static pthread_barrier_t both;

static void *first(void *unused)
{
    for (int i = 0; i < 10; i++)
        deposit(&account, 1);
    pthread_barrier_wait(&both);
    return unused;
}

static void *second(void *unused)
{
    pthread_barrier_wait(&both);
    deposit(&account, 5);
    return unused;
}

int main(void)
{
    pthread_t threads[2];

    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, first, NULL);
    pthread_create(&threads[1], NULL, second, NULL);
    private_twice();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", account.balance);
    return 0;
}
