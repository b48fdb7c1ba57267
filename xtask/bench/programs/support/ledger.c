// The ledger's one function, which is not atomic.
#include "ledger.h"

void ledger_add(struct ledger *ledger, long amount, void (*between)(void))
{
    pthread_mutex_lock(&ledger->lock);
    long sum = ledger->sum;
    ledger->entries++;
    pthread_mutex_unlock(&ledger->lock);
    if (between)
        between();
    pthread_mutex_lock(&ledger->lock);
    ledger->sum = sum + amount;
    pthread_mutex_unlock(&ledger->lock);
}
