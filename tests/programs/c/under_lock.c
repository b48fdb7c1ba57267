/*
 * under_lock.c - two sections that one helper makes, which gets their contents through a pointer.
 *
 * `publish` sets the width and the height in sections of their own: `under_lock` is called at two places, for different
 * functions. The other thread measures in between, and sees a new width with an old height.
 */
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long width = 1, height = 1; /* guarded by lock, and the same */
static turn_t go_second, go_first;

static __attribute__((noinline)) void set_width(long value)
{
    width = value;                        /* @width */
}

static __attribute__((noinline)) void set_height(long value)
{
    height = value;                       /* @height */
}

static __attribute__((noinline)) void under_lock(void (*change)(long), long value)
{
    pthread_mutex_lock(&lock);
    change(value);
    pthread_mutex_unlock(&lock);
}

static __attribute__((noinline)) void publish(long value, int is_split)
{
    under_lock(set_width, value);
    if (is_split) {
        give_turn(go_second);
        await_turn(go_first);
    }
    under_lock(set_height, value);
}

static __attribute__((noinline)) int measure(void)
{
    pthread_mutex_lock(&lock);
    int is_torn = width != height;
    pthread_mutex_unlock(&lock);
    return is_torn;
}

static void *first(void *unused)
{
    await_turn(go_first);
    for (long value = 2; value < 12; value++)
        publish(value, 0);
    publish(12, 1);
    return unused;
}

static void *second(void *unused)
{
    /* Both variables are shared from here on. */
    measure();
    give_turn(go_first);
    await_turn(go_second);
    if (measure())
        puts("torn");
    give_turn(go_first);
    return unused;
}

int main(void)
{
    make_turn(go_second);
    make_turn(go_first);

    pthread_t threads[] = {start(first, NULL), start(second, NULL)};

    join(threads[0]);
    join(threads[1]);
    return 0;
}
