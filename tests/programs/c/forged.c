/*
 * forged.c - writes a record to its own ring whose order no clock will ever show.
 *
 * The thread's block is at a fixed distance from its GS base (tracer-user/inline/src/layout.rs). Without inline probes there is
 * none, and the program does nothing. Prints "end".
 */
#include <asm/prctl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FROM_BASE = 0x7ffff000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */

static void step(void)
{
    pthread_mutex_lock(&lock);
    count++;
    pthread_mutex_unlock(&lock);
}

static void *steps(void *unused)
{
    for (int i = 0; i < 100; i++)
        step();
    return unused;
}

int main(void)
{
    pthread_t other;
    pthread_create(&other, 0, steps, 0);
    pthread_join(other, 0);
    steps(0);
    unsigned long *block = 0;
    syscall(SYS_arch_prctl, ARCH_GET_GS, &block);
    if (block) {
        block += FROM_BASE / sizeof *block;
        enum { RESERVED, LIMIT, OWN, SLOTS, MASK, SLOT = 64 };
        unsigned long number = block[RESERVED];
        volatile unsigned long *slot =
            (unsigned long *)(block[SLOTS] + (number & block[MASK]) * SLOT);
        block[RESERVED] = number + 1;
        slot[1] = ~0UL >> 1;            /* the order */
        slot[0] = (unsigned)number + 1; /* the mark of a published slot, of site 0 */
    }
    step();
    puts("end");
    return 0;
}
