/*
 * clone.c [whole] - bank.c, with an auditor that is a thread of the bare system call, not of the C library.
 *
 * With `whole` the transfer is one locked section. Nothing is to be found then.
 *
 * The C library does not know of the auditor, and releases a mutex without a call for whoever sleeps on it while it
 * knows of one thread alone. So the two never wait for the mutex, but for turns.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#define STACK (1 << 16)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static int whole;

static void transfer(void)
{
    AVTRACE_REGION("transfer");        /* @begin */

    pthread_mutex_lock(&lock);
    long seen = balance;
    if (whole) {
        balance = seen - 100;
        pthread_mutex_unlock(&lock);
        give_turn(go_audit);
        return;
    }
    pthread_mutex_unlock(&lock);       /* @unlock */

    give_turn(go_audit);
    await_turn(go_transfer);

    pthread_mutex_lock(&lock);         /* @relock */
    balance = seen - 100;
    pthread_mutex_unlock(&lock);
}

static int audit(void *unused)
{
    (void)unused;
    await_turn(go_audit);
    {
        AVTRACE_REGION("audit");

        pthread_mutex_lock(&lock);     /* @audit_lock */
        balance -= 5;
        pthread_mutex_unlock(&lock);   /* @audit_unlock */
    }
    give_turn(go_transfer);
    /* The end of this thread alone. */
    syscall(SYS_exit, 0);
    return 0;
}

int main(int argc, char **argv)
{
    static char stack[STACK];

    (void)argv;
    whole = argc > 1;
    make_turn(go_audit);
    make_turn(go_transfer);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    if (clone(audit, stack + STACK, flags, NULL) < 0) {
        perror("clone");
        return 1;
    }
    transfer();
    if (whole)
        await_turn(go_transfer);
    printf("balance: %ld\n", balance);
    return 0;
}
