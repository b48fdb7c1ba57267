/*
 * long_run.c SECONDS - lock work in regions for a while, whatever becomes of the tracer.
 *
 * Two threads lock and unlock one mutex, each pair in a region, until the time is over. Prints "ready" when
 * the threads are at work and "done" at the end, and exits with 7.
 */
#include <time.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static time_t until;
static turn_t at_work;

static void *work(void *unused)
{
    int told = 0;

    do {
        AVTRACE_BEGIN("step");
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
        AVTRACE_END("step");
        if (!told) {
            give_turn(at_work);
            told = 1;
        }
    } while (time(NULL) < until);
    return unused;
}

int main(int argc, char **argv)
{
    until = time(NULL) + (argc > 1 ? atol(argv[1]) : 5) + 1;
    make_turn(at_work);

    pthread_t first = start(work, NULL), second = start(work, NULL);

    await_turn(at_work);
    await_turn(at_work);
    puts("ready");
    fflush(stdout);
    join(first);
    join(second);
    puts("done");
    return 7;
}
