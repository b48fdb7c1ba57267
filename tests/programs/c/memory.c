/*
 * memory.c HOW [COUNT | unwatched] - blocks of memory that are given back and given out again, one of them watched.
 *
 *     filler: region `fill`                  other
 *
 *     allocate, write, free
 *                                            allocate, write, free
 *     allocate, write, free
 *
 * `again`: as above. All three are the same memory, and never shared. With `kept` the other writes to the filler's block,
 * which is not given back meanwhile. `locks` has a lock in each block as well. `mapped` does the same as `again` with mappings, `stack` with what a thread has on
 * its stack. `churn` passes blocks on between eight threads, each of which has one at a time. Any other word is the
 * name of a function that allocates, which is called COUNT times.
 * With `unwatched` nothing waits for a watchpoint: accesses are seen by probes.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

/* Too large for what threads keep for themselves. */
#define SIZE 8192
#define ROUNDS 40

static turn_t ready, fillers, others;
static volatile long *block; /* what is watched */
static int is_kept, is_mapped, has_lock;
static int is_unwatched; /* whether there are no watchpoints to wait for */
static int is_other; /* whether any block was other memory than what is watched */

static long nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Whether 100 accesses take longer than 100 that are not watched can, also when they are interrupted: the best of 10. */
static int is_watched(void)
{
    if (is_unwatched)
        return 1;
    for (int round = 0; round < 10; round++) {
        long start = nanoseconds();

        for (int i = 0; i < 100; i++)
            (void)*block;
        if (nanoseconds() - start < 100 * 200)
            return 0;
    }
    return 1;
}

static volatile long *take(void)
{
    volatile long *taken;

    if (is_mapped)
        taken = mmap((void *)block, SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    else
        taken = malloc(SIZE); /* @take */
    if (taken != block)
        is_other = 1;
    return taken;
}

static void give_back(volatile long *taken)
{
    if (is_mapped)
        munmap((void *)taken, SIZE);
    else
        free((void *)taken);
}

/* Uses a lock in the block, which begins its life without a call. */
static void lock_in(volatile long *taken)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_t *lock = (pthread_mutex_t *)(taken + 1);

    *lock = unlocked;
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
}

/* What a thread needs for its first allocation is allocated then. */
static void warm_up(void)
{
    void *volatile first = malloc(1);

    free(first);
    give_turn(ready);
}

static void *filler(void *unused)
{
    warm_up();
    await_turn(fillers);
    AVTRACE_BEGIN("fill");
    volatile long *mine = take();
    *mine = 1; /* @first_write */
    if (has_lock)
        lock_in(mine);
    if (!is_kept)
        give_back(mine);
    give_turn(others);
    await_turn(fillers);
    if (!is_kept)
        mine = take();
    *mine = 2; /* @last_write */
    if (has_lock)
        lock_in(mine);
    AVTRACE_END("fill");
    give_back(mine);
    give_turn(others);
    return unused;
}

static void *other(void *unused)
{
    warm_up();
    await_turn(others);
    volatile long *mine = is_kept ? block : take();
    *mine = 3; /* @other_write */
    if (has_lock)
        lock_in(mine);
    if (!is_kept)
        give_back(mine);
    give_turn(fillers);
    /* The end of a thread gives back what it was warmed up with. */
    await_turn(others);
    return unused;
}

/* Has the block watched, and gives it back. */
static void watch(void)
{
    if (is_mapped)
        block = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        block = malloc(SIZE);
    AVTRACE_SHARED(*block);
    while (!is_watched())
        ;
    give_back(block);
}

static int again(void)
{
    pthread_t first = start(filler, NULL), second = start(other, NULL);

    await_turn(ready);
    await_turn(ready);
    watch();
    give_turn(fillers);
    join(first);
    join(second);
    puts(is_other ? "other memory" : "the same memory");
    return 0;
}

/*
 * What two threads have on their stacks, one after the other:
 *
 *     writer: region `fill`                  owners
 *
 *     write to the first one's
 *                                            the second writes to its own, and then to `flag`
 *     read `flag`
 */
static volatile long flag;

static void *on_stack(void *is_first)
{
    volatile long local = 1;

    if (is_first) {
        block = &local;
        AVTRACE_SHARED(*block);
        while (!is_watched())
            ;
        give_turn(fillers);
        await_turn(others);
        return NULL;
    }
    if (&local != block)
        is_other = 1;
    local = 2;
    flag = 1;
    give_turn(fillers);
    return NULL;
}

static void *writer(void *unused)
{
    await_turn(fillers);
    AVTRACE_BEGIN("fill");
    *block = 5;
    give_turn(others);
    await_turn(fillers);
    (void)flag;
    AVTRACE_END("fill");
    return unused;
}

static int stacks(void)
{
    AVTRACE_SHARED(flag);
    pthread_t region = start(writer, NULL);

    join(start(on_stack, &is_other));
    join(start(on_stack, NULL));
    join(region);
    puts(is_other ? "other memory" : "the same memory");
    return 0;
}

/* A thread of eight in a ring: gets a block from the one before, and allocates one for the next. */
#define RING 8
static turn_t ring[RING];

static void *passer(void *number)
{
    long me = (intptr_t)number;

    warm_up();
    for (int round = 0; round < ROUNDS; round++) {
        volatile long *mine;

        AVTRACE_BEGIN("allocate");
        for (int i = 0; i < 3; i++) {
            mine = malloc(SIZE);
            *mine = me;
            give_back(mine);
            sched_yield();
        }
        mine = malloc(SIZE);
        *mine = me;
        AVTRACE_END("allocate");
        if (write(ring[(me + 1) % RING][1], &mine, sizeof mine) != sizeof mine)
            abort();
        if (read(ring[me][0], &mine, sizeof mine) != sizeof mine)
            abort();
        AVTRACE_BEGIN("use");
        *mine += 1;
        give_back(mine);
        AVTRACE_END("use");
    }
    return NULL;
}

static int churn(void)
{
    pthread_t threads[RING];

    for (int i = 0; i < RING; i++)
        make_turn(ring[i]);
    block = malloc(SIZE);
    AVTRACE_SHARED(*block);
    while (!is_watched())
        ;
    for (intptr_t i = 0; i < RING; i++) {
        threads[i] = start(passer, (void *)i);
        await_turn(ready);
    }
    give_back(block);
    for (int i = 0; i < RING; i++)
        join(threads[i]);
    puts("done");
    return 0;
}

/* Calls a function COUNT times, and takes back what it gave. */
static int call(const char *name, long count)
{
    static long unused;

    AVTRACE_SHARED(unused);
    for (long i = 0; i < count; i++) {
        void *got = NULL;

        if (strcmp(name, "malloc") == 0)
            got = malloc(100);
        else if (strcmp(name, "calloc") == 0)
            got = calloc(10, 10);
        else if (strcmp(name, "realloc") == 0)
            got = realloc(malloc(10), 100);
        else if (strcmp(name, "reallocarray") == 0)
            got = reallocarray(malloc(10), 10, 10);
        else if (strcmp(name, "impossible") == 0) {
            void *old = malloc(10);
            volatile size_t huge = PTRDIFF_MAX;
            got = realloc(old, huge) == NULL ? old : NULL;
        } else if (strcmp(name, "aligned_alloc") == 0)
            got = aligned_alloc(64, 128);
        else if (strcmp(name, "posix_memalign") == 0 && posix_memalign(&got, 64, 100) != 0)
            return 1;
        else if (strcmp(name, "mmap") == 0) {
            got = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            munmap(got, SIZE);
            continue;
        } else if (strcmp(name, "mremap") == 0) {
            got = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            got = mremap(got, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
            munmap(got, 2 * SIZE);
            continue;
        }
        *(volatile char *)got = 1;
        free(got);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "again";

    /* All threads allocate from the same memory. */
    mallopt(M_ARENA_MAX, 1);
    make_turn(ready);
    make_turn(fillers);
    make_turn(others);
    is_kept = strcmp(how, "kept") == 0;
    is_mapped = strcmp(how, "mapped") == 0;
    has_lock = strcmp(how, "locks") == 0;
    is_unwatched = argc > 2 && strcmp(argv[2], "unwatched") == 0;
    if (is_kept || is_mapped || has_lock || strcmp(how, "again") == 0)
        return again();
    if (strcmp(how, "stack") == 0)
        return stacks();
    if (strcmp(how, "churn") == 0)
        return churn();
    return call(how, argc > 2 ? atol(argv[2]) : 1);
}
