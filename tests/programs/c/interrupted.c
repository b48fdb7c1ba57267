/*
 * interrupted.c [dies] - waits for Ctrl-C.
 *
 * Prints "ready" and waits. On SIGINT it prints "interrupted" and exits with 5; with `dies` it has no
 * handler, and the signal kills it (130 = 128 + SIGINT for a shell).
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "avtrace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    interrupted = signal;
}

int main(int argc, char **argv)
{
    sigset_t interrupt, before;

    /* Blocked until sigsuspend, so that a signal before it is not lost. */
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    sigdelset(&before, SIGINT);
    if (argc < 2 || strcmp(argv[1], "dies") != 0) {
        struct sigaction action;

        memset(&action, 0, sizeof action);
        action.sa_handler = on_interrupt;
        sigaction(SIGINT, &action, NULL);
    }

    AVTRACE_BEGIN("work");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    AVTRACE_END("work");

    puts("ready");
    fflush(stdout);
    while (!interrupted)
        sigsuspend(&before);
    puts("interrupted");
    return 5;
}
