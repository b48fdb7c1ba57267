/*
 * ends_while_loading.c LIBRARY exit|kill|PROGRAM - one thread loads and unloads a library for ever; once it has begun, the
 * main thread ends the process, by _exit or a signal, or replaces its program.
 *
 * The loading thread stands still at each change of the list of libraries while avtrace attaches to what is new, and
 * dies there more often than not.
 */
#include "handshake.h"
#include "threads.h"
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static turn_t begun;

static void *load(void *library)
{
    for (int round = 0;; round++) {
        void *loaded = dlopen(library, RTLD_NOW);

        if (loaded == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        dlclose(loaded);
        if (round == 0)
            give_turn(begun);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    make_turn(begun);
    start(load, argv[1]);
    await_turn(begun);

    /* At another point of the other thread's loop each time. */
    struct timespec a_while = { 0, 20000000 + getpid() % 16 * 1000000 };

    nanosleep(&a_while, NULL);
    if (strcmp(argv[2], "exit") == 0)
        _exit(7);
    if (strcmp(argv[2], "kill") == 0)
        raise(SIGKILL);
    execv(argv[2], argv + 2);
    perror("execv");
    return 127;
}
