/*
 * callbacks.c KIND [fixed] - a pointer to a function that is replaced between two calls through it.
 *
 * KIND is how the calls are made, in optimised code:
 *
 *     call    the region's instruction reads the pointer and calls
 *     tail    a function that the region calls reads the pointer and jumps
 *     field   as tail, through a pointer to the structure that has the pointer
 *     stub    as tail, by a function that jumps to that one
 *
 * With `fixed` the other thread comes when the region is done. Turns are given through pipes, so that the order is the same
 * in every run.
 */
#include <string.h>

#include "threads.h"
#include "two_turns.h"

#define NOINLINE __attribute__((noinline, noclone))

struct hooks {
    long unused;
    long (*act)(long);
};

static NOINLINE long twice(long number)
{
    __asm__ volatile("");
    return 2 * number;
}

static NOINLINE long thrice(long number)
{
    __asm__ volatile("");
    return 3 * number;
}

static struct hooks hooks = { 0, twice };
static struct hooks *volatile held = &hooks;

static NOINLINE long by_tail(long number)
{
    return hooks.act(number);                          /* @tail */
}

static NOINLINE long by_field(struct hooks *all, long number)
{
    return all->act(number);                           /* @field */
}

/* A function that ends with a jump, and has another part before. */
static NOINLINE long by_stub(long number)
{
    if (number > 1000000) {
        __asm__ volatile("ud2");
        return 0;
    }
    return by_tail(number + 1);
}

static NOINLINE long act_twice(int kind, int waits)
{
    long sum = 1;

    for (int round = 0; round < 2; round++) {
        if (round == 1)
            if (waits)
                let_other();
        if (kind == 'c')
            sum += hooks.act(sum);                     /* @call */
        else if (kind == 't')
            sum += by_tail(sum);
        else if (kind == 'f')
            sum += by_field(held, sum);
        else
            sum += by_stub(sum);
    }
    return sum;
}

static void *other(void *unused)
{
    await_turn(go_other);
    hooks.act = thrice;                                /* @replace */
    give_turn(go_on);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;

    int fixed = argc > 2;

    make_turns();

    pthread_t thread = start(other, NULL);

    printf("sum %ld\n", act_twice(argv[1][0], !fixed));
    if (fixed)
        let_other();
    join(thread);
    return 0;
}
