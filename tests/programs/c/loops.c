// A thread's start that calls the loop of the thread, once, and functions that are called more often, or have no loop.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

__attribute__((noipa)) static long get(void) {
    pthread_mutex_lock(&lock);
    long value = total;
    pthread_mutex_unlock(&lock);
    return value;
}

__attribute__((noipa)) static void add(long by) {
    pthread_mutex_lock(&lock);
    total += by;
    pthread_mutex_unlock(&lock);
}

// Each call is one step of the loop.
__attribute__((noipa)) static void step(void) {
    if (get() < 1000) {
        add(1);
    }
}

// The loop of the thread: no two iterations belong together.
__attribute__((noipa)) static void serve(long laps) {
    for (long i = 0; i < laps; i++) {
        add(1);
        step();
    }
}

// Has a loop, too, and is called again and again.
__attribute__((noipa)) static void again(long laps) {
    for (long i = 0; i < laps; i++) {
        add(get() > 1000 ? -1 : 1);
    }
}

// Lets time pass in its loop, and waits for no other thread.
__attribute__((noipa)) static void visit(long laps) {
    long before = get();
    for (long i = 0; i < laps; i++) {
        usleep(10);
        add(get() > before ? 0 : 1);
    }
}

// Is called once, and has no loop.
__attribute__((noipa)) static void settle(void) {
    if (get() > 1000) {
        add(-1);
    }
}

static void *start(void *laps) {
    serve((long)laps);
    for (long i = 0; i < 3; i++) {
        again(2);
        visit(2);
    }
    settle();
    return laps;
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, start, (void *)3);
    }
    for (long i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d\n", get() > 0);
}
