/*
 * one_access.c [late] - two threads write a variable, once in each run of a region and without a lock: no run is
 * split, whatever the threads do, unless an access is recorded twice. The program touches nothing else that is shared.
 *
 * late     the program names the variable while it runs, when both threads have written it for a while
 */
#include "avtrace.h"
#include "threads.h"

enum { ROUNDS = 2000 };

static long x;

static void *writes(void *is_late)
{
    for (long round = 0; round < ROUNDS; round++) {
        AVTRACE_BEGIN("once");
        *(volatile long *)&x = round;
        AVTRACE_END("once");
        if (round == ROUNDS / 2 && is_late != NULL)
            AVTRACE_SHARED(x);
        for (volatile int work = 0; work < 20000; work++)
            ;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    void *is_late = argc > 1 ? argv : NULL;
    pthread_t first = start(writes, is_late);
    pthread_t second = start(writes, is_late);

    join(first);
    join(second);
    puts("done");
    return 0;
}
