/*
 * copies.c - ways to come by a SIGTRAP: a copy of code that had a breakpoint in it, and breakpoints of the program's own.
 *
 * What is done is the first argument.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "avtrace.h"
#include "threads.h"

/* The copied code refers to nothing by its own address. */
struct account {
    int (*take)(pthread_mutex_t *);
    int (*give)(pthread_mutex_t *);
    pthread_mutex_t lock;
    long balance;
};

__attribute__((noinline, noclone, used, section("copied"))) static void deposit(struct account *account)
{
    AVTRACE_BEGIN("deposit"); /* @deposit */
    account->take(&account->lock);
    account->balance += 1;
    account->give(&account->lock);
    AVTRACE_END("deposit");
}

extern const char __start_copied[], __stop_copied[];

static volatile sig_atomic_t handled;

static void handler(int signal)
{
    (void)signal;
    handled += 1;
}

static void *pages(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static void call_a_copy(struct account *account)
{
    size_t size = (size_t)(__stop_copied - __start_copied);
    char *copy = pages(size);

    memcpy(copy, __start_copied, size);
    ((void (*)(struct account *))(copy + ((const char *)deposit - __start_copied)))(account);
}

int main(int count, char **arguments)
{
    static struct account account = {pthread_mutex_lock, pthread_mutex_unlock, PTHREAD_MUTEX_INITIALIZER, 0};
    const char *what = count > 1 ? arguments[1] : "copied";

    deposit(&account);
    if (strcmp(what, "copied") == 0) {
        call_a_copy(&account);
    } else if (strcmp(what, "handled") == 0) {
        signal(SIGTRAP, handler);
        call_a_copy(&account);
        printf("%d signals\n", (int)handled);
    } else if (strcmp(what, "own") == 0) {
        __asm__ volatile("int3");
    } else if (strcmp(what, "generated") == 0) {
        char *code = pages(2);

        code[0] = (char)0xcc;
        code[1] = (char)0xc3;
        ((void (*)(void))code)();
    } else if (strcmp(what, "icebp") == 0) {
        __asm__ volatile(".byte 0xf1");
    } else if (strcmp(what, "raised") == 0) {
        raise(SIGTRAP);
    } else if (strcmp(what, "sent") == 0) {
        kill(getpid(), SIGTRAP);
        pause();
    }
    printf("%ld\n", account.balance);
    return 0;
}
