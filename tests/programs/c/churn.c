/*
 * churn.c [ROUNDS] - blocks of memory that go from thread to thread, and are never shared at one time.
 *
 * Eight threads stand in a ring. Each makes a block, writes it, gives it to the next one through a pipe, takes the one
 * that comes, changes it in the region `use`, and frees it: allocators soon give the same memory out to another thread.
 * Each block is one thread's at any time, so nothing is wrong. Between, `scratch` allocates and frees blocks of its own.
 */
#include <stdint.h>

#include "handshake.h"
#include "threads.h"

#define THREADS 8
#define NOINLINE __attribute__((noinline))

static turn_t pipes[THREADS];
static int rounds = 100;

static NOINLINE long use(long *block)
{
    long sum = 0;

    for (int i = 0; i < 6; i++) {
        sum += block[i];
        block[i] = sum;
    }
    return sum;
}

static NOINLINE long scratch(long seed)
{
    long *block = malloc(48);

    for (int i = 0; i < 6; i++)
        block[i] = seed + i;
    seed = block[0] + block[5];
    block = realloc(block, 96);
    block[11] = seed;
    seed = block[11];
    free(block);
    return seed;
}

static void *run(void *number)
{
    int own = (int)(intptr_t)number;
    long sum = 0;

    for (int round = 0; round < rounds; round++) {
        long *block = malloc(48);

        for (int i = 0; i < 6; i++)
            block[i] = round + own;
        sum += scratch(round);
        if (write(pipes[(own + 1) % THREADS][1], &block, sizeof block) != sizeof block)
            exit(1);
        if (read(pipes[own][0], &block, sizeof block) != sizeof block)
            exit(1);
        sum += use(block);
        free(block);
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];

    if (argc > 1)
        rounds = atoi(argv[1]);
    for (int i = 0; i < THREADS; i++)
        make_turn(pipes[i]);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(run, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    puts("done");
    return 0;
}
