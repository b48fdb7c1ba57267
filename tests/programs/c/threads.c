/*
 * threads.c join|tryjoin|timedjoin|clockjoin|whole|detach - threads of POSIX.
 *
 * The first four: `work` starts a thread and waits for its end in the same region, by the function that the word
 * names. What the thread does comes after the first half of the region and before the second: it is not atomic.
 * whole: the thread is started in one region and joined in another one.
 * detach: the thread is detached, and a pipe signals that it is done: nothing orders what comes after that.
 * Nothing is to be found in these two.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "soon.h"
#include "threads.h"

static long balance = 1000;
static turn_t done;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static void *pay(void *unused)
{
    AVTRACE_REGION("pay");                                                      /* @pay */

    pthread_setname_np(pthread_self(), "payer");
    balance -= 100;
    give_turn(done);
    return unused;
}

static int wait_for(pthread_t thread)
{
    struct timespec real = never(CLOCK_REALTIME), monotonic = never(CLOCK_MONOTONIC);

    if (is("tryjoin")) {
        int error;

        do
            error = pthread_tryjoin_np(thread, NULL);                           /* @tryjoin */
        while (error == EBUSY);
        return error;
    }
    if (is("timedjoin"))
        return pthread_timedjoin_np(thread, NULL, &real);                       /* @timedjoin */
    if (is("clockjoin"))
        return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &monotonic); /* @clockjoin */
    return pthread_join(thread, NULL);                                          /* @join */
}

static void work(void)
{
    AVTRACE_REGION("work");                                                     /* @begin */
    pthread_t thread;

    if (pthread_create(&thread, NULL, pay, NULL) != 0)                          /* @create */
        exit(1);
    if (is("detach")) {
        pthread_detach(thread);
        await_turn(done);
        return;
    }
    if (wait_for(thread) != 0)
        exit(1);
}

static void work_in_two(void)
{
    pthread_t thread;

    {
        AVTRACE_REGION("before");

        thread = start(pay, NULL);
    }
    {
        AVTRACE_REGION("after");

        join(thread);
    }
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "join";
    make_turn(done);
    if (is("whole"))
        work_in_two();
    else
        work();
    printf("balance: %ld\n", balance);
    return 0;
}
