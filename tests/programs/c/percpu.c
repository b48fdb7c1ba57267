/*
 * percpu.c ROUNDS [LIBRARY] - threads count in counters that each processor has for itself, without atomic instructions:
 * in restartable sequences (rseq), which the kernel restarts when the thread is preempted, moved or signalled in one.
 * Prints how many counts are missing. The descriptors are in the section that librseq and tcmalloc put theirs into.
 *
 * LIBRARY  a shared library, built from this file, that has the code to count by
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/rseq.h>
#include "threads.h"

enum { PROCESSORS = 4096, THREADS = 4 };

struct counter {
    long *count;
    long own;
    long padding[6];
};

typedef void count_function(struct counter *counters, long rounds);

static struct rseq *own_rseq(void)
{
    return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

/* The descriptor of a sequence from 1 to 2, which is aborted at 4: `struct rseq_cs` of <linux/rseq.h>. */
#define DESCRIPTOR                                  \
    ".pushsection __rseq_cs, \"aw\"\n"              \
    ".balign 32\n"                                  \
    "3: .long 0, 0\n"                               \
    ".quad 1f, 2f - 1f, 4f\n"                       \
    ".popsection\n"                                 \
    ".pushsection __rseq_cs_ptr_array, \"aw\"\n"    \
    ".quad 3b\n"                                    \
    ".popsection\n"

/* What is before the place where a sequence is aborted: `ud1` with the signature in it. */
#define SIGNATURE ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"

/*
 * Counts once for this processor; returns 0 when the thread was interrupted before that was done. Where the count is,
 * only the sequence itself knows: no instruction outside of it could report its accesses.
 */
static inline int count_once(struct counter *counters, struct rseq *rseq, unsigned int processor)
{
    struct counter *counter = &counters[processor];

    __asm__ __volatile__ goto(
        DESCRIPTOR
        "leaq 3b(%%rip), %%rax\n"
        "movq %%rax, %[sequence]\n"
        "1:\n"
        "cmpl %[processor], %[current]\n"
        "jne 4f\n"
        "movq (%[counter]), %%rcx\n"
        "movq (%%rcx), %%rax\n"
        "leaq 1(%%rax), %%rcx\n"
        "movq (%[counter]), %%rax\n"
        "movq %%rcx, (%%rax)\n"
        "2:\n"
        "xorl %%eax, %%eax\n"
        ".pushsection __rseq_failure, \"ax\"\n"
        SIGNATURE
        "4: jmp %l[aborted]\n"
        ".popsection\n"
        :
        : [sequence] "m"(rseq->rseq_cs), [processor] "r"(processor), [current] "m"(rseq->cpu_id),
          [counter] "r"(counter)
        : "memory", "cc", "rax", "rcx"
        : aborted);
    return 1;
aborted:
    return 0;
}

/* Counts as often as its argument says. */
__attribute__((noinline)) void count_up(struct counter *counters, long rounds)
{
    struct rseq *rseq = own_rseq();

    while (rounds > 0) {
        unsigned int processor = *(volatile unsigned int *)&rseq->cpu_id_start;

        rounds -= count_once(counters, rseq, processor);
    }
}

#ifndef LIBRARY
/*
 * As count_once, as a function of its own whose slow path is another one: control may leave it inside its sequence.
 */
long count_or_fail(struct counter *counter, struct rseq *rseq, unsigned int processor);
long failed(void);
__asm__(".text\n"
        ".globl failed\n"
        ".type failed, @function\n"
        "failed:\n"
        "    xorl %eax, %eax\n"
        "    ret\n"
        ".size failed, . - failed\n"
        ".globl count_or_fail\n"
        ".type count_or_fail, @function\n"
        "count_or_fail:\n"
        DESCRIPTOR
        "    leaq 3b(%rip), %rax\n"
        "    movq %rax, 8(%rsi)\n"
        "1:  cmpl %edx, 4(%rsi)\n"
        "    jne failed\n"
        "    movq (%rdi), %rcx\n"
        "    movq (%rcx), %rax\n"
        "    leaq 1(%rax), %rcx\n"
        "    movq (%rdi), %rax\n"
        "    movq %rcx, (%rax)\n"
        "2:  movl $1, %eax\n"
        "    ret\n"
        SIGNATURE
        "4:  jmp failed\n"
        ".size count_or_fail, . - count_or_fail\n");

static struct counter counters[PROCESSORS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long expected, rounds;
static count_function *count = count_up;

/* A region, so that accesses matter. */
static __attribute__((noinline)) void expect(long more)
{
    pthread_mutex_lock(&mutex);
    expected += more;
    pthread_mutex_unlock(&mutex);
}

static void *work(void *unused)
{
    struct rseq *rseq = own_rseq();

    for (int part = 0; part < 10; part++) {
        long done = 0;

        count(counters, rounds / 10);
        while (done < rounds / 100) {
            unsigned int processor = *(volatile unsigned int *)&rseq->cpu_id_start;

            done += count_or_fail(&counters[processor], rseq, processor);
        }
        expect(rounds / 10 + done);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    long sum = 0;

    if (__rseq_size == 0 || argc < 2) {
        puts(argc < 2 ? "no number of rounds" : "no rseq");
        return 1;
    }
    rounds = atol(argv[1]);
    if (argc > 2) {
        void *library = dlopen(argv[2], RTLD_NOW);

        count = library == NULL ? NULL : (count_function *)dlsym(library, "count_up");
        if (count == NULL) {
            puts(dlerror());
            return 1;
        }
    }
    for (int processor = 0; processor < PROCESSORS; processor++)
        counters[processor].count = &counters[processor].own;
    for (int thread = 0; thread < THREADS; thread++)
        threads[thread] = start(work, NULL);
    for (int thread = 0; thread < THREADS; thread++)
        join(threads[thread]);
    for (int processor = 0; processor < PROCESSORS; processor++)
        sum += counters[processor].own;
    printf("%ld missing\n", expected - sum);
    return 0;
}
#endif
