/*
 * bank_fixed.c - bank.c with one locked section in `transfer`, which is now atomic.
 *
 *     cc -g -O2 -I markers/include tests/programs/c/bank_fixed.c -o bank_fixed -pthread
 *     sudo avtrace ./bank_fixed
 *
 * The transfer invites the audit in at the same place as before, between its read and its write, but holds
 * the lock all along. The audit can only wait until the transfer is over:
 *
 *     thread 1: transfer                         thread 2: audit
 *
 *     lock, read 1000
 *                              -- go_audit -->
 *                                                lock (has to wait)
 *     write 900, unlock
 *                                                read 900, write 895, unlock
 *
 * The transfer does not wait for the audit here: the two would wait for each other forever.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "avtrace.h"

#define AUDIT_FEE 5

struct account {
    pthread_mutex_t lock;
    long balance; /* guarded by lock */
};

static struct account account = {PTHREAD_MUTEX_INITIALIZER, 1000};

/* A pipe: [0] is read from, [1] is written to. */
static int go_audit[2];

static void give_turn(const int turn[2])
{
    if (write(turn[1], "!", 1) != 1) {
        perror("bank_fixed: write to a pipe");
        exit(1);
    }
}

static void await_turn(const int turn[2])
{
    char byte;

    if (read(turn[0], &byte, 1) != 1) {
        perror("bank_fixed: read from a pipe");
        exit(1);
    }
}

/* Takes `amount` out of the account. Meant to be atomic, and is. */
static void transfer(long amount)
{
    AVTRACE_REGION("transfer");                /* @transfer_begin */

    pthread_mutex_lock(&account.lock);         /* @transfer_lock */
    long balance = account.balance;            /* @transfer_read */

    give_turn(go_audit);                       /* The audit may start, but the lock is taken. */

    account.balance = balance - amount;        /* @transfer_write */
    pthread_mutex_unlock(&account.lock);       /* @transfer_unlock */
}                                              /* @transfer_end */

/* Looks at the account and charges the fee for it. */
static void audit(void)
{
    AVTRACE_REGION("audit");                   /* @audit_begin */

    pthread_mutex_lock(&account.lock);         /* @audit_lock */
    long balance = account.balance;            /* @audit_read */
    account.balance = balance - AUDIT_FEE;     /* @audit_write */
    pthread_mutex_unlock(&account.lock);       /* @audit_unlock */
}                                              /* @audit_end */

static void *run_transfer(void *unused)
{
    transfer(100);
    return unused;
}

static void *run_audit(void *unused)
{
    await_turn(go_audit);
    audit();
    return unused;
}

int main(void)
{
    pthread_t teller, auditor;

    if (pipe(go_audit) != 0) {
        perror("bank_fixed: pipe");
        return 1;
    }
    if (pthread_create(&teller, NULL, run_transfer, NULL) != 0
        || pthread_create(&auditor, NULL, run_audit, NULL) != 0) {
        fputs("bank_fixed: cannot create a thread\n", stderr);
        return 1;
    }
    pthread_join(teller, NULL);
    pthread_join(auditor, NULL);

    printf("balance: %ld\n", account.balance); /* 895 = 1000 - 100 - 5 */
    return 0;
}
