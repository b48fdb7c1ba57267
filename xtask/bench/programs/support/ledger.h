// A ledger: a library that comes with a program.
#ifndef LEDGER_H
#define LEDGER_H

#include <pthread.h>

struct ledger {
    pthread_mutex_t lock;
    long entries; // guarded by lock
    long sum;     // guarded by lock
};

// Calls `between` half-way, unless it is null.
void ledger_add(struct ledger *ledger, long amount, void (*between)(void));

#endif
