/*
 * shared_marker.c - AVTRACE_SHARED asks for a variable to be watched, with no option given.
 *
 * Nobody locks `stock.left`, so its own accesses are all there is to find:
 *
 *     thread 1: sell                             thread 2: restock
 *
 *     read 10
 *                           -- go_restock -->
 *                                                write 60
 *                             <-- go_sell --
 *     write 9                                    (the 50 new ones are gone)
 */
#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static struct {
    int shelf;
    long left;
} stock = {3, 10};

static turn_t go_restock;
static turn_t go_sell;

static void *sell(void *unused)
{
    AVTRACE_REGION("sell");                    /* @sell_begin */

    long left = stock.left;                    /* @sell_read */

    give_turn(go_restock);
    await_turn(go_sell);

    stock.left = left - 1;                     /* @sell_write */
    return unused;
}

static void *restock(void *unused)
{
    await_turn(go_restock);
    {
        AVTRACE_REGION("restock");             /* @restock_begin */

        stock.left = 60;                       /* @restock_write */
    }
    give_turn(go_sell);
    return unused;
}

int main(void)
{
    AVTRACE_SHARED(stock.left);
    make_turn(go_restock);
    make_turn(go_sell);

    pthread_t first = start(sell, NULL), second = start(restock, NULL);

    join(first);
    join(second);
    printf("left: %ld\n", stock.left);
    return 0;
}
