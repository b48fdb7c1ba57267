/*
 * outlives_tracer.c STARTED DONE - threads that lock, children, and libraries that come and go, for some seconds.
 *
 * Creates the file STARTED first, and writes `0` to DONE when no increment was lost and each child has ended well.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"

enum { ROUNDS = 60, THREADS = 4, TIMES = 3000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */

static void *increment(void *unused)
{
    for (int i = 0; i < TIMES; i++) {
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static int has_written(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");

    return file != NULL && fputs(text, file) >= 0 && fclose(file) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || !has_written(argv[1], ""))
        return 2;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        int status;

        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, increment, NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);

        pid_t child = fork();

        if (child == 0)
            _exit(0);
        if (waitpid(child, &status, 0) != child || status != 0)
            return 3;

        void *library = dlopen("libm.so.6", RTLD_NOW);

        if (library != NULL)
            dlclose(library);
    }
    if (count != (long)ROUNDS * THREADS * TIMES)
        return 4;
    return has_written(argv[2], "0") ? 0 : 5;
}
