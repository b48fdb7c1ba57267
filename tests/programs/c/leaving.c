/*
 * leaving.c HOW [stay] - a function that is left in ways without a return, and what its thread does afterwards.
 *
 * `step` takes the lock, releases it, and is left as HOW says. Its caller then takes the lock again, from a
 * function that goes deeper than `step` did. In between the other thread takes the lock. So a tracer that does not
 * see how `step` was left, and takes what follows for a part of it, finds it not atomic:
 *
 *     thread 1: step                             thread 2: other
 *
 *     lock, unlock
 *                              -- go_other -->
 *                                                lock, unlock
 *                              <-- go_step --
 *     (step is left)
 *     lock, unlock, in `after`
 *
 * With `stay` step itself takes the lock again before it is left, and is not atomic. HOW is
 *
 *     return    by its return
 *     tail      by a tail call of `after`
 *     jump      by longjmp
 *     exit      by pthread_exit; a destructor of thread-specific data does the rest
 *     recurse   as return, from the innermost of three calls of itself, each with a look at the lock
 */
#include <setjmp.h>
#include <string.h>

#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_other;
static turn_t go_step;
static const char *how;
static int stay;
static jmp_buf back;
static pthread_key_t at_exit;

static __attribute__((noinline)) void touch(volatile char *room)
{
    room[0] = 1;
    pthread_mutex_lock(&lock);
    room[1] = 1;
    pthread_mutex_unlock(&lock);
    room[2] = 1;
}

/* What follows, in frames that reach below those of `step`. */
static __attribute__((noinline)) void after(int depth)
{
    char room[512];

    touch(room);
    if (depth > 100)
        puts(room);
}

static __attribute__((noinline)) void meet(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);               /* @step_unlock */
    give_turn(go_other);
    await_turn(go_step);
    if (stay) {
        pthread_mutex_lock(&lock);             /* @step_relock */
        pthread_mutex_unlock(&lock);
    }
}

static __attribute__((noinline)) void step(int depth)
{                                              /* @step_begin */
    if (depth > 0) {
        step(depth - 1);
        __asm__ volatile("" ::: "memory");
        return;
    }
    meet();
    if (strcmp(how, "jump") == 0)
        longjmp(back, 1);
    if (strcmp(how, "exit") == 0)
        pthread_exit(NULL);
    if (strcmp(how, "tail") == 0)
        after(depth);
}

static void destroy(void *unused)
{
    (void)unused;
    after(0);
}

static void *run_step(void *unused)
{
    pthread_setspecific(at_exit, &lock);
    if (setjmp(back) == 0)
        step(strcmp(how, "recurse") == 0 ? 2 : 0);
    after(0);
    return unused;
}

static __attribute__((noinline)) void other(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void *run_other(void *unused)
{
    await_turn(go_other);
    other();
    give_turn(go_step);
    return unused;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "return";
    stay = argc > 2 && strcmp(argv[2], "stay") == 0;
    make_turn(go_other);
    make_turn(go_step);
    if (pthread_key_create(&at_exit, destroy) != 0)
        return 1;

    pthread_t first = start(run_step, NULL), second = start(run_other, NULL);

    join(first);
    join(second);
    puts("done");
    return 0;
}
