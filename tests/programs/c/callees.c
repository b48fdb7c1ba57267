// Functions whose steps are in the functions that they call: each accesses one place, behind a global variable or
// behind a pointer that is passed on.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct slot {
    long owner;
    long used;
};
static struct slot *first;

__attribute__((noinline)) static long owner(void) { return first->owner; }

__attribute__((noinline)) static void set_owner(long owner) { first->owner = owner; }

__attribute__((noinline)) static long is_used(struct slot *slot) { return slot->used; }

__attribute__((noinline)) static void use(struct slot *slot, long by) { slot->used = by; }

__attribute__((noinline)) static void claim(long me) {
    if (owner() == 0) {
        set_owner(me);
    }
}

__attribute__((noinline)) static void reserve(struct slot *slot, long me) {
    if (is_used(slot) == 0) {
        use(slot, me);
    }
}

// Two places: no step needs the other one.
__attribute__((noinline)) static long both(struct slot *slot) { return owner() + is_used(slot); }

static void *work(void *me) {
    claim((long)me);
    reserve(first, (long)me);
    return (void *)both(first);
}

int main(void) {
    pthread_t threads[2];
    first = calloc(1, sizeof *first);
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    }
    for (long i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld\n", first->owner);
}
