/*
 * library.c [fixed] - a function of a library that is meant to be atomic: the C library's lfind.
 *
 * It calls `compare` for each of two elements, and that takes the lock and releases it. In between the other thread
 * takes the lock. With `fixed` the first element is the one looked for, and there is one call only.
 */
#include <search.h>
#include <string.h>

#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_other;
static turn_t go_find;
static int calls;

static int compare(const void *one, const void *other)
{
    if (calls++ == 1) {
        give_turn(go_other);
        await_turn(go_find);
    }
    pthread_mutex_lock(&lock);
    int difference = *(const int *)one - *(const int *)other;
    pthread_mutex_unlock(&lock);
    return difference;
}

static void *find(void *key)
{
    const int table[2] = {1, 2};
    size_t count = 2;

    if (lfind(key, table, &count, sizeof table[0], compare) == NULL)
        puts("not found");
    if (calls == 1) {
        give_turn(go_other);
        await_turn(go_find);
    }
    return NULL;
}

static void *other(void *unused)
{
    await_turn(go_other);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    give_turn(go_find);
    return unused;
}

int main(int argc, char **argv)
{
    int key = argc > 1 && strcmp(argv[1], "fixed") == 0 ? 1 : 2;

    make_turn(go_other);
    make_turn(go_find);

    pthread_t first = start(find, &key), second = start(other, NULL);

    join(first);
    join(second);
    return 0;
}
