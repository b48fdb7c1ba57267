/*
 * own_threads.c HOW - takes from a tracer's probes what these may depend on, then locks and counts in several threads.
 *
 * HOW: "base" has the main thread set its GS base to memory of its own, "null" load a selector into GS, "made" set the
 * base by code that is made at run time; "thread" creates a thread that no tracer sees. The numbers of all system calls
 * are computed; "unmap" unmaps all memory whose files have been named by avtrace; "calls" answers system calls of code
 * outside of the C library itself, while a timer interrupts. A thread of the C library runs at the same time; another
 * one and a child process come later, and have what the main thread has. All count until the process has no tracer.
 * Prints "counted" if no count is missing, and "kept" if GS bases and the memory there are as they were set, and no
 * system calls but the program's own had to be answered.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

enum { STEPS = 200, WORDS = 4096, UNABLE = 77 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static long words[WORDS];
static unsigned long wanted; /* the GS base; 0 if it was not set */
static volatile long one = 1;
static int done[2];
static volatile char dispatches;
static volatile long answered; /* system calls, by `answer` */
static volatile int is_foreign; /* one of them was not made by `call` */

__attribute__((noinline)) static void step(void)
{
    pthread_mutex_lock(&lock);
    count++;
    pthread_mutex_unlock(&lock);
}

static int is_traced(void)
{
    char status[1024] = "";
    int file = open("/proc/self/status", O_RDONLY);
    if (file < 0 || read(file, status, sizeof status - 1) < 0 || close(file))
        _exit(1);
    char *tracer = strstr(status, "TracerPid:");
    return tracer && atoi(tracer + strlen("TracerPid:"));
}

/* Returns the number of steps. */
static long steps(void)
{
    long made = 0;
    do {
        for (int i = 0; i < STEPS; i++, made++)
            step();
    } while (is_traced());
    return made;
}

static unsigned long base(void)
{
    unsigned long at = 0;
    syscall(SYS_arch_prctl + one - 1, ARCH_GET_GS, &at);
    return at;
}

/* Returns whether the base is the wanted one, as the first word there. */
static int is_kept(void)
{
    unsigned long there = 0;
    if (!wanted)
        return 1;
    __asm__ volatile("mov %%gs:(%1), %0" : "=r"(there) : "r"(8L));
    return base() == wanted && there == 1;
}

static void *earlier(void *unused)
{
    (void)unused;
    return (void *)steps();
}

static void *later(void *unused)
{
    (void)unused;
    long made = steps();
    return (void *)(is_kept() ? made : -1);
}

static int stranger(void *made)
{
    *(long *)made = steps();
    if (write(done[1], "x", 1) != 1)
        _exit(1);
    syscall(SYS_exit, 0);
    return 0;
}

/* Makes a system call that no function of the C library makes. */
__attribute__((noinline)) static long call(long number)
{
    __asm__ volatile("syscall\n.globl called\ncalled:" : "+a"(number) : : "rcx", "r11", "memory");
    return number;
}

static void answer(int signal, siginfo_t *info, void *context)
{
    extern char called[];
    (void)signal;
    answered++;
    is_foreign |= info->si_call_addr != called;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4711;
}

static void rings(int signal)
{
    (void)signal;
}

/* Answers system calls outside of the C library in this thread, and makes some. */
static int take_calls(void)
{
    enum { CALLS = 200 };
    char line[512];
    unsigned long start, end, first = 0, last = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "libc.so") && sscanf(line, "%lx-%lx", &start, &end) == 2) {
            first = first ? first : start;
            last = end;
        }
    if (!maps || fclose(maps) || !first)
        return 1;
    struct sigaction answers = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction alarms = {.sa_handler = rings, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGSYS, &answers, 0);
    sigaction(SIGALRM, &alarms, 0);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, first, last - first, &dispatches))
        return 1;
    dispatches = 1;
    setitimer(ITIMER_REAL, &often, 0);
    for (int i = 0; i < CALLS; i++) {
        /* Where a tracer's probes are interrupted, at first without a call of the program. */
        for (int word = 0; word < WORDS; word++)
            words[word] += one;
        for (int word = 0; word < WORDS; word++)
            words[word] -= one;
        is_foreign |= i >= CALLS / 2 && call(SYS_getppid) != 4711;
    }
    setitimer(ITIMER_REAL, &never, 0);
    is_foreign |= answered != CALLS / 2;
    return 0;
}

static int take(const char *how, long *of_stranger)
{
    if (!strcmp(how, "thread")) {
        static char stack[1 << 16] __attribute__((aligned(16)));
        unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        return clone(stranger, stack + sizeof stack, flags | (unsigned long)one << 23, of_stranger) < 0;
    }
    if (!strcmp(how, "base")) {
        wanted = (unsigned long)words;
        return syscall(SYS_arch_prctl + one - 1, ARCH_SET_GS + one - 1, words) != 0;
    }
    if (!strcmp(how, "null")) {
        __asm__ volatile("mov %0, %%gs" : : "r"((int)one - 1));
        return 0;
    }
    if (!strcmp(how, "unmap")) {
        static char maps[1 << 20];
        unsigned long start, end, length = 0;
        long more;
        int file = open("/proc/self/maps", O_RDONLY);
        while ((more = read(file, maps + length, sizeof maps - 1 - length)) > 0)
            length += more;
        for (char *line = strtok(maps, "\n"); line; line = strtok(0, "\n"))
            if (strstr(line, "/memfd:avtrace") && sscanf(line, "%lx-%lx", &start, &end) == 2)
                munmap((void *)start, end - start);
        return close(file);
    }
    if (!strcmp(how, "calls"))
        return take_calls();
    if (!strcmp(how, "made")) {
        /* `wrgsbase %rdi; ret`, each byte inverted. */
        static const unsigned char inverted[] = {0x0c, 0xb7, 0xf0, 0x51, 0x20, 0x3c};
        unsigned char *made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return 1;
        for (unsigned i = 0; i < sizeof inverted; i++)
            made[i] = inverted[i] ^ 0xff;
        wanted = (unsigned long)words;
        ((void (*)(void *))made)(words);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    pthread_t first, second;
    void *of_first, *of_second;
    long of_stranger = 0;
    char byte;
    int status = 1;
    for (int i = 0; i < WORDS; i++)
        words[i] = i;
    if (pipe(done) || pthread_create(&first, 0, earlier, 0))
        return 1;
    if (take(argc > 1 ? argv[1] : "", &of_stranger))
        return UNABLE;
    long sum = steps();
    if (pthread_create(&second, 0, later, 0))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < STEPS; i++)
            words[WORDS - 1] = one + WORDS - 2;
        _exit(!is_kept());
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (pthread_join(first, &of_first) || pthread_join(second, &of_second))
        return 1;
    if (!strcmp(argv[1], "thread") && read(done[0], &byte, 1) != 1)
        return 1;
    sum += (long)of_first + (long)of_second + of_stranger;
    int are_kept = is_kept() && !is_foreign && status == 0 && (long)of_second > 0;
    for (int i = 0; i < WORDS; i++)
        are_kept &= words[i] == i;
    printf("%s %s\n", count == sum ? "counted" : "not counted", are_kept ? "kept" : "not kept");
    return 0;
}
