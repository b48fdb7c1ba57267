/*
 * Two threads without a lock, of which the first one is over long before the other one comes: only where it starts late
 * does it get between the other one's two steps.
 */
#include <pthread.h>
#include <unistd.h>

#define REST_US 2000

struct account {
    long funds;
    long fees;
};

static struct account account = {100, 0};

__attribute__((noinline)) static long fee(long amount)
{
    return amount / 10 + 1;
}

__attribute__((noinline)) static void pay(struct account *from, long amount)
{
    long funds = from->funds;

    if (funds > fee(amount))
        from->funds = funds - amount;
}

static void *salary(void *unused)
{
    account.funds = fee(0);
    account.funds = fee(account.fees) + 100;
    return unused;
}

static void *withdrawal(void *unused)
{
    pay(&account, 5);
    return unused;
}

int main(void)
{
    pthread_t first, other;

    pthread_create(&first, NULL, salary, NULL);
    usleep(REST_US);
    pthread_create(&other, NULL, withdrawal, NULL);
    pthread_join(first, NULL);
    pthread_join(other, NULL);
    return 0;
}
