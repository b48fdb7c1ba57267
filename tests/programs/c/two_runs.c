/*
 * two_runs.c [apart] - two regions that are split, and others that are not.
 *
 * `transfer` and `reserve` take their locks twice, and the other thread's `audit` and `sell` come in between: pipes see
 * to that. Before, both threads do `tally` and `refill` in turn, which are atomic. With `apart` nothing comes in
 * between. With -DMARKED regions are marked, else they are functions; with -DWITHOUT_RESERVE `reserve` is missing.
 */
#include <string.h>

#ifdef MARKED
#include "avtrace.h"
#define REGION(name) AVTRACE_REGION(name)
#else
#define REGION(name)
#endif

#include "threads.h"
#include "two_turns.h"

#define NOINLINE __attribute__((noinline))
#define ENTRIES 64
#define ROUNDS 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t seats_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long table[ENTRIES]; /* guarded by lock, as all below but seats */
static volatile long stock[ENTRIES];
static volatile long balance = 1000;
static volatile long seats = 40; /* guarded by seats_lock */
static int apart;

static void meet(void)
{
    if (!apart)
        let_other();
}

static NOINLINE void tally(void)
{
    REGION("tally");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ENTRIES; i++)
        table[i] = table[i] + i;
    pthread_mutex_unlock(&lock);
}

static NOINLINE void refill(void)
{
    REGION("refill");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ENTRIES; i++)
        stock[i] = stock[i] + table[i];
    pthread_mutex_unlock(&lock);
}

static NOINLINE void transfer(long amount)
{
    REGION("transfer");
    pthread_mutex_lock(&lock);
    long before = balance;                     /* @transfer_reads */
    pthread_mutex_unlock(&lock);
    meet();
    pthread_mutex_lock(&lock);
    balance = before - amount;                 /* @transfer_writes */
    pthread_mutex_unlock(&lock);
}

static NOINLINE void audit(void)
{
    REGION("audit");
    pthread_mutex_lock(&lock);
    balance = balance - 5;
    pthread_mutex_unlock(&lock);
}

#ifndef WITHOUT_RESERVE
static NOINLINE void reserve(void)
{
    REGION("reserve");
    pthread_mutex_lock(&seats_lock);
    long free_seats = seats;
    pthread_mutex_unlock(&seats_lock);
    meet();
    pthread_mutex_lock(&seats_lock);
    seats = free_seats - 1;
    pthread_mutex_unlock(&seats_lock);
}
#else
static void reserve(void)
{
    meet();
}
#endif

static NOINLINE void sell(void)
{
    REGION("sell");
    pthread_mutex_lock(&seats_lock);
    seats = seats - 2;
    pthread_mutex_unlock(&seats_lock);
}

static void *first(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        tally();
        refill();
        let_other();
    }
    transfer(100);
    reserve();
    if (apart) {
        let_other();
        let_other();
    }
    return unused;
}

static void *second(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        await_turn(go_other);
        tally();
        refill();
        give_turn(go_on);
    }
    await_turn(go_other);
    audit();
    give_turn(go_on);
    await_turn(go_other);
    sell();
    give_turn(go_on);
    return unused;
}

int main(int argc, char **argv)
{
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    make_turns();
    pthread_t one = start(first, NULL);
    pthread_t other = start(second, NULL);

    join(one);
    join(other);
    printf("%ld %ld\n", balance, seats);
    return 0;
}
