/*
 * text.c - a number that is stored as text: it is read and written by the C library alone.
 *
 *     region `add`, twice at a time
 *
 *     read the text as a number (strtoull)
 *                                               the same in another thread
 *     write the sum as text (snprintf, memcpy)
 *
 * Each step holds the lock, and gives it up in between.
 */
#include <string.h>

#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *text; /* guarded by lock */
static turn_t others, first;

static void add(unsigned long long number, int is_split)
{
    char sum[24];

    pthread_mutex_lock(&lock);
    unsigned long long before = strtoull(text, NULL, 10); /* @read */
    pthread_mutex_unlock(&lock);
    if (is_split) {
        give_turn(others);
        await_turn(first);
    }
    int length = snprintf(sum, sizeof sum, "%llu", before + number);
    pthread_mutex_lock(&lock);
    memcpy(text, sum, (size_t)length + 1); /* @write */
    pthread_mutex_unlock(&lock);
}

static void *adds_as_well(void *unused)
{
    (void)unused;
    await_turn(others);
    add(10, 0);
    give_turn(first);
    return NULL;
}

int main(void)
{
    pthread_t other;

    make_turn(others);
    make_turn(first);
    text = strdup("100");
    other = start(adds_as_well, NULL);
    add(1, 1);
    join(other);
    puts(text);
    return 0;
}
