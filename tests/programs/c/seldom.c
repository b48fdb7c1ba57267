/*
 * seldom.c - functions that take a lock, and wait: only before the program is aborted, or for a futex.
 *
 * It is not run: what would be watched is listed.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "threads.h"

#define NOINLINE __attribute__((noinline))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned word;
static long total;

static NOINLINE void give_up(const char *why)
{
    fputs(why, stderr);
    sleep(1);
    abort();
}

NOINLINE void checked(long amount)
{
    pthread_mutex_lock(&lock);
    if (amount < 0)
        give_up("negative");
    assert(amount != 7);
    total += amount;
    pthread_mutex_unlock(&lock);
}

NOINLINE void flushed(long amount)
{
    pthread_mutex_lock(&lock);
    if (amount == 3) {
        usleep(1);
        abort();
    }
    total += amount;
    pthread_mutex_unlock(&lock);
}

NOINLINE void woken(long amount)
{
    pthread_mutex_lock(&lock);
    total += amount;
    pthread_mutex_unlock(&lock);
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    pthread_mutex_lock(&lock);
    total -= amount;
    pthread_mutex_unlock(&lock);
}

NOINLINE void waking(long amount)
{
    pthread_mutex_lock(&lock);
    total += amount;
    pthread_mutex_unlock(&lock);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static NOINLINE void word_lock_slow(void)
{
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 2, NULL, NULL, -1);
}

NOINLINE void contending(long amount)
{
    word_lock_slow();
    pthread_mutex_lock(&lock);
    total += amount;
    pthread_mutex_unlock(&lock);
}

NOINLINE void napping(long amount)
{
    pthread_mutex_lock(&lock);
    if (amount == 3)
        usleep(1);
    total += amount;
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    (void)argv;
    checked(argc);
    flushed(argc);
    waking(argc);
    napping(argc);
    contending(argc);
    woken(argc);
    return 0;
}
