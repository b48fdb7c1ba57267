/*
 * remaps.c - a program that moves its code to other memory at the same address when it starts, as programs do that want
 * it on large pages.
 *
 * Where breakpoints are in it by then, they are moved as well, and the kernel does not know them there.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "avtrace.h"
#include "threads.h"

#define PAGE 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance; /* guarded by lock */

/* The code that is moved has a page of its own, and so has what moves it. */
__attribute__((noinline, noclone, used, section("moved"), aligned(PAGE))) static void *deposit(void *unused)
{
    AVTRACE_BEGIN("deposit");
    pthread_mutex_lock(&lock);
    balance += 1;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("deposit");
    return unused;
}

/* The name that Intel's library for this has. */
__attribute__((noinline, section("mover"), aligned(PAGE))) int MapStaticCodeToLargePages(void)
{
    char *code = (char *)((unsigned long)deposit & -(unsigned long)PAGE);
    char *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED) {
        return 1;
    }
    memcpy(copy, code, PAGE);
    return mremap(copy, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code) == MAP_FAILED;
}

int main(void)
{
    if (MapStaticCodeToLargePages() != 0) {
        perror("mremap");
        return 1;
    }
    pthread_t first = start(deposit, NULL), second = start(deposit, NULL);

    join(first);
    join(second);
    printf("%ld\n", balance);
    return 0;
}
