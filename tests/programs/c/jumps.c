/*
 * jumps.c [returns] - a region is left by longjmp.
 *
 *     main: region `left`                        other
 *
 *     lock, unlock, longjmp out
 *                                                lock, unlock
 *     lock, unlock
 *
 * The second locked section is outside the region, so there is nothing to find. Without the marker of an end, a tracer
 * that does not notice the jump sees it inside.
 *
 * With `returns` there is no jump: the function goes on to its end, after the other thread's turn, and is not atomic.
 */
#include <setjmp.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t others, mine;
static jmp_buf out;

static void use_lock(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void take_turns(void)
{
    give_turn(others);
    await_turn(mine);
}

static void *other(void *unused)
{
    await_turn(others);
    use_lock();
    give_turn(mine);
    return unused;
}

static __attribute__((__noinline__)) void work(int jumps)
{
    AVTRACE_REGION("left");

    use_lock();
    if (jumps)
        longjmp(out, 1);
    take_turns();
    use_lock();
}

int main(int argc, char **argv)
{
    int jumps = argc < 2 || strcmp(argv[1], "returns") != 0;

    make_turn(others);
    make_turn(mine);

    pthread_t thread = start(other, NULL);

    if (setjmp(out) == 0)
        work(jumps);
    if (jumps) {
        take_turns();
        use_lock();
    }
    join(thread);
    puts(jumps ? "jumped" : "returned");
    return 0;
}
