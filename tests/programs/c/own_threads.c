/*
 * own_threads.c HOW - does what a tracer of its threads cannot foresee, then works with a lock in two threads.
 *
 * HOW: "base" has the main thread set its GS base to memory of its own, "null" load a selector into GS, "made" set the
 * base by code that was made at run time; "thread" creates a thread that no tracer is told of. The numbers of all
 * system calls are computed. At each step a thread locks, counts and unlocks. Prints the count, and "kept" if the GS
 * base is what it was set to and the memory there is as it was.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 2000, WORDS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static long words[WORDS];
static volatile long one = 1;
static int stays[2], done[2];

__attribute__((noinline)) static void step(void)
{
    pthread_mutex_lock(&lock);
    count++;
    pthread_mutex_unlock(&lock);
}

static void *steps(void *unused)
{
    for (int i = 0; i < STEPS; i++)
        step();
    return unused;
}

/* With a second thread of its own, the C library locks by atomic instructions. */
static void *second(void *unused)
{
    char byte;
    if (read(stays[0], &byte, 1) < 0)
        _exit(1);
    return unused;
}

static int stranger(void *unused)
{
    steps(unused);
    if (write(done[1], "x", 1) != 1)
        _exit(1);
    syscall(SYS_exit, 0);
    return 0;
}

static unsigned long base(void)
{
    unsigned long at = 0;
    syscall(SYS_arch_prctl, ARCH_GET_GS, &at);
    return at;
}

static void set_base(void)
{
    if (syscall(SYS_arch_prctl + one - 1, ARCH_SET_GS + one - 1, words))
        _exit(77);
}

/* `wrgsbase %rdi; ret`, as it is made. */
static void set_by_made_code(void)
{
    static const unsigned char code[] = {0x0c, 0xb7, 0xf0, 0x51, 0x20, 0x3c};
    unsigned char *made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        _exit(77);
    for (unsigned i = 0; i < sizeof code; i++)
        made[i] = code[i] ^ 0xff;
    ((void (*)(void *))made)(words);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t other;
    int has_base = 0;
    for (int i = 0; i < WORDS; i++)
        words[i] = i;
    if (!strcmp(how, "thread")) {
        static char stack[1 << 16] __attribute__((aligned(16)));
        unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        char byte;
        if (pipe(stays) || pipe(done) || pthread_create(&other, 0, second, 0))
            return 1;
        if (clone(stranger, stack + sizeof stack, flags | (unsigned long)one << 23, 0) < 0)
            return 77;
        steps(0);
        if (read(done[0], &byte, 1) != 1 || close(stays[1]))
            return 1;
        pthread_join(other, 0);
    } else if (!strcmp(how, "base")) {
        set_base();
        has_base = 1;
    } else if (!strcmp(how, "made")) {
        set_by_made_code();
        has_base = 1;
    } else if (!strcmp(how, "null")) {
        __asm__ volatile("mov %0, %%gs" : : "r"((int)one - 1));
    }
    unsigned long before = base();
    if (pthread_create(&other, 0, steps, 0))
        return 1;
    steps(0);
    pthread_join(other, 0);
    int is_kept = has_base ? before == (unsigned long)words && base() == before : 1;
    for (int i = 0; i < WORDS; i++)
        is_kept &= words[i] == i;
    printf("%ld%s\n", count, is_kept ? " kept" : "");
    return 0;
}
