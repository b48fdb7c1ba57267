/*
 * Two workers, each with an event loop that reads requests from a connection. The handler of `incr` reads the value in
 * one section and writes it in another. The loop is no place for a bug; the handler is.
 *
 * Regions: handle_incr
 * Pattern: lost update
 * Evidence: data
 * Reference: memcached issue 127: incr and decr are not atomic
 */
#include <string.h>

#include "turn.h"

#define QUIET_REQUESTS 30

enum request { REQUEST_GET, REQUEST_INCR, REQUEST_INCR_SPLIT, REQUEST_QUIT };

struct entry {
    pthread_mutex_t lock;
    long value; /* guarded by lock */
};

static struct entry entry = {PTHREAD_MUTEX_INITIALIZER, 0};
static struct turn connections[2];
static struct turn other_may_go, first_may_go_on;

static long entry_get(struct entry *entry)
{
    pthread_mutex_lock(&entry->lock);
    long value = entry->value;
    pthread_mutex_unlock(&entry->lock);
    return value;
}

static void entry_set(struct entry *entry, long value)
{
    pthread_mutex_lock(&entry->lock);
    entry->value = value;
    pthread_mutex_unlock(&entry->lock);
}

static void handle_incr(struct entry *entry, int is_split)
{
    long value = entry_get(entry);

    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    entry_set(entry, value + 1);
}

static void handle_get(struct entry *entry)
{
    if (entry_get(entry) < 0)
        fputs("a count below zero\n", stderr);
}

static void event_loop(int connection)
{
    char request;

    while (read(connection, &request, 1) == 1 && request != REQUEST_QUIT) {
        switch (request) {
        case REQUEST_GET:
            handle_get(&entry);
            break;
        case REQUEST_INCR:
            handle_incr(&entry, 0);
            break;
        case REQUEST_INCR_SPLIT:
            handle_incr(&entry, 1);
            break;
        }
    }
}

static void *worker(void *unused)
{
    event_loop(connections[0].ends[0]);
    return unused;
}

static void *other_worker(void *unused)
{
    event_loop(connections[1].ends[0]);
    turn_give(&first_may_go_on);
    return unused;
}

static void request(int number, enum request what)
{
    char byte = (char)what;

    if (write(connections[number].ends[1], &byte, 1) != 1)
        perror("write to a connection");
}

int main(void)
{
    pthread_t threads[2];

    turn_make(&connections[0]);
    turn_make(&connections[1]);
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    pthread_create(&threads[0], NULL, worker, NULL);
    pthread_create(&threads[1], NULL, other_worker, NULL);
    for (int i = 0; i < QUIET_REQUESTS; i++) {
        request(0, REQUEST_INCR);
        request(1, REQUEST_GET);
    }
    request(0, REQUEST_INCR_SPLIT);
    turn_await(&other_may_go);
    request(1, REQUEST_INCR);
    request(1, REQUEST_QUIT);
    pthread_join(threads[1], NULL);
    request(0, REQUEST_QUIT);
    pthread_join(threads[0], NULL);
    turn_outcome(entry.value != QUIET_REQUESTS + 2);
    return 0;
}
