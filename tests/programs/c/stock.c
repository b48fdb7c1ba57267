/*
 * stock.c - the library of depot.c: each function but `stock_move` and `stock_take` holds the lock all the while. With
 * -DVENDORED it is a part of the program, and its source is in a folder of vendored code.
 */
#include "stock.h"

#include <pthread.h>

#ifdef VENDORED
#line 1 "vendor/stock/stock.c"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long stock = 1000; /* guarded by lock */
static volatile int takes;

long stock_get(void)
{
    pthread_mutex_lock(&lock);
    long value = stock;
    pthread_mutex_unlock(&lock);
    return value;
}

void stock_set(long value)
{
    pthread_mutex_lock(&lock);
    stock = value;
    pthread_mutex_unlock(&lock);
}

void stock_add(long amount)
{
    pthread_mutex_lock(&lock);
    stock += amount;
    pthread_mutex_unlock(&lock);
}

void stock_move(long amount, void (*between)(void))
{
    pthread_mutex_lock(&lock);
    long before = stock;
    pthread_mutex_unlock(&lock);
    between();
    pthread_mutex_lock(&lock);
    stock = before - amount;
    pthread_mutex_unlock(&lock);
}

/* With -fPIC, calls of exported functions go through the linker's stubs. */
void stock_take(long amount, void (*between)(void))
{
    long before = stock_get();
    between();
    stock_set(before - amount);
    takes = takes + 1;
}
