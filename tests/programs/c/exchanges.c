// Functions that look at a word and then exchange it, by a pointer and by an index that are in other registers by then.
#include <pthread.h>
#include <stdio.h>

static long seats[64];

__attribute__((noipa)) static long price(long of) { return of % 7 + 1; }

__attribute__((noipa)) static long claim(long *seat, long me) {
    if (__atomic_load_n(seat, __ATOMIC_SEQ_CST) != 0) {
        return 0;
    }
    long cost = price(me);
    __atomic_store_n(seat, me, __ATOMIC_SEQ_CST);
    return cost;
}

__attribute__((noipa)) static long claim_of(long *all, long number, long me) {
    if (__atomic_load_n(&all[number], __ATOMIC_SEQ_CST) != 0) {
        return 0;
    }
    long cost = price(me);
    __atomic_store_n(&all[number], me, __ATOMIC_SEQ_CST);
    return cost;
}

static void *work(void *me) {
    long sum = 0;
    for (long i = 0; i < 32; i++) {
        sum += claim(&seats[i], (long)me) + claim_of(seats, 32 + i, (long)me);
    }
    return (void *)sum;
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    }
    for (long i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d\n", seats[0] != 0);
}
