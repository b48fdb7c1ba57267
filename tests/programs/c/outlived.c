/*
 * outlived.c - a program that leaves a child behind, which has its code and does nothing.
 *
 * It writes the child's process id. The child ends when it is killed, or after a minute.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "avtrace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */

int main(void)
{
    AVTRACE_BEGIN("work");
    pthread_mutex_lock(&lock);
    count += 1;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("work");

    pid_t child = fork();

    if (child < 0) {
        perror("fork");
        return 1;
    }
    if (child == 0) {
        close(0);
        close(1);
        close(2);
        alarm(60);
        pause();
        _exit(0);
    }
    printf("%ld\n", (long)child);
    return 0;
}
