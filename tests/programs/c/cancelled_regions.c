/*
 * cancelled_regions.c [TIMES] - threads that are cancelled in regions: at a call that looks for it, and anywhere.
 *
 * TIMES (200 by default) of each kind. Each thread executes a region over and over until it is cancelled. Prints how many
 * were. Nothing is to be found.
 */
#include "avtrace.h"
#include "threads.h"

static long cancelled;
static volatile long own;
static int runs;

static void *wait_for_it(void *unused)
{
    __atomic_store_n(&runs, 1, __ATOMIC_RELEASE);
    for (;;) {
        AVTRACE_BEGIN("deferred");
        own++;
        pthread_testcancel();
        AVTRACE_END("deferred");
    }
    return unused;
}

static void *go_on(void *unused)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    __atomic_store_n(&runs, 1, __ATOMIC_RELEASE);
    for (;;) {
        AVTRACE_BEGIN("anywhere");
        own++;
        AVTRACE_END("anywhere");
    }
    return unused;
}

static void cancel(void *(*body)(void *))
{
    void *result;

    __atomic_store_n(&runs, 0, __ATOMIC_RELAXED);
    pthread_t thread = start(body, NULL);
    while (!__atomic_load_n(&runs, __ATOMIC_ACQUIRE))
        continue;
    if (pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0)
        exit(1);
    cancelled += result == PTHREAD_CANCELED;
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 200;

    for (int i = 0; i < times; i++) {
        cancel(wait_for_it);
        cancel(go_on);
    }
    printf("cancelled: %ld\n", cancelled);
    return 9;
}
