/*
 * hostile.c [HOW [wait]] - `transfer` is split by `audit`, and after that the process does to itself what programs
 * rarely do. With `wait` it prints "ready", and begins when it has read a line.
 *
 * descriptors: it has closed all descriptors but those of standard output, before the threads start.
 * signals: it has blocked all signals.
 * space: it maps memory until its address space is used up, and gives it back after the split.
 * forks: 100 children, each of which has forked once more.
 * threads: 500 threads stand at a barrier while it happens.
 * code: it maps, runs and unmaps code 200 times.
 * dead: it dies of SIGSEGV within a region, in a thread with all signals blocked.
 * killed: it kills itself within a region.
 * stopped: it stops itself within a region; somebody else continues it.
 * exits: `_exit` within a region, by another thread than the main one.
 * unwinds: it unwinds its stack within nested regions, and ends the thread there by pthread_exit, whose handlers run.
 * execs: it executes itself, with the argument "code", from another thread than the main one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#define THREADS 500
#define FORKS 100

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000;
static turn_t go_transfer, go_audit;
static const char *how = "";
static volatile int *volatile nowhere;

static int is(const char *name)
{
    return strcmp(how, name) == 0;
}

__attribute__((noinline)) static void transfer(void)
{
    AVTRACE_REGION("transfer");

    pthread_mutex_lock(&lock);
    long before = balance;
    pthread_mutex_unlock(&lock);
    give_turn(go_audit);
    await_turn(go_transfer);
    pthread_mutex_lock(&lock);
    balance = before - 100;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void audit(void)
{
    AVTRACE_REGION("audit");

    pthread_mutex_lock(&lock);
    balance -= 5;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void ends(void)
{
    AVTRACE_REGION("ends");

    pthread_mutex_lock(&lock);
    balance++;
    if (is("dead"))
        *nowhere = 1;
    if (is("killed"))
        kill(getpid(), SIGKILL);
    if (is("stopped"))
        kill(getpid(), SIGSTOP);
    if (is("exits"))
        _exit(9);
    pthread_mutex_unlock(&lock);
}

static void *run_transfer(void *unused)
{
    await_turn(go_transfer);
    transfer();
    return unused;
}

static void *run_audit(void *unused)
{
    await_turn(go_audit);
    audit();
    give_turn(go_transfer);
    return unused;
}

static void *run_ends(void *unused)
{
    ends();
    return unused;
}

static void split(void)
{
    pthread_t first = start(run_transfer, NULL), second = start(run_audit, NULL);

    give_turn(go_transfer);
    join(first);
    join(second);
}

static pthread_barrier_t barrier;
static pthread_mutex_t standing = PTHREAD_MUTEX_INITIALIZER;

static void *stand(void *unused)
{
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&standing);
    pthread_mutex_unlock(&standing);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void many_threads(void)
{
    static pthread_t threads[THREADS];

    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(stand, NULL);
    pthread_barrier_wait(&barrier);
    split();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

static int many_forks(void)
{
    int failed = 0;

    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();

        if (child == 0) {
            pid_t grandchild = fork();
            int status = 1;

            if (grandchild == 0)
                _exit(3);
            waitpid(grandchild, &status, 0);
            _exit(WEXITSTATUS(status) + 1);
        }

        int status = 1;

        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 4)
            failed++;
    }
    return failed;
}

static int own_code(void)
{
    /* mov eax, 7; ret */
    static const unsigned char code[] = {0xb8, 7, 0, 0, 0, 0xc3};
    int sum = 0;

    for (int i = 0; i < 200; i++) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int (*run)(void);

        memcpy(page, code, sizeof code);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        memcpy(&run, &page, sizeof run);
        sum += run();
        munmap(page, 4096);
    }
    return sum;
}

/* Prints the files of all callers. */
static void print_callers(void)
{
    void *callers[64];
    int count = backtrace(callers, 64);

    printf("%d callers:", count);
    for (int i = 0; i < count; i++) {
        Dl_info info;
        const char *slash = dladdr(callers[i], &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;

        printf(" %s", slash ? slash + 1 : "?");
    }
    printf("\n");
}

static void unlock(void *mutex)
{
    pthread_mutex_unlock(mutex);
    print_callers();
}

__attribute__((noinline)) static void inner(int depth)
{
    AVTRACE_REGION("inner");

    pthread_mutex_lock(&lock);
    pthread_cleanup_push(unlock, &lock);
    balance++;
    if (depth == 0) {
        print_callers();
        if (nowhere == NULL)
            pthread_exit(NULL);
    }
    pthread_cleanup_pop(1);
    if (depth > 0)
        inner(depth - 1);
    balance--;
}

static void *unwind(void *unused)
{
    inner(3);
    return unused;
}

static void *execute(void *program)
{
    fflush(stdout);
    execl(program, program, "code", NULL);
    return NULL;
}

/* Takes all that is left, in ever smaller pieces. */
static int use_up(void)
{
    int pieces = 0;

    for (size_t size = 1ul << 40; size >= 4096; size /= 2)
        while (mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
            pieces++;
    return pieces;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        how = argv[1];
    if (argc > 2) {
        printf("ready\n");
        fflush(stdout);
        if (getchar() != '\n')
            return 1;
    }
    if (is("descriptors"))
        syscall(SYS_close_range, 3, ~0u, 0);
    make_turn(go_transfer);
    make_turn(go_audit);
    if (is("signals")) {
        sigset_t all;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    if (is("threads"))
        many_threads();
    else
        split();
    if (is("forks"))
        printf("forks that failed: %d\n", many_forks());
    if (is("code"))
        printf("sum: %d\n", own_code());
    if (is("space")) {
        struct rlimit limit = {3ul << 30, 3ul << 30};

        setrlimit(RLIMIT_AS, &limit);
        printf("used up: %d\n", use_up() > 0);
        audit();
    }
    if (is("unwinds"))
        join(start(unwind, NULL));
    printf("balance: %ld\n", balance);
    fflush(stdout);
    if (is("dead") || is("killed") || is("exits") || is("stopped"))
        join(start(run_ends, NULL));
    if (is("execs"))
        join(start(execute, argv[0]));
    printf("end\n");
    return 5;
}
