/*
 * exec_from_thread.c PROGRAM [ARGS…] - a thread that is not the main one replaces the program, while the main thread is
 * in a region that never ends and another thread waits for ever.
 *
 * All other threads are gone with the old program, and so is the region: nothing is to be found in it. What the new
 * program does is its own.
 */
#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static turn_t go;
static turn_t never;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *replace(void *arguments)
{
    char **argv = arguments;

    await_turn(go);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    execv(argv[0], argv);
    perror("execv");
    exit(127);
}

static void *wait_for_ever(void *unused)
{
    await_turn(never);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    make_turn(go);
    make_turn(never);
    start(wait_for_ever, NULL);

    pthread_t replacing = start(replace, argv + 1);

    AVTRACE_BEGIN("unfinished");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    give_turn(go);
    join(replacing);
    AVTRACE_END("unfinished");
    return 1;
}
