/*
 * prototype.c - a region whose prototype has several lines, and which releases a lock of its own as well.
 *
 * The audit gets in between two sections of the transfer under `account_lock`. It never holds `stats_lock`, which the
 * transfer releases and takes again too. The program exits with status 3.
 */
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t account_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by account_lock */
static long transfers;      /* guarded by stats_lock */
static turn_t go_audit;
static turn_t go_transfer;

__attribute__((noinline)) static void
transfer(                                      /* @transfer */
    long amount,
    long fee
)
{
    pthread_mutex_lock(&account_lock);
    long before = balance;
    pthread_mutex_unlock(&account_lock);
    pthread_mutex_lock(&stats_lock);
    transfers++;
    pthread_mutex_unlock(&stats_lock);
    give_turn(go_audit);
    await_turn(go_transfer);
    pthread_mutex_lock(&stats_lock);
    transfers++;
    pthread_mutex_unlock(&stats_lock);
    pthread_mutex_lock(&account_lock);
    balance = before - amount - fee;
    pthread_mutex_unlock(&account_lock);
}

__attribute__((noinline)) static void audit(long fee) /* @audit */
{
    pthread_mutex_lock(&account_lock);
    balance -= fee;
    pthread_mutex_unlock(&account_lock);
}

static void *transferring(void *unused)
{
    transfer(100, 1);
    return unused;
}

static void *auditing(void *unused)
{
    await_turn(go_audit);
    audit(5);
    give_turn(go_transfer);
    return unused;
}

int main(void)
{
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t first = start(transferring, NULL), second = start(auditing, NULL);

    join(first);
    join(second);
    return 3;
}
