/*
 * bank.c - a transfer that is not atomic although every access to the account is locked; with -DFIXED one that is.
 *
 * `transfer` reads the balance under the lock and writes the new one under the lock, and releases the lock between
 * the two. `audit` charges its fee in between, and the fee is lost. No race detector objects, and a test passes that
 * looks for the amount of the transfer only.
 *
 * So that each run shows the same interleaving, the threads take turns through pipes: `transfer` lets `audit` in where
 * it may come in, once in a million runs otherwise. The programs of your team need nothing of that kind.
 */
#include "bank.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define AUDIT_FEE 5

struct account {
    pthread_mutex_t lock;
    long balance; /* guarded by lock */
};

static struct account account = {PTHREAD_MUTEX_INITIALIZER, 0};

/* A pipe for each direction: [0] is read from, [1] is written to. */
static int to_audit[2], to_transfer[2];

static void give_turn(const int turn[2])
{
    if (write(turn[1], "!", 1) != 1)
        abort();
}

static void await_turn(const int turn[2])
{
    char byte;

    if (read(turn[0], &byte, 1) != 1)
        abort();
}

static void transfer(long amount)
{
    pthread_mutex_lock(&account.lock);
    long balance = account.balance;            /* @read */
#ifdef FIXED
    give_turn(to_audit);                       /* The audit has to wait for the lock. */
#else
    pthread_mutex_unlock(&account.lock);       /* @unlock */
    give_turn(to_audit);
    await_turn(to_transfer);
    pthread_mutex_lock(&account.lock);
#endif
    account.balance = balance - amount;        /* @write */
    pthread_mutex_unlock(&account.lock);
}

static void audit(void)
{
    pthread_mutex_lock(&account.lock);
    account.balance -= AUDIT_FEE;              /* @fee */
    pthread_mutex_unlock(&account.lock);
}

static void *run_transfer(void *unused)
{
    transfer(100);
    return unused;
}

static void *run_audit(void *unused)
{
    await_turn(to_audit);
    audit();
    give_turn(to_transfer);
    return unused;
}

long transfer_during_audit(void)
{
    pthread_t teller, auditor;

    account.balance = 1000;
    if (pipe(to_audit) != 0 || pipe(to_transfer) != 0)
        abort();
    if (pthread_create(&teller, NULL, run_transfer, NULL) != 0
        || pthread_create(&auditor, NULL, run_audit, NULL) != 0)
        abort();
    pthread_join(teller, NULL);
    pthread_join(auditor, NULL);
    for (int end = 0; end < 2; end++) {
        close(to_audit[end]);
        close(to_transfer[end]);
    }
    return account.balance; /* 895, or 900 where the fee is lost */
}
