/*
 * own_blocks.c - threads that allocate, write and free blocks of their own in a region.
 *
 * The allocator gives the same memory to one thread after the other, also while a region is under way. No block is
 * shared, so nothing is wrong; what the allocator locks and writes for itself is not the program's.
 */
#include <sched.h>

#include "threads.h"

enum { THREADS = 4, ROUNDS = 100 };

static __attribute__((noinline)) void fill(long *block, long value)
{
    for (int i = 0; i < 6; i++)
        block[i] = value + i;
}

__attribute__((noinline)) long use_blocks(long seed)
{
    long sum = 0;

    for (int i = 0; i < 4; i++) {
        long *block = i == 2 ? calloc(6, sizeof *block) : malloc(6 * sizeof *block);

        fill(block, seed);
        sum += block[i];
        if (i == 1) {
            block = realloc(block, 400);
            block[40] = seed;
        }
        free(block);
        sched_yield();
    }
    return sum;
}

static void *run(void *unused)
{
    (void)unused;
    long sum = 0;

    for (int i = 0; i < ROUNDS; i++)
        sum += use_blocks(i);
    return (void *)sum;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        threads[i] = start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    puts("done");
    return 0;
}
