/*
 * dies.c HOW - a check that fails in the middle of a region, since another thread has changed what it is about.
 *
 *     region `deposit`                          another thread
 *
 *     read the balance
 *                                               add 10
 *     abort
 *
 * `abort`, `exit` or `fine`, which leaves the region as usual.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static volatile long balance;
static turn_t others, depositors;

static void *interferes(void *unused)
{
    (void)unused;
    await_turn(others);
    balance += 10; /* @write */
    give_turn(depositors);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    pthread_t other;

    make_turn(others);
    make_turn(depositors);
    other = start(interferes, NULL);
    AVTRACE_BEGIN("deposit");
    long before = balance; /* @read */
    give_turn(others);
    await_turn(depositors);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "exit") == 0)
        exit(3);
    AVTRACE_END("deposit");
    join(other);
    return before != 0;
}
