/*
 * leaderless.c [watched | FILE] - the main thread ends before anything happens; the process goes on without it.
 *
 *     first: region `transfer`       second: region `audit`
 *
 *     lock, read, unlock
 *                                    lock, write, unlock
 *     lock, write, unlock
 *
 * The variable is on the heap, and named as shared after the main thread's end. With `watched` the threads wait until it
 * is watched, as in shared_heap.c; with another argument, until there is a file of that name. Exits with 3.
 */
#include <string.h>
#include <time.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long *balance; /* guarded by lock */
static turn_t firsts, seconds;
static const char *awaited = "";

/* The state of a process in /proc is that of its main thread. */
static int has_leader(void)
{
    char text[256];
    FILE *file = fopen("/proc/self/stat", "r");
    size_t length = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);

    if (length == 0) {
        perror("/proc/self/stat");
        exit(1);
    }
    fclose(file);
    text[length] = '\0';
    return strstr(text, ") Z ") == NULL;
}

static int is_watched(void)
{
    struct timespec before, after;

    for (int round = 0; round < 10; round++) {
        clock_gettime(CLOCK_MONOTONIC, &before);
        for (int i = 0; i < 100; i++)
            (void)*balance;
        clock_gettime(CLOCK_MONOTONIC, &after);
        if (after.tv_sec == before.tv_sec && after.tv_nsec - before.tv_nsec < 100 * 200)
            return 0;
    }
    return 1;
}

static void *second(void *unused)
{
    await_turn(seconds);
    AVTRACE_BEGIN("audit");
    pthread_mutex_lock(&lock);
    *balance = 900;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("audit");
    give_turn(firsts);
    return unused;
}

static void *first(void *unused)
{
    while (has_leader())
        ;
    balance = malloc(sizeof *balance);
    *balance = 1000;
    AVTRACE_SHARED(*balance);
    puts("alone");
    fflush(stdout);
    if (strcmp(awaited, "watched") == 0) {
        while (!is_watched())
            ;
    } else if (awaited[0] != '\0') {
        while (access(awaited, F_OK) != 0)
            usleep(1000);
    }

    pthread_t other = start(second, NULL);

    AVTRACE_BEGIN("transfer");
    pthread_mutex_lock(&lock);
    long read = *balance;
    pthread_mutex_unlock(&lock);
    give_turn(seconds);
    await_turn(firsts);
    pthread_mutex_lock(&lock);
    *balance = read - 5;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("transfer");
    join(other);
    printf("balance: %ld\n", *balance);
    fflush(stdout);
    exit(3);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        awaited = argv[1];
    make_turn(firsts);
    make_turn(seconds);
    start(first, NULL);
    pthread_exit(NULL);
}
