/* A queue of two numbers from which two threads take one each. `poll_broken` reads the item and moves the head in two
 * steps, so that both may take the same (OptimisticQueue of "Interleaving-tree Based Fine-grained Linearizability Fault
 * Localization"); with the argument `locked` it does so under a lock. Prints what each thread took.
 *
 * With `-DMARKED` markers make a region of `poll_broken`. `deadlock`: the threads take two locks, each in another order.
 * `turns`: one operation waits for the other one in its midst.
 * A file that is named after the mode gets a byte in each run. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef MARKED
#include "avtrace.h"
#endif

static int items[3] = {7, 8, 9};
static atomic_int head;
static int taken[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static int poll_broken(void) {
#ifdef MARKED
    AVTRACE_BEGIN("poll");
#endif
    int at = atomic_load(&head);  /* @read */
    int item = items[at];
    atomic_store(&head, at + 1); /* @move */
#ifdef MARKED
    AVTRACE_END("poll");
#endif
    return item;
}

__attribute__((noinline)) static int poll_locked(void) {
    pthread_mutex_lock(&lock);
    int item = poll_broken();
    pthread_mutex_unlock(&lock);
    return item;
}

__attribute__((noinline)) static void take_both(int turned) {
    pthread_mutex_lock(turned ? &other : &lock);
    pthread_mutex_lock(turned ? &lock : &other); /* @second */
    head++;
    pthread_mutex_unlock(&other);
    pthread_mutex_unlock(&lock);
}

static int to_second[2], to_first[2];

__attribute__((noinline)) static int poll_waiting(void) {
    char byte = '!';
    int item = poll_broken();
    if (write(to_second[1], &byte, 1) != 1 || read(to_first[0], &byte, 1) != 1) {
        abort();
    }
    atomic_store(&head, 0);
    return item;
}

static int poll_in_turn(void) {
    char byte = '!';
    if (read(to_second[0], &byte, 1) != 1) {
        abort();
    }
    int item = poll_locked();
    if (write(to_first[1], &byte, 1) != 1) {
        abort();
    }
    return item;
}

static const char *mode = "";

static void *run(void *number) {
    int *result = &taken[(long)number];
    if (strcmp(mode, "deadlock") == 0) {
        take_both(number != NULL);
    } else if (strcmp(mode, "locked") == 0) {
        *result = poll_locked();
    } else if (strcmp(mode, "turns") == 0) {
        *result = number == NULL ? poll_waiting() : poll_in_turn();
    } else {
        *result = poll_broken();
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        mode = argv[1];
    }
    if (argc > 2) {
        FILE *runs = fopen(argv[2], "a");
        if (runs == NULL || fputc('.', runs) == EOF || fclose(runs) != 0) {
            return 5;
        }
    }
    if (strcmp(mode, "fails") == 0) {
        return 3;
    }
    if (pipe(to_second) != 0 || pipe(to_first) != 0) {
        return 5;
    }
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, run, (void *)i);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    if (strcmp(mode, "asserts") == 0) {
        return taken[0] == taken[1] ? 4 : 0;
    }
    printf("%d %d\n", taken[0], taken[1]);
    return 0;
}
