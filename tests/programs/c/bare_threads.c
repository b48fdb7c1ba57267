/*
 * bare_threads.c [THREADS] - threads of the bare system call, without a thread pointer of their own.
 *
 * One after the other they add 1 in a region, THREADS times in all (200 by default), and end by a system call. The
 * kernel wakes whoever waits for the end of one. There is nothing to find.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "avtrace.h"

enum { STACK = 1 << 16 };

static long count;
static int lives;

static int add_one(void *unused)
{
    (void)unused;
    {
        AVTRACE_REGION("add_one");

        count++;
    }
    syscall(SYS_exit, 0);
    return 0;
}

int main(int argc, char **argv)
{
    static char stack[STACK];
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM
                      | CLONE_CHILD_CLEARTID;
    long number = argc > 1 ? atol(argv[1]) : 200;

    while (number-- > 0) {
        __atomic_store_n(&lives, 1, __ATOMIC_SEQ_CST);
        if (clone(add_one, stack + STACK, flags, NULL, NULL, NULL, &lives) < 0) {
            perror("clone");
            return 1;
        }
        while (__atomic_load_n(&lives, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &lives, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    printf("count: %ld\n", count);
    return 3;
}
