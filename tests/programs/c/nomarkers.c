/*
 * nomarkers.c - threads and locks, and no region to check.
 *
 * It does what bank.c does, without saying what is meant to be atomic. There is nothing to find, and the
 * report has to say why.
 */
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;

static void *transfer(void *unused)
{
    pthread_mutex_lock(&lock);
    long before = balance;
    pthread_mutex_unlock(&lock);

    give_turn(go_audit);
    await_turn(go_transfer);

    pthread_mutex_lock(&lock);
    balance = before - 100;
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *audit(void *unused)
{
    await_turn(go_audit);
    pthread_mutex_lock(&lock);
    balance -= 5;
    pthread_mutex_unlock(&lock);
    give_turn(go_transfer);
    return unused;
}

int main(void)
{
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t first = start(transfer, NULL), second = start(audit, NULL);

    join(first);
    join(second);
    printf("balance: %ld\n", balance);
    return 0;
}
