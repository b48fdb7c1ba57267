/*
 * left_behind.c - forks a child, and ends. The child's threads lock until its code is that of its files again.
 *
 * The child prints `probed` when it begins, and in the end `restored`, and whether all increments are there.
 */
#include <stdatomic.h>
#include <sys/wait.h>

#include "own_code.h"
#include "threads.h"

enum { THREADS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */
static atomic_int is_over;

static void *increment(void *own)
{
    while (!is_over) {
        pthread_mutex_lock(&lock);
        count++;
        pthread_mutex_unlock(&lock);
        ++*(long *)own;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long own[THREADS] = {0}, sum = 0;

    if (fork() != 0)
        return 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, increment, &own[i]);
    dprintf(1, "%s\n", changed_code() ? "probed" : "not probed");
    dprintf(1, "%s\n", code_is_restored() ? "restored" : "changed");
    is_over = 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += own[i];
    }
    dprintf(1, "%s\n", sum == count ? "all increments" : "lost increments");
    return 0;
}
