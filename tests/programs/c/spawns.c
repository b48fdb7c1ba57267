/*
 * spawns.c PROGRAM [ARGS…] - starts a helper by posix_spawn within a region, and waits for it.
 */
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "avtrace.h"

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int main(int argc, char **argv)
{
    int status = 0;
    pid_t helper;

    if (argc < 2)
        return 2;
    AVTRACE_BEGIN("spawning");
    pthread_mutex_lock(&lock);
    if (posix_spawn(&helper, argv[1], NULL, NULL, argv + 1, environ) != 0)
        return 1;
    waitpid(helper, &status, 0);
    pthread_mutex_unlock(&lock);
    AVTRACE_END("spawning");
    printf("the helper's status was %d\n", WEXITSTATUS(status));
    return 0;
}
