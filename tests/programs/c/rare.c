/*
 * rare.c MODE - an account whose deposits are two critical sections, by two threads that rest in between.
 *
 * lost: prints the balance, and fails when a deposit was lost.
 * crash: aborts when a deposit was lost; hang: waits for ever then; fork: a child process does all of it.
 * whole: with one critical section, so that nothing is to be found.
 * deadlock: each thread takes two more locks in its own order, and makes the deposit with the first of them held, at
 *   times that only delays bring together.
 * stuck FILE: as lost, but waits for ever when the file is not there, which it makes.
 * late: as whole, and fails when its time is over.
 * closed: one thread closes the account and opens it again; the other one aborts when it finds it closed, with the lock
 *   held, so that it cannot be opened before the program is dead.
 * early: the program ends while a thread still makes deposits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPOSITS 30
#define REST_US 1000
#define TURN_US 20000
#define CLOSED -1

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance; /* guarded by lock */
static int is_whole;

__attribute__((noinline)) static long get(void)
{
    pthread_mutex_lock(&lock);
    long now = balance;
    pthread_mutex_unlock(&lock);
    return now;
}

__attribute__((noinline)) static void set(long now)
{
    pthread_mutex_lock(&lock);
    balance = now;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void deposit(long amount)
{
    long now = get();
    set(now + amount);
}

__attribute__((noinline)) static void deposit_whole(long amount)
{
    pthread_mutex_lock(&lock);
    balance += amount;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void close_and_open(void)
{
    pthread_mutex_lock(&lock);
    balance = CLOSED;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
    balance = 0;
    pthread_mutex_unlock(&lock);
}

static void *closings(void *unused)
{
    for (int i = 0; i < DEPOSITS; i++) {
        close_and_open();
        usleep(REST_US);
    }
    return unused;
}

static void *looks(void *unused)
{
    for (int i = 0; i < DEPOSITS; i++) {
        pthread_mutex_lock(&lock);
        if (balance == CLOSED)
            abort();
        pthread_mutex_unlock(&lock);
        usleep(REST_US);
    }
    return unused;
}

static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static struct timespec begun;

static void sleep_until(long us)
{
    struct timespec at = begun;

    at.tv_nsec += us * 1000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void *crossed_deposits(void *first)
{
    for (int i = 0; i < DEPOSITS; i++) {
        sleep_until(i * TURN_US + (long)first * TURN_US / 2);
        pthread_mutex_lock(&locks[(long)first]);
        deposit(1);
        pthread_mutex_lock(&locks[1 - (long)first]);
        pthread_mutex_unlock(&locks[1 - (long)first]);
        pthread_mutex_unlock(&locks[(long)first]);
    }
    return first;
}

static void *deposits(void *unused)
{
    for (int i = 0; i < DEPOSITS; i++) {
        if (is_whole)
            deposit_whole(1);
        else
            deposit(1);
        usleep(REST_US);
    }
    return unused;
}

static double seconds_since_begun(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - begun.tv_sec + (now.tv_nsec - begun.tv_nsec) / 1e9;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "lost";
    pthread_t one, other;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (strcmp(mode, "stuck") == 0 && access(argv[2], F_OK) != 0) {
        close(creat(argv[2], 0600));
        pause();
    }

    if (strcmp(mode, "fork") == 0 && fork() != 0) {
        int status = 1;

        wait(&status);
        return WEXITSTATUS(status);
    }
    is_whole = strcmp(mode, "whole") == 0 || strcmp(mode, "late") == 0;
    if (strcmp(mode, "closed") == 0) {
        pthread_create(&one, NULL, closings, NULL);
        pthread_create(&other, NULL, looks, NULL);
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        return 0;
    }
    int is_crossed = strcmp(mode, "deadlock") == 0;

    pthread_create(&one, NULL, is_crossed ? crossed_deposits : deposits, (void *)0L);
    usleep(REST_US / 2);
    pthread_create(&other, NULL, is_crossed ? crossed_deposits : deposits, (void *)1L);
    pthread_join(one, NULL);
    if (strcmp(mode, "early") == 0)
        return 0;
    pthread_join(other, NULL);
    printf("balance: %ld\n", balance);
    if (strcmp(mode, "late") == 0)
        return argc > 2 && seconds_since_begun() > atof(argv[2]);
    if (balance == 2 * DEPOSITS)
        return 0;
    if (strcmp(mode, "crash") == 0)
        abort();
    if (strcmp(mode, "hang") == 0)
        pause();
    return 1;
}
