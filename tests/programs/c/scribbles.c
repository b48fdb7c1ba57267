/*
 * scribbles.c SEED - writes anything to all that avtrace shares with it, while its threads lock and unlock.
 *
 * The memory of inline probes is found by the GS base (tracer-user/inline/src/layout.rs): the control page, threads' blocks, slots.
 * Which words, values, and base registers follow from SEED. What becomes of this program is its own fault. Without
 * inline probes it does nothing. Prints "end" if it gets there.
 */
#include <asm/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FROM_BASE = 0x7ffff000 };
enum { THREADS = 3, STEPS = 300, WRITES = 3000, BLOCK_WORDS = 24, RING_WORDS = 4096 * 8, CONTROL = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static unsigned long state;

static unsigned long number(unsigned long below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : state;
}

static unsigned long value(unsigned long near)
{
    static const unsigned long edges[] = {0, 1, ~0UL, ~0UL >> 1, 1UL << 63, 1UL << 32, 0x7ffffffff000};
    switch (number(4)) {
    case 0: return edges[number(sizeof edges / sizeof *edges)];
    case 1: return near + number(64) - 32;
    case 2: return number(1 << 14);
    default: return number(0);
    }
}

static void *steps(void *unused)
{
    for (int i = 0; i < STEPS; i++) {
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void over(int signal)
{
    (void)signal;
    _exit(3);
}

int main(int argc, char **argv)
{
    state = (argc > 1 ? strtoul(argv[1], 0, 10) : 1) * 0x9e3779b97f4a7c15 + 1;
    /* A thread may wait for room that its forged limit never gives. */
    signal(SIGALRM, over);
    alarm(5);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(threads + i, 0, steps, 0);
    unsigned long *block = 0;
    syscall(SYS_arch_prctl, ARCH_GET_GS, &block);
    if (block) {
        block += FROM_BASE / sizeof *block;
        volatile unsigned long *control = (unsigned long *)block[CONTROL];
        for (int i = 0; i < WRITES; i++) {
            volatile unsigned long *at;
            switch (number(3)) {
            case 0: at = control + number(8); break;
            case 1: at = block + number(BLOCK_WORDS); break;
            default: at = block + BLOCK_WORDS + number(RING_WORDS);
            }
            *at = value(*at);
            if (number(64) == 0)
                steps(0);
        }
        if (number(4) == 0)
            syscall(SYS_arch_prctl, ARCH_GET_GS ^ number(8), value((unsigned long)block));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    puts("end");
    return 0;
}
