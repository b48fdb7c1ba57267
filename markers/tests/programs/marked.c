/* Every marker of avtrace.h, in C. The tests read the notes of its executable, and run it. */
#include <stdio.h>

#include "avtrace.h"

struct account {
    int id;
    long balance;
};

struct account account = {7, 1000};
static short hidden = 3;
static __thread int of_this_thread = 4;

/* Regions that nest, the inner one left early. */
long scoped(long amount)
{
    AVTRACE_REGION("outer");
    for (int turn = 0; turn < 3; turn++) {
        AVTRACE_REGION("inner");
        if (amount > 50)
            break;
        amount *= 2;
    }
    return account.balance - amount;
}

/* Markers by hand, as the only statement of a branch, with a name that is not an identifier. */
long by_hand(int early)
{
    long result = 1;

    AVTRACE_BEGIN("by hand, 1st");
    if (early)
        AVTRACE_END("by hand, 1st");
    else
        AVTRACE_BEGIN("not-early");
    if (!early) {
        result = 2;
        AVTRACE_END("not-early");
        AVTRACE_END("by hand, 1st");
    }
    return result;
}

/* Variables of every kind. */
long shared(struct account *other, long *slots, int slot)
{
    long local = slots[slot];
    const char letter = 'x';

    AVTRACE_SHARED(account.balance);
    AVTRACE_SHARED(account);
    AVTRACE_SHARED(hidden);
    AVTRACE_SHARED(other->id);
    AVTRACE_SHARED_NAMED(slots[slot % 4], "slot");
    AVTRACE_SHARED(local);
    AVTRACE_SHARED(letter);
    AVTRACE_SHARED(of_this_thread);
#if __STDC_VERSION__ >= 201112L && !defined(__STDC_NO_ATOMICS__)
    static _Atomic(unsigned char) atomic = 5;
    AVTRACE_SHARED_NAMED(atomic, "atomic");
    local += atomic;
#else
    static volatile unsigned char plain = 5;
    AVTRACE_SHARED_NAMED(plain, "atomic");
    local += plain;
#endif
    return local + hidden + letter + of_this_thread;
}

int main(void)
{
    long slots[4] = {10, 20, 30, 40};

    printf("%ld %ld\n", scoped(10), scoped(60));
    printf("%d %d\n", (int)by_hand(0), (int)by_hand(1));
    printf("%ld\n", shared(&account, slots, 2));
    return 0;
}
