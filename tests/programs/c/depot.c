/*
 * depot.c library|stubs|program - a program and its own library, stock.c; the addition of the other thread is lost.
 *
 *     run_teller                                    run_other
 *
 *     library: stock_move reads in the library
 *     stubs: stock_take calls stock_get in the library
 *     program: deposit calls stock_get
 *                                                   stock_add adds 5
 *     library: stock_move writes there
 *     stubs: stock_take calls stock_set in the library
 *     program: deposit calls stock_set
 */
#ifdef VENDORED
#include "stock.c"
#line 16 "depot.c"
#endif
#include "stock.h"

#include <string.h>

#include "handshake.h"
#include "threads.h"

static turn_t go_other;
static turn_t go_teller;
static const char *where;
static volatile int deposits;

static void between(void)
{
    give_turn(go_other);
    await_turn(go_teller);
}

static __attribute__((noinline)) void deposit(long amount)
{
    long before = stock_get();
    between();
    stock_set(before + amount);
    deposits = deposits + 1;
}

static void *run_teller(void *unused)
{
    (void)unused;
    if (strcmp(where, "library") == 0)
        stock_move(100, between);
    else if (strcmp(where, "stubs") == 0)
        stock_take(100, between);
    else
        deposit(100);
    return NULL;
}

static void *run_other(void *unused)
{
    (void)unused;
    await_turn(go_other);
    stock_add(5);
    give_turn(go_teller);
    return NULL;
}

int main(int argc, char **argv)
{
    where = argc > 1 ? argv[1] : "program";
    make_turn(go_other);
    make_turn(go_teller);

    pthread_t teller = start(run_teller, NULL);
    pthread_t other = start(run_other, NULL);

    join(teller);
    join(other);
    printf("stock: %ld\n", stock_get());
    return 0;
}
