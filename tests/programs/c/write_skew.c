/*
 * write_skew.c skew|apart - two functions of which each looks at what the other one changes.
 *
 *     thread 1: leave_y                          thread 2: leave_x, or look_then_leave
 *
 *     x is 1
 *                              -- go_leave -->
 *                                                y is 1; x = 0
 *                              <-- go_on --
 *     y = 0
 *
 * skew: each of them writes since the other variable was 1. Now both are 0, which no order of the two leads to.
 * apart: the second one looks at y, and sets x in any case. That is no more than a look before, and a write after.
 */
#include <pthread.h>
#include <string.h>

#include "handshake.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int x = 1, y = 1; /* guarded by mutex */
static int seen;         /* guarded by mutex */
static turn_t go_leave;
static turn_t go_on;
static int is_apart;

__attribute__((noinline)) static void leave_y(void)
{
    pthread_mutex_lock(&mutex);
    int other = x;                                          /* @look */
    pthread_mutex_unlock(&mutex);
    give_turn(go_leave);
    await_turn(go_on);
    pthread_mutex_lock(&mutex);
    if (other == 1)
        y = 0;                                              /* @leave */
    pthread_mutex_unlock(&mutex);
}

__attribute__((noinline)) static void leave_x(void)
{
    pthread_mutex_lock(&mutex);
    int other = y;
    pthread_mutex_unlock(&mutex);
    pthread_mutex_lock(&mutex);
    if (other == 1)
        x = 0;
    pthread_mutex_unlock(&mutex);
}

__attribute__((noinline)) static void look_then_leave(void)
{
    pthread_mutex_lock(&mutex);
    seen = y;
    pthread_mutex_unlock(&mutex);
    pthread_mutex_lock(&mutex);
    x = 0;
    pthread_mutex_unlock(&mutex);
}

static void *second(void *unused)
{
    await_turn(go_leave);
    if (is_apart)
        look_then_leave();
    else
        leave_x();
    give_turn(go_on);
    return unused;
}

static void *first(void *unused)
{
    leave_y();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];

    is_apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    make_turn(go_leave);
    make_turn(go_on);
    pthread_create(&threads[0], NULL, first, NULL);
    pthread_create(&threads[1], NULL, second, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("x: %d, y: %d\n", x, y);
    return 0;
}
