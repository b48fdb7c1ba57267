/*
 * bank.c - a transfer that is not atomic, although every access to the account is locked.
 *
 * Build and trace it:
 *
 *     cc -g -O2 -I markers/include tests/programs/c/bank.c -o bank -pthread
 *     sudo avtrace ./bank
 *
 * `transfer` reads the balance under the lock, lets the lock go, takes it again and writes the new balance.
 * There is no data race: every access holds `account.lock`. But between the two locked sections `audit`
 * charges its fee, and the transfer then writes a balance that knows nothing of it. The fee is lost.
 *
 * The interleaving, the same in every run:
 *
 *     thread 1: transfer                         thread 2: audit
 *
 *     lock, read 1000, unlock
 *                              -- go_audit -->
 *                                                lock, read 1000, write 995, unlock
 *                            <-- go_transfer --
 *     lock, write 900, unlock                    (the fee of 5 is gone)
 *
 * The two threads take turns through pipes, one byte per turn. A pipe is nothing that avtrace records, so it
 * forces the order and leaves no trace of its own. A semaphore would be a synchronisation like the mutex,
 * and would order the two threads in the eyes of avtrace as well.
 *
 * bank_fixed.c is the same program with one locked section in `transfer`.
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

/* Two pipes, one for each direction: [0] is read from, [1] is written to. */
static int go_audit[2];
static int go_transfer[2];

static void give_turn(const int turn[2])
{
    if (write(turn[1], "!", 1) != 1) {
        perror("bank: write to a pipe");
        exit(1);
    }
}

static void await_turn(const int turn[2])
{
    char byte;

    if (read(turn[0], &byte, 1) != 1) {
        perror("bank: read from a pipe");
        exit(1);
    }
}

/* Takes `amount` out of the account. Meant to be atomic, and says so by a region. */
static void transfer(long amount)
{
    AVTRACE_REGION("transfer");                /* @transfer_begin */

    pthread_mutex_lock(&account.lock);         /* @transfer_lock */
    long balance = account.balance;            /* @transfer_read */
    pthread_mutex_unlock(&account.lock);       /* @transfer_unlock */

    give_turn(go_audit);                       /* The lock is free, and the audit uses it. */
    await_turn(go_transfer);

    pthread_mutex_lock(&account.lock);         /* @transfer_relock */
    account.balance = balance - amount;        /* @transfer_write: `balance` is out of date by now. */
    pthread_mutex_unlock(&account.lock);       /* @transfer_reunlock */
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
    give_turn(go_transfer);
    return unused;
}

int main(void)
{
    pthread_t teller, auditor;

    if (pipe(go_audit) != 0 || pipe(go_transfer) != 0) {
        perror("bank: pipe");
        return 1;
    }
    if (pthread_create(&teller, NULL, run_transfer, NULL) != 0
        || pthread_create(&auditor, NULL, run_audit, NULL) != 0) {
        fputs("bank: cannot create a thread\n", stderr);
        return 1;
    }
    pthread_join(teller, NULL);
    pthread_join(auditor, NULL);

    printf("balance: %ld\n", account.balance); /* 900; it should be 1000 - 100 - 5 = 895 */
    return 0;
}
