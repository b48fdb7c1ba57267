/*
 * spinlock.c lock|try|whole|busy|reborn - spinlocks.
 *
 * lock, try: `transfer` holds the lock twice, the second time by pthread_spin_lock or pthread_spin_trylock, and the
 * audit holds it in between: the transfer is not atomic.
 * whole: one section in the transfer; the audit spins until its end.
 * busy: the transfer holds the lock all along; the audit's try fails, and it takes a mutex that the transfer takes
 * afterwards.
 * reborn: as lock, but the lock is destroyed and initialised again between the sections. These are three locks, one
 * after the other, and nothing orders their sections.
 * Nothing is to be found in the last three.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_spinlock_t lock;
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static turn_t go_audit;
static turn_t go_transfer;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static void renew(void)
{
    pthread_spin_destroy(&lock);
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
}

static void transfer(void)
{
    AVTRACE_REGION("transfer");                /* @begin */

    pthread_spin_lock(&lock);
    long seen = balance;
    if (is("whole")) {
        give_turn(go_audit);
        balance = seen - 100;
        pthread_spin_unlock(&lock);
        return;
    }
    if (is("busy")) {
        give_turn(go_audit);
        await_turn(go_transfer);
        pthread_mutex_lock(&meeting);
        pthread_mutex_unlock(&meeting);
        pthread_spin_unlock(&lock);
        return;
    }
    pthread_spin_unlock(&lock);                /* @unlock */
    if (is("reborn"))
        renew();

    give_turn(go_audit);
    await_turn(go_transfer);

    if (is("try")) {
        if (pthread_spin_trylock(&lock) != 0)  /* @try */
            exit(1);
    } else {
        pthread_spin_lock(&lock);              /* @lock */
    }
    balance = seen - 100;
    pthread_spin_unlock(&lock);
}

static void audit(void)
{
    AVTRACE_REGION("audit");

    if (is("busy")) {
        if (pthread_spin_trylock(&lock) == 0)
            exit(1);
        pthread_mutex_lock(&meeting);
        pthread_mutex_unlock(&meeting);
        return;
    }
    pthread_spin_lock(&lock);                  /* @audit_lock */
    balance -= 5;
    pthread_spin_unlock(&lock);                /* @audit_unlock */
    if (is("reborn"))
        renew();
}

static void *first(void *unused)
{
    transfer();
    return unused;
}

static void *second(void *unused)
{
    await_turn(go_audit);
    audit();
    give_turn(go_transfer);
    return unused;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "lock";
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t teller = start(first, NULL), auditor = start(second, NULL);

    join(teller);
    join(auditor);
    printf("balance: %ld\n", balance);
    return 0;
}
