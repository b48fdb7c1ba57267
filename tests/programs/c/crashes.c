/*
 * crashes.c - a transfer that is split by an audit, in a program that crashes right after it.
 *
 * What was found before is to be reported all the same.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static long *volatile nowhere;

static void *transfer(void *unused)
{
    AVTRACE_REGION("transfer");

    pthread_mutex_lock(&lock);
    long before = balance;
    pthread_mutex_unlock(&lock);
    give_turn(go_audit);
    await_turn(go_transfer);
    pthread_mutex_lock(&lock);
    balance = before - 100;
    *nowhere = balance;                        /* the crash */
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *audit(void *unused)
{
    AVTRACE_REGION("audit");

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
    return 0;
}
