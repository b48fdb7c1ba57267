// Random sleeps after unlock, as a library for LD_PRELOAD: with a probability of a half, a thread that has released a
// mutex or a read-write lock sleeps for two milliseconds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define SLEEP_NANOSECONDS 2000000

static void maybe_sleep(void)
{
    static __thread unsigned seed;
    struct timespec now, pause = {0, SLEEP_NANOSECONDS};

    if (seed == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        seed = (unsigned)now.tv_nsec ^ (unsigned)(size_t)&seed;
    }
    if (rand_r(&seed) % 2 == 0)
        nanosleep(&pause, NULL);
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static int (*next)(pthread_mutex_t *);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    int result = next(lock);
    maybe_sleep();
    return result;
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    static int (*next)(pthread_rwlock_t *);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
    int result = next(lock);
    maybe_sleep();
    return result;
}
