/*
 * reused_identity.c - a thread gets the identity (pthread_t) of another one whose join has not returned yet.
 *
 * The program has a `pthread_join` of its own around the C library's, as sanitizers and tracing libraries do. Between
 * the return of the inner one and that of the outer one a second thread is created, which gets the first one's stack
 * and identity. It is not the one that is joined there: it then splits the region of the main thread.
 *
 *     main: region `owner`           second: region `intruder`
 *
 *     lock, unlock
 *                                    lock, unlock
 *     lock, unlock
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t intruders, owners;
static pthread_t second;
static int has_second;

static void *nothing(void *unused)
{
    return unused;
}

static void *intrude(void *unused)
{
    await_turn(intruders);
    AVTRACE_BEGIN("intruder");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    AVTRACE_END("intruder");
    give_turn(owners);
    return unused;
}

__attribute__((__noinline__)) int pthread_join(pthread_t thread, void **result)
{
    int (*inner)(pthread_t, void **) = (int (*)(pthread_t, void **))dlsym(RTLD_NEXT, "pthread_join");
    int error = inner(thread, result);

    if (!has_second) {
        has_second = 1;
        second = start(intrude, NULL);
    }
    return error;
}

int main(void)
{
    make_turn(intruders);
    make_turn(owners);

    pthread_t first = start(nothing, NULL);

    join(first);
    printf("%s\n", pthread_equal(first, second) ? "the same identity" : "another identity");

    AVTRACE_BEGIN("owner");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    give_turn(intruders);
    await_turn(owners);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    AVTRACE_END("owner");
    join(second);
    return 0;
}
