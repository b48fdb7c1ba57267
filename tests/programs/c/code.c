/*
 * code.c KIND - code that is not only executed where it was loaded. Prints what came out of it.
 *
 *     copied     a function is copied to other memory, before and after it ran, and the copies are executed
 *     compared   two copies of a function, of which one ran before, are compared; and the function with its own bytes of
 *                before it ran
 *     summed     the program adds the bytes of a function up and compares the sum with the one in its file
 *     generated  a function that takes the lock is written to memory, executed, and overwritten by another one
 *     replaced   the page of a function is unmapped, and other code is mapped in its place
 *     leaf       functions with markers that keep a value below the stack pointer, also in a child process
 *
 * What is copied refers to nothing by its own address.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "avtrace.h"
#include "threads.h"

enum { PAGE = 4096, TIMES = 100 };

struct account {
    int (*take)(pthread_mutex_t *);
    int (*give)(pthread_mutex_t *);
    pthread_mutex_t lock;
    long balance;
};

static struct account account = {pthread_mutex_lock, pthread_mutex_unlock, PTHREAD_MUTEX_INITIALIZER, 0};

/* It has a page of its own. */
__attribute__((noinline, noclone, used, section("copied"), aligned(PAGE))) static void deposit(struct account *to)
{
    AVTRACE_BEGIN("deposit");
    to->take(&to->lock);
    to->balance += 1;
    to->give(&to->lock);
    AVTRACE_END("deposit");
}

extern const char __start_copied[], __stop_copied[];

static size_t size(void)
{
    return (size_t)(__stop_copied - __start_copied);
}

static void *pages(void)
{
    void *memory =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static void call(void *code)
{
    ((void (*)(struct account *))code)(&account);
}

static void *copies(void *unused)
{
    for (int time = 0; time < TIMES; time++) {
        char *copy = pages();

        memcpy(copy, __start_copied, size());
        call(copy);
        deposit(&account);
        call(copy);
        munmap(copy, PAGE);
    }
    return unused;
}

static void compare(void)
{
    char *before = pages(), *after = pages();

    memcpy(before, __start_copied, size());
    deposit(&account);
    memcpy(after, __start_copied, size());
    printf("%d %d\n", memcmp(before, after, size()), memcmp(before, __start_copied, size()));
}

static unsigned long sum(const unsigned char *bytes)
{
    unsigned long sum = 0;

    for (size_t at = 0; at < size(); at++)
        sum = sum * 31 + bytes[at];
    return sum;
}

/* The distance of the code in memory is that in the file, in this program. */
static void check_sum(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long from = 0, to = 0, offset = 0;

    while (maps != NULL && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3 && from <= (unsigned long)__start_copied
            && (unsigned long)__start_copied < to)
            break;

    static unsigned char original[PAGE];
    int file = open("/proc/self/exe", O_RDONLY);

    if (pread(file, original, size(), (off_t)((unsigned long)__start_copied - from + offset)) != (ssize_t)size())
        exit(1);
    puts(sum(original) == sum((const unsigned char *)__start_copied) ? "whole" : "changed");
}

/* mov $VALUE,%eax; ret */
static void write_code(unsigned char *code, unsigned char value)
{
    const unsigned char bytes[] = {0xb8, value, 0, 0, 0, 0xc3};

    memcpy(code, bytes, sizeof bytes);
}

static void generate(void)
{
    unsigned char *code = pages();
    long total = 0;

    for (int time = 0; time < TIMES; time++) {
        write_code(code, (unsigned char)time);
        total += ((int (*)(void))code)();
    }
    printf("%ld\n", total);
}

/* The page behind it begins with another function. */
__attribute__((noinline, noclone, used, section("own_page"), aligned(PAGE))) static int locked(struct account *in)
{
    AVTRACE_BEGIN("locked");
    in->take(&in->lock);
    in->balance += 1;
    in->give(&in->lock);
    AVTRACE_END("locked");
    return 1;
}

__attribute__((noinline, noclone, used, section("next_page"), aligned(PAGE))) static void next(void)
{
}

static void replace(void)
{
    char *code = (char *)locked;

    printf("%d\n", locked(&account));
    next();
    if (munmap(code, PAGE) != 0
        || mmap(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != code) {
        perror("mmap");
        exit(1);
    }
    write_code((unsigned char *)code, 7);
    printf("%d\n", ((int (*)(void))code)());
}

/* Values below the stack pointer, across a marker. */
__attribute__((noinline)) static long leaf(long from)
{
    volatile long kept[8];

    for (int at = 0; at < 8; at++)
        kept[at] = from + at;
    AVTRACE_BEGIN("leaf");
    AVTRACE_END("leaf");

    long sum = 0;

    for (int at = 0; at < 8; at++)
        sum += kept[at] - at;
    return sum / 8;
}

static int leaves_are_wrong(void)
{
    int wrong = 0;

    for (long time = 0; time < 10L * TIMES; time++)
        wrong += leaf(time) != time;
    return wrong;
}

static void *leaves(void *unused)
{
    if (leaves_are_wrong())
        puts("wrong in a thread");
    return unused;
}

static void keep_below(void)
{
    pthread_t one = start(leaves, NULL), two = start(leaves, NULL);
    int status;

    join(one);
    join(two);

    pid_t child = fork();

    if (child == 0)
        _exit(leaves_are_wrong() != 0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        puts("wrong in the child");
    puts("done");
}

int main(int count, char **arguments)
{
    const char *kind = count > 1 ? arguments[1] : "";

    if (strcmp(kind, "copied") == 0) {
        pthread_t one = start(copies, NULL), two = start(copies, NULL);

        join(one);
        join(two);
        printf("%ld\n", account.balance);
    } else if (strcmp(kind, "compared") == 0) {
        compare();
    } else if (strcmp(kind, "summed") == 0) {
        deposit(&account);
        check_sum();
    } else if (strcmp(kind, "generated") == 0) {
        generate();
    } else if (strcmp(kind, "replaced") == 0) {
        replace();
    } else if (strcmp(kind, "leaf") == 0) {
        keep_below();
    } else {
        return 2;
    }
    return 0;
}
