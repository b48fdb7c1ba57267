/*
 * shared_data.c HOW - a balance that loses an update, at a place without a name of its own.
 *
 *     one thread: region `deposit`              another
 *
 *     read the balance, under the lock
 *                                               add 10, under the lock
 *     write the balance, under the lock
 *
 * `heap`: in a block that was allocated. `stack`: in a variable of `main`, shared by two threads that it starts. `own`:
 * in a variable of `main`, which makes the deposit itself.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

typedef struct {
    long id;
    long balance;
    pthread_mutex_t lock;
} account_t;

static turn_t others, depositors;

__attribute__((noinline)) static long get(account_t *account)
{
    pthread_mutex_lock(&account->lock);
    long balance = account->balance; /* @read */
    pthread_mutex_unlock(&account->lock);
    return balance;
}

__attribute__((noinline)) static void set(account_t *account, long balance)
{
    pthread_mutex_lock(&account->lock);
    account->balance = balance; /* @write */
    pthread_mutex_unlock(&account->lock);
}

__attribute__((noinline)) static void wait_for_other(void)
{
    give_turn(others);
    await_turn(depositors);
}

__attribute__((noinline)) static void deposit(account_t *account)
{
    AVTRACE_BEGIN("deposit");
    long balance = get(account);
    wait_for_other();
    set(account, balance + 1);
    AVTRACE_END("deposit");
}

static void *deposits(void *account)
{
    deposit(account);
    return NULL;
}

static void *interferes(void *account)
{
    /* It touches the balance before: only what is known to be shared is recorded of a stack. */
    long balance = get(account);
    give_turn(depositors);
    await_turn(others);
    set(account, balance + 10);
    give_turn(depositors);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    account_t local = {.lock = PTHREAD_MUTEX_INITIALIZER}, *account = &local;
    pthread_t other;

    make_turn(others);
    make_turn(depositors);
    if (strcmp(how, "heap") == 0) {
        account = malloc(sizeof *account); /* @allocate */
        *account = local;
    }
    other = start(interferes, account);
    await_turn(depositors);
    if (strcmp(how, "own") == 0) {
        deposit(account);
    } else {
        join(start(deposits, account));
    }
    join(other);
    printf("%ld\n", account->balance);
    return 0;
}
