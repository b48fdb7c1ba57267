/*
 * named.c NAME LIBRARY|PROGRAM… - names the main thread, and then loads the library, or replaces its program when more than
 * one argument follows.
 *
 * The kernel takes any bytes for a name and keeps 15 of them, be that within a letter.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3 || prctl(PR_SET_NAME, argv[1]) != 0)
        return 2;
    if (argc > 3) {
        execv(argv[2], argv + 2);
        perror("execv");
        return 127;
    }

    void *library = dlopen(argv[2], RTLD_NOW);

    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    puts("loaded");
    return 5;
}
