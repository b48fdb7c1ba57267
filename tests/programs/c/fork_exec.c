/*
 * fork_exec.c - a child process uses its own copy of the lock, then runs another program.
 *
 *     parent: region `parent`                    child: region `child`
 *
 *     lock, unlock
 *     fork, wait for the child
 *                                                lock, unlock
 *                                                exec /bin/echo
 *     lock, unlock
 *
 * The child's mutex has the same address and is another mutex, in another process. A tracer that mixes up
 * the two sees the child's locked section between the parent's. There is nothing to find.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "avtrace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void child(void)
{
    AVTRACE_BEGIN("child");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    AVTRACE_END("child");
    execl("/bin/echo", "echo", "child", (char *)NULL);
    _exit(127);
}

int main(void)
{
    int status = 0;

    AVTRACE_BEGIN("parent");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);

    pid_t pid = fork();

    if (pid < 0) {
        perror("fork");
        return 1;
    }
    if (pid == 0)
        child();
    waitpid(pid, &status, 0);

    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    AVTRACE_END("parent");

    printf("parent: the child's status was %d\n", status);
    return 0;
}
