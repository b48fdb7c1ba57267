/*
 * host.c LIBRARY[:fixed]… - loads each library, calls its `run`, and unloads it, one after the other. With `+` before
 * its name a library stays loaded.
 *
 * Prints where each `run` is the second time and later: `same` where the one before was, or `elsewhere`.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    uintptr_t before = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        char *name = argv[i];
        char *how = strchr(name, ':');
        int stays = *name == '+';

        if (how != NULL)
            *how++ = '\0';

        void *library = dlopen(name + stays, RTLD_NOW);

        if (library == NULL) {
            fprintf(stderr, "host: %s\n", dlerror());
            return 1;
        }

        int (*run)(int fixed) = (int (*)(int))(uintptr_t)dlsym(library, "run");
        uintptr_t here = (uintptr_t)run & ~(uintptr_t)0xfff;

        if (run == NULL)
            return 1;
        if (before != 0)
            puts(here == before ? "same" : "elsewhere");
        before = here;
        printf("balance: %d\n", run(how != NULL && strcmp(how, "fixed") == 0));
        if (!stays)
            dlclose(library);
    }
    return 0;
}
