/*
 * structs.c whole [fixed] - bank.c, with a ledger that is copied as a whole: compilers do that by a repeated instruction.
 *
 * Before, a clerk has the ledger to itself and changes many of its entries. With `fixed` the transfer is one locked
 * section, and nothing is to be found.
 */
#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#define ENTRIES 40

typedef struct {
    long entries[ENTRIES];
} ledger_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ledger_t ledger; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static int fixed;

__attribute__((noinline)) static void enter(int number)
{
    AVTRACE_BEGIN("enter");
    pthread_mutex_lock(&lock);
    ledger.entries[number % ENTRIES] += number;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("enter");
}

static void *clerk(void *unused)
{
    for (int number = 0; number < 5 * ENTRIES; number++)
        enter(number);
    return unused;
}

__attribute__((noinline)) static void transfer(void)
{
    ledger_t seen;

    AVTRACE_BEGIN("transfer");
    pthread_mutex_lock(&lock);
    seen = ledger;
    if (!fixed) {
        pthread_mutex_unlock(&lock);
        give_turn(go_audit);
        await_turn(go_transfer);
        pthread_mutex_lock(&lock);
    }
    seen.entries[0] -= 100;
    ledger = seen; /* @transfer_write */
    pthread_mutex_unlock(&lock);
    AVTRACE_END("transfer");
    if (fixed)
        give_turn(go_audit);
}

static void *audit(void *unused)
{
    await_turn(go_audit);
    AVTRACE_BEGIN("audit");
    pthread_mutex_lock(&lock);
    ledger_t seen = ledger; /* @audit_read */
    seen.entries[0] -= 5;   /* @audit_change */
    ledger = seen;          /* @audit_write */
    pthread_mutex_unlock(&lock);
    AVTRACE_END("audit");
    give_turn(go_transfer);
    return unused;
}

int main(int argc, char **argv)
{
    (void)argv;
    fixed = argc > 2;
    make_turn(go_audit);
    make_turn(go_transfer);
    join(start(clerk, NULL));
    pthread_t auditor = start(audit, NULL);
    transfer();
    join(auditor);
    printf("entry: %ld\n", ledger.entries[0]);
    return 0;
}
