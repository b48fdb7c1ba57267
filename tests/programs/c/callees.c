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

__attribute__((noipa)) static long owner(void) { return first->owner; }

__attribute__((noipa)) static void set_owner(long owner) { first->owner = owner; }

__attribute__((noipa)) static long is_used(struct slot *slot) { return slot->used; }

__attribute__((noipa)) static void use(struct slot *slot, long by) { slot->used = by; }

// A last call that is a jump leaves the function, so each function goes on behind its calls.
__attribute__((noipa)) static long claim(long me) {
    if (owner() == 0) {
        set_owner(me);
        return me;
    }
    return 0;
}

__attribute__((noipa)) static long reserve(struct slot *slot, long me) {
    if (is_used(slot) == 0) {
        use(slot, me);
        return me;
    }
    return 0;
}

// Two places: no step needs the other one.
__attribute__((noipa)) static long both(struct slot *slot) { return owner() + is_used(slot); }

static void *work(void *me) {
    return (void *)(claim((long)me) + reserve(first, (long)me) + both(first));
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
