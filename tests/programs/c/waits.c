/*
 * waits.c - threads that wait in system calls while they are stopped, and must not notice: for a byte (read), for a
 * futex and for a descriptor (poll) with time limits, and in short sleeps without an end. It prints `ready`, waits for a
 * line on standard input, has all of them go on, and prints the number of calls that were interrupted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int to_read[2], to_poll[2];
static atomic_int word, over, interrupted;

static void expect(int is_whole)
{
    if (!is_whole)
        interrupted++;
}

static void *reads(void *unused)
{
    char byte;
    expect(read(to_read[0], &byte, 1) == 1);
    return unused;
}

static void *waits(void *unused)
{
    struct timespec hour = {3600, 0};
    expect(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &hour, NULL, 0) == 0 || errno == EAGAIN);
    return unused;
}

static void *polls(void *unused)
{
    struct pollfd polled = {to_poll[0], POLLIN, 0};
    expect(poll(&polled, 1, 3600 * 1000) == 1);
    return unused;
}

static void *sleeps(void *unused)
{
    struct timespec moment = {0, 10 * 1000 * 1000};
    while (!over)
        expect(nanosleep(&moment, NULL) == 0);
    return unused;
}

int main(void)
{
    pthread_t threads[4];
    void *(*const bodies[])(void *) = {reads, waits, polls, sleeps};
    if (pipe(to_read) || pipe(to_poll))
        return 1;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, bodies[i], NULL);
    puts("ready");
    fflush(stdout);
    getchar();
    over = 1;
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
    if (write(to_read[1], "", 1) != 1 || write(to_poll[1], "", 1) != 1)
        return 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%d interrupted\n", (int)interrupted);
    return 0;
}
