/* Threads that have to start: creation and joining with the errors handled. */
#ifndef THREADS_H
#define THREADS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static inline pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, body, argument) != 0) {
        fputs("cannot create a thread\n", stderr);
        exit(1);
    }
    return thread;
}

static inline void join(pthread_t thread)
{
    if (pthread_join(thread, NULL) != 0) {
        fputs("cannot join a thread\n", stderr);
        exit(1);
    }
}

#endif
