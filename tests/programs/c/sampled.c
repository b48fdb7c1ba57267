// A program that receives signals in code with probes, until it reads a line: from a timer (`timer`), or for faults
// whose handler skips the instruction (`faults`). Prints "ready", and in the end how many signals have found it outside
// of its own code.
#define _GNU_SOURCE
#include <avtrace.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

extern char __executable_start, etext;
static volatile long account, other, signals, outside;
static volatile int in_own_code;

static void handler(int number, siginfo_t *info, void *context) {
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t place = (uintptr_t)registers[REG_RIP];
    if (!in_own_code)
        return;
    ++signals;
    outside += place < (uintptr_t)&__executable_start || place >= (uintptr_t)&etext;
    if (number == SIGSEGV)
        registers[REG_RIP] += 3; // The length of the instruction.
}

__attribute__((noinline)) static void update(void) {
    for (int i = 0; i < 500; ++i) {
        AVTRACE_BEGIN("update");
        account += i;
        other -= i;
        AVTRACE_END("update");
        // Also outside of the code of probes: a thread that is never there cannot be left without them.
        for (int step = 0; step < 5000; ++step)
            __asm__ volatile("");
    }
}

// Nothing can be read or written there. The instruction has three bytes, as `handler` knows.
__attribute__((noinline)) static void fault(long *nowhere) {
    AVTRACE_BEGIN("fault");
    account += 1;
    __asm__ volatile("mov (%0), %%rax" ::"r"(nowhere) : "rax", "memory");
    other -= 1;
    AVTRACE_END("fault");
}

int main(int count, char **arguments) {
    int faults = count > 1 && strcmp(arguments[1], "faults") == 0;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    long *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct itimerval often = {{0, 3000}, {0, 3000}};
    if (!faults)
        setitimer(ITIMER_REAL, &often, NULL);
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) <= 0) {
        in_own_code = 1;
        if (faults)
            for (int i = 0; i < 100; ++i)
                fault(nowhere);
        else
            update();
        in_own_code = 0;
    }
    printf("%s, %ld outside\n", signals > 0 ? "signals" : "none", outside);
}
