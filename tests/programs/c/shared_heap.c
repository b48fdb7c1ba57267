/*
 * shared_heap.c - names a variable on the heap as shared, whose address nobody knows before the program runs.
 *
 *     early: region `sell`           late: region `restock`
 *
 *     read
 *                                    write
 *     write
 *
 * The early thread starts before the variable is named, the late one after it is watched. The program sees that by
 * itself: an access to a watched variable traps, and takes a thousand times as long.
 */
#include <time.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

struct stock {
    long name;
    volatile long left;
};

static struct stock *stock;
static turn_t earlies, lates;

static void *early(void *unused)
{
    await_turn(earlies);
    AVTRACE_BEGIN("sell");

    long left = stock->left; /* @sell_read */

    give_turn(lates);
    await_turn(earlies);
    stock->left = left - 1; /* @sell_write */
    AVTRACE_END("sell");
    return unused;
}

static void *late(void *unused)
{
    await_turn(lates);
    AVTRACE_BEGIN("restock");
    stock->left = 20; /* @restock_write */
    AVTRACE_END("restock");
    give_turn(earlies);
    return unused;
}

static long nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Whether 100 accesses take longer than 100 that are not watched can, also when they are interrupted: the best of 10. */
static int is_watched(void)
{
    for (int round = 0; round < 10; round++) {
        long start = nanoseconds();

        for (int i = 0; i < 100; i++)
            (void)stock->left;
        if (nanoseconds() - start < 100 * 200)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    (void)argv;
    make_turn(earlies);
    make_turn(lates);

    pthread_t first = start(early, NULL);

    stock = malloc(sizeof *stock);
    stock->left = 10;
    AVTRACE_SHARED(stock->left);
    while (argc > 1 && !is_watched())
        ;

    pthread_t second = start(late, NULL);

    give_turn(earlies);
    join(first);
    join(second);
    printf("left: %ld\n", stock->left);
    return 0;
}
