/*
 * same_lines.c - two gaps between lines of the same text in one function. The first argument is the gap, 1 or 2, in
 * which the other thread comes in; with 3 it comes in afterwards. If it is a file, the gap is 1, and if there is no
 * file of that name, one is made, and the gap is 3.
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
    int gap = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t thread;

    if (gap == 0) {
        gap = access(argv[1], F_OK) == 0 ? 1 : 3;
        if (gap == 3)
            fclose(fopen(argv[1], "w"));
    }
    make_turns();
    pthread_create(&thread, NULL, other, NULL);
    add_twice(gap);
    if (gap == 3)
        let_other();
    pthread_join(thread, NULL);
    return 0;
}
