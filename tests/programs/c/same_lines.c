/*
 * same_lines.c - two gaps between lines of the same text in one function. The first argument is the gap, 1 or 2, in
 * which the other thread comes in.
 */
#include <pthread.h>

#include "two_turns.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

/* @insert */

static void add_twice(int gap)
{
    long seen;

    pthread_mutex_lock(&lock);
    seen = total;
    pthread_mutex_unlock(&lock);
    if (gap == 1)
        let_other();
    pthread_mutex_lock(&lock);
    total = seen + 1;
    pthread_mutex_unlock(&lock);

    pthread_mutex_lock(&lock);
    seen = total;
    pthread_mutex_unlock(&lock);
    if (gap == 2)
        let_other();
    pthread_mutex_lock(&lock);
    total = seen + 1;
    pthread_mutex_unlock(&lock);
}

static void *other(void *unused)
{
    await_turn(go_other);
    pthread_mutex_lock(&lock);
    total += 100;
    pthread_mutex_unlock(&lock);
    give_turn(go_on);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    make_turns();
    pthread_create(&thread, NULL, other, NULL);
    add_twice(argc > 1 ? atoi(argv[1]) : 1);
    pthread_join(thread, NULL);
    return 0;
}
