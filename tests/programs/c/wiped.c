/*
 * wiped.c SIZE [fixed] - a total in a large block that one thread has to itself, until another one wipes the block.
 *
 * `add` reads the total and writes it back, as often before, and `wipe` gets in between: one instruction that writes all of
 * the block, SIZE bytes. With `fixed` it comes when `add` is done. Then `add` has another total to itself. No lock guards
 * the block. Turns are given through pipes, so that the order is the same in every run.
 */
#include "threads.h"
#include "two_turns.h"

#define NOINLINE __attribute__((noinline))

enum { ALONE = 1000 };

static long apart;

static NOINLINE void add(long *total, long amount, int waits)
{
    long before = *total;                              /* @add_read */

    if (waits)
        let_other();
    *total = before + amount;                          /* @add_write */
}

static NOINLINE void wipe(void *block, size_t size)
{
    __asm__ volatile("rep stosb"                       /* @wipe */
                     : "+D"(block), "+c"(size)
                     : "a"(0)
                     : "memory");
}

static void *other(void *block)
{
    size_t *size = block;
    size_t all = *size;

    await_turn(go_other);
    wipe(block, all);
    give_turn(go_on);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;

    size_t size = strtoul(argv[1], NULL, 10);
    int fixed = argc > 2;
    size_t *block = aligned_alloc(4096, size);

    make_turns();
    block[0] = size;
    block[size / 16] = 0;

    long *total = (long *)&block[size / 16];
    pthread_t thread = start(other, block);

    for (int i = 0; i < ALONE; i++)
        add(total, 1, 0);
    add(total, 100, !fixed);
    if (fixed)
        let_other();
    for (int i = 0; i < ALONE; i++)
        add(&apart, 1, 0);
    join(thread);
    printf("total %ld, apart %ld\n", *total, apart);
    return 0;
}
