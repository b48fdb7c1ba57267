/*
 * late_signals.c LIBRARY - loads and unloads a library with a handler for SIGCONT, and then with that signal blocked.
 *
 * Prints how often the handler ran, and whether the signal is pending: never, unless somebody sends it.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

static int load(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);

    if (library == NULL) {
        fprintf(stderr, "late_signals: %s\n", dlerror());
        return 0;
    }
    return dlclose(library) == 0;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handle};
    sigset_t set, mask;

    if (argc < 2 || sigaction(SIGCONT, &action, NULL) != 0 || !load(argv[1]))
        return 1;
    printf("handled: %d\n", (int)handled);

    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (!load(argv[1]))
        return 1;
    sigpending(&set);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    printf("pending: %d, blocked: %d\n", sigismember(&set, SIGCONT), sigismember(&mask, SIGCONT));
    return 0;
}
