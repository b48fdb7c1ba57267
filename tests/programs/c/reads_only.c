/*
 * reads_only.c HOW - looks at a variable from two threads, in ways that look like writes.
 *
 *     main: region `look`            other: region `glance`
 *
 *     access x
 *                                    access x
 *     access x
 *
 * repeat   each access is a load right before a repeated store to somewhere else
 * fail     each access is a compare-and-exchange that fails
 * succeed  the other thread's compare-and-exchange succeeds: that is a write, and `look` is not atomic
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static long x = 5;
static char elsewhere[64];
static turn_t others, mine;
static const char *how;

/* A load, and then at once `rep stosb`: where the processor stops after the load, the store comes next. */
static __attribute__((__noinline__)) long load_before_repeat(const long *from)
{
    long value;
    char *to = elsewhere;
    long count = sizeof elsewhere;

    __asm__ volatile("mov (%[from]), %[value]\n\trep stosb"
                     : [value] "=a"(value), "+D"(to), "+c"(count)
                     : [from] "r"(from)
                     : "memory");
    return value;
}

static void access_x(int is_other)
{
    long expected = -1;

    if (strcmp(how, "repeat") == 0) {
        load_before_repeat(&x);
        return;
    }
    if (is_other && strcmp(how, "succeed") == 0)
        expected = 5;
    __atomic_compare_exchange_n(&x, &expected, 7, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void *other(void *unused)
{
    await_turn(others);
    AVTRACE_BEGIN("glance");
    access_x(1);
    AVTRACE_END("glance");
    give_turn(mine);
    return unused;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "repeat";
    make_turn(others);
    make_turn(mine);

    pthread_t thread = start(other, NULL);

    AVTRACE_BEGIN("look");
    access_x(0);
    give_turn(others);
    await_turn(mine);
    access_x(0);
    AVTRACE_END("look");
    join(thread);
    printf("x: %ld\n", x);
    return 0;
}
