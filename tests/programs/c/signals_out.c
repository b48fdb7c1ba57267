/*
 * signals_out.c JUMPS - a thread whose signal handlers jump out of what they interrupt.
 *
 * The first thread executes a region over and over, most of which is markers, while another one sends it signals. Their
 * handler jumps to before the region, JUMPS times; further threads take a lock in regions meanwhile. Prints the number
 * of jumps, and "all increments" where the lock has lost none. Nothing is to be found.
 */
#include <setjmp.h>
#include <signal.h>
#include <time.h>

#include "avtrace.h"
#include "threads.h"

enum { THREADS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static long increments[THREADS];
static int is_over;

static sigjmp_buf out;
static volatile sig_atomic_t may_jump;
static volatile long jumps;
static pthread_t first;

static void on_signal(int signal)
{
    (void)signal;
    if (may_jump) {
        may_jump = 0;
        jumps++;
        siglongjmp(out, 1);
    }
}

static void *increment(void *own)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        AVTRACE_REGION("increment");

        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
        ++*(long *)own;
    }
    return NULL;
}

static void *send(void *unused)
{
    const struct timespec time = {0, 100 * 1000};

    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        pthread_kill(first, SIGUSR1);
        nanosleep(&time, NULL);
    }
    return unused;
}

static __attribute__((noinline)) void spin(void)
{
    for (int i = 0; i < 200 * 1000; i++) {
        AVTRACE_BEGIN("spin");
        AVTRACE_END("spin");
    }
}

int main(int argc, char **argv)
{
    long most = argc > 1 ? atol(argv[1]) : 100, sum = 0;
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t threads[THREADS], sender;

    first = pthread_self();
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(increment, &increments[i]);
    sender = start(send, NULL);
    while (jumps < most) {
        if (sigsetjmp(out, 1) == 0) {
            may_jump = 1;
            spin();
            may_jump = 0;
        }
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    join(sender);
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
        sum += increments[i];
    }
    printf("jumps: %ld\n%s\n", jumps, sum == count ? "all increments" : "increments are lost");
    return 7;
}
