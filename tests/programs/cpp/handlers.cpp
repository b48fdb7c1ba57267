/*
 * handlers.cpp KIND TIMES - handlers of signals that look at the place which they have interrupted, or go on elsewhere.
 *
 * cancel   threads are cancelled asynchronously in code that only accesses memory: destructors and cleanup handlers run
 * throw    the handler of SIGSEGV throws through the function that has made the fault
 * jump     it jumps out
 * mend     it makes the page accessible and returns, so that the same instruction is executed again
 * skip     it returns behind the instruction
 * profile  the handler of a timer takes a backtrace, which is to begin in a known function and to come to main
 * divide   the handler of SIGFPE compares the address of the fault with the place of the thread, and jumps out
 * switch   the handler of a timer switches to another context, which goes on elsewhere
 * restart  a signal comes again and again while SIGSEGV is mended
 * generated  it decodes the instruction that has made the fault, in code that the program has generated, and skips it
 * decode   the same in code of the program's file, where a line of instructions begins with it
 *
 * Prints what was done TIMES times. All memory is that of one thread, or is under a lock.
 */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline))

static volatile long data[8];
static std::mutex lock;
static long total; /* guarded by lock */
static long times, count;
static char *page;
static long *volatile nowhere = (long *)16; /* is not mapped */
static const size_t PAGE = 4096;

static void on(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {};

    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    sigaction(signal, &action, nullptr);
}

static void tick_every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};

    setitimer(ITIMER_REAL, &timer, nullptr);
}

NOINLINE static void hot(volatile long *x, long rounds)
{
    for (long i = 0; i != rounds; i++) {
        x[0]++;
        x[1] += x[0];
        x[2] ^= x[1];
        x[3] = x[2] - 1;
    }
}

/* cancel */

static long destructors, cleanups; /* written before each join */

struct Guard {
    ~Guard() { destructors++; }
};

static void clean(void *) { cleanups++; }

NOINLINE static void hot_forever(volatile long *x)
{
    for (;;) {
        x[0]++;
        x[1] += x[0];
        x[2] ^= x[1];
        x[3] = x[2] - 1;
    }
}

static int started[2];

static void *until_cancelled(void *)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    volatile long own[4] = {};
    pthread_cleanup_push(clean, nullptr);
    Guard guard;
    char byte = 1;
    if (write(started[1], &byte, 1) == 1)
        hot_forever(own);
    pthread_cleanup_pop(0);
    return nullptr;
}

static void cancel()
{
    if (pipe(started) != 0)
        abort();
    for (long i = 0; i < times; i++) {
        pthread_t thread;
        char byte;
        pthread_create(&thread, nullptr, until_cancelled, nullptr);
        if (read(started[0], &byte, 1) != 1)
            abort();
        usleep(1000);
        pthread_cancel(thread);
        pthread_join(thread, nullptr);
    }
    printf("destructors: %ld, cleanup handlers: %ld\n", destructors, cleanups);
}

/* throw */

static void throws(int, siginfo_t *, void *) { throw std::runtime_error("fault"); }

NOINLINE static long region(volatile long *p)
{
    std::lock_guard<std::mutex> guard(lock);

    total++;
    total += *p;
    total += p[1];
    return total;
}

NOINLINE static long touch(volatile long *p)
{
    data[0]++;
    data[1] += *p;
    data[2] += p[1];
    return data[1] + data[2];
}

static void do_throw()
{
    on(SIGSEGV, throws, SA_NODEFER);
    for (long i = 0; i < times; i++) {
        try {
            if (i % 2)
                region(nowhere);
            else
                touch(nowhere);
        } catch (std::runtime_error &) {
            count++;
        }
    }
    printf("caught: %ld, total %ld, touched %ld\n", count, total, data[0]);
}

/* jump */

static sigjmp_buf out;

static void jumps(int, siginfo_t *, void *) { siglongjmp(out, 1); }

static void jump()
{
    on(SIGSEGV, jumps, 0);
    for (volatile long i = 0; i < times; i++) {
        if (sigsetjmp(out, 1) == 0)
            touch(nowhere);
        else
            count++;
    }
    printf("jumps: %ld, touched %ld\n", count, data[0]);
}

/* mend and restart */

static void mends(int, siginfo_t *info, void *)
{
    if ((char *)info->si_addr < page || (char *)info->si_addr >= page + PAGE)
        abort();
    count++;
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static volatile sig_atomic_t ticks;

static void ticks_on(int, siginfo_t *, void *) { ticks++; }

static void mend(bool restarts)
{
    volatile long *words = (volatile long *)page;

    on(SIGSEGV, mends, 0);
    if (restarts) {
        on(SIGALRM, ticks_on, SA_RESTART);
        tick_every(200);
    }
    for (long i = 0; i < times; i++) {
        mprotect(page, PAGE, PROT_NONE);
        touch(words);
        words[0]++;
        words[1] += 2;
    }
    tick_every(0);
    printf("mended: %ld, words %ld %ld, touched %ld, sum %ld\n", count, words[0], words[1], data[0],
           data[1] + data[2]);
}

/* skip */

static void skips(int, siginfo_t *, void *context)
{
    auto *machine = &((ucontext_t *)context)->uc_mcontext;

    count++;
    machine->gregs[REG_RAX] = 5;
    /* mov (%rdi), %rax */
    machine->gregs[REG_RIP] += 3;
}

NOINLINE static long load(long *p)
{
    long value;

    data[3]++;
    __asm__ volatile("movq (%1), %0" : "=a"(value) : "D"(p) : "memory");
    data[4] += value;
    return value;
}

static void skip()
{
    long sum = 0;

    on(SIGSEGV, skips, 0);
    for (long i = 0; i < times; i++)
        sum += load(nowhere);
    printf("skipped: %ld, sum %ld %ld, loads %ld\n", count, sum, data[4], data[3]);
}

/* generated and decode */

static const unsigned char LOAD[] = {0x48, 0x8b, 0x07}; /* mov (%rdi), %rax */
static long foreign;

static void decodes(int, siginfo_t *, void *context)
{
    auto *machine = &((ucontext_t *)context)->uc_mcontext;

    count++;
    foreign += memcmp((void *)machine->gregs[REG_RIP], LOAD, sizeof LOAD) != 0;
    machine->gregs[REG_RAX] = 5;
    machine->gregs[REG_RIP] += sizeof LOAD;
}

/* Begins with LOAD. */
extern "C" long load_first(long *from, long *to);
__asm__(".text\n"
        ".type load_first, @function\n"
        "load_first:\n"
        ".cfi_startproc\n"
        "movq (%rdi), %rax\n"
        "movq %rax, (%rsi)\n"
        "movq %rax, 8(%rsi)\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size load_first, .-load_first\n");

static void decode(bool is_generated)
{
    unsigned char *code = (unsigned char *)mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = 0;

    memcpy(code, LOAD, sizeof LOAD);
    code[sizeof LOAD] = 0xc3; /* ret */
    mprotect(code, PAGE, PROT_READ | PROT_EXEC);
    long (*function)(long *, long *) = is_generated ? (long (*)(long *, long *))code : load_first;
    on(SIGSEGV, decodes, 0);
    for (long i = 0; i < times; i++) {
        touch(data);
        sum += function(nowhere, (long *)page);
    }
    printf("decoded: %ld, not the program's own: %ld, sum %ld\n", count, foreign, sum);
}

/* profile */

int main(int argc, char **argv);

static volatile long samples, cut, strange;

struct Walk {
    bool has_main;
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *walk)
{
    void *place = (void *)_Unwind_GetIP(context);

    if (_Unwind_FindEnclosingFunction(place) == (void *)main)
        ((Walk *)walk)->has_main = true;
    return _URC_NO_REASON;
}

static void samples_on(int, siginfo_t *, void *context)
{
    auto *machine = &((ucontext_t *)context)->uc_mcontext;
    Walk walk = {false};

    _Unwind_Backtrace(step, &walk);
    samples++;
    cut += !walk.has_main;
    strange += !_Unwind_FindEnclosingFunction((void *)(machine->gregs[REG_RIP] + 1));
}

NOINLINE static void profile()
{
    _Unwind_FindEnclosingFunction((void *)main);
    on(SIGALRM, samples_on, SA_RESTART);
    tick_every(2000);
    while (samples < times)
        hot(data, 1000);
    tick_every(0);
    printf("samples are %s, %ld cut off, %ld at strange places\n", samples < times ? "few" : "enough", cut,
           strange);
}

/* divide */

static volatile long wrong;

static void divides(int, siginfo_t *info, void *context)
{
    void *place = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

    wrong += info->si_addr != place;
    siglongjmp(out, 1);
}

NOINLINE static void divide(volatile long *x, long by)
{
    x[0]++;
    x[1] = x[0] / by;
    x[2] = x[1] + 1;
}

static void do_divide()
{
    on(SIGFPE, divides, 0);
    for (volatile long i = 0; i < times; i++) {
        if (sigsetjmp(out, 1) == 0)
            divide(data, 0);
        else
            count++;
    }
    printf("divisions: %ld, wrong addresses: %ld, begun %ld\n", count, wrong, data[0]);
}

/* switch */

static ucontext_t contexts[2];
static volatile int current;
static volatile long switches;

static void switches_on(int, siginfo_t *, void *)
{
    int from = current;

    switches++;
    current = 1 - from;
    swapcontext(&contexts[from], &contexts[1 - from]);
}

static volatile long rounds[2][4];

static void second()
{
    sigset_t alarm;

    /* Not before the switch is complete. */
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
    for (;;)
        hot(rounds[1], 1000);
}

static void do_switch()
{
    static char stack[256 * 1024];

    getcontext(&contexts[1]);
    sigaddset(&contexts[1].uc_sigmask, SIGALRM);
    contexts[1].uc_stack.ss_sp = stack;
    contexts[1].uc_stack.ss_size = sizeof stack;
    contexts[1].uc_link = nullptr;
    makecontext(&contexts[1], second, 0);
    on(SIGALRM, switches_on, SA_RESTART);
    tick_every(2000);
    while (switches < times || rounds[1][0] == 0)
        hot(rounds[0], 1000);
    tick_every(0);
    printf("switches are %s\n", switches < times ? "few" : "enough");
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";

    times = argc > 2 ? atol(argv[2]) : 100;
    page = (char *)mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (strcmp(kind, "cancel") == 0)
        cancel();
    else if (strcmp(kind, "throw") == 0)
        do_throw();
    else if (strcmp(kind, "jump") == 0)
        jump();
    else if (strcmp(kind, "mend") == 0)
        mend(false);
    else if (strcmp(kind, "restart") == 0)
        mend(true);
    else if (strcmp(kind, "skip") == 0)
        skip();
    else if (strcmp(kind, "generated") == 0)
        decode(true);
    else if (strcmp(kind, "decode") == 0)
        decode(false);
    else if (strcmp(kind, "profile") == 0)
        profile();
    else if (strcmp(kind, "divide") == 0)
        do_divide();
    else if (strcmp(kind, "switch") == 0)
        do_switch();
    else
        return 2;
    return 7;
}
