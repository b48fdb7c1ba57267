/*
 * early.c - a shared library that does what the program's first argument says before the program's entry point is
 * reached, and so while avtrace still has it under ptrace.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void ignore(int signal)
{
    (void)signal;
}

static void *wait_for_ever(void *unused)
{
    pause();
    return unused;
}

/* The child goes on into the program, as a daemon's does. */
static void fork_and_go_on(void)
{
    int status;
    pid_t child = fork();

    if (child > 0 && waitpid(child, &status, 0) == child)
        printf("the child's status was %d\n", status);
}

static void replace_once(char **argv)
{
    if (getenv("EARLY_DONE") != NULL)
        return;
    setenv("EARLY_DONE", "yes", 1);
    execv("/proc/self/exe", argv);
}

__attribute__((__constructor__)) static void early(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t thread;

    if (strcmp(what, "fork") == 0)
        fork_and_go_on();
    if (strcmp(what, "exec") == 0)
        replace_once(argv);
    if (strcmp(what, "signal") == 0) {
        signal(SIGRTMIN + 3, ignore);
        raise(SIGRTMIN + 3);
    }
    if (strcmp(what, "trap") == 0) {
        signal(SIGTRAP, ignore);
        raise(SIGTRAP);
    }
    if (strcmp(what, "thread") == 0)
        pthread_create(&thread, NULL, wait_for_ever, NULL);
    if (strcmp(what, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(what, "exit") == 0)
        _exit(9);
    if (strcmp(what, "die") == 0)
        raise(SIGRTMIN + 3);
}
