/*
 * workloads.c NAME ROUNDS [split] - what `cargo xtask bench capture` measures, by two threads.
 *
 *   locks      critical sections of a few instructions, on sixteen mutexes
 *   reads      look-ups under a read-write lock, and an update instead of every 64th
 *   compute    long computations on memory of the thread's own, with a critical section after each
 *   hot        critical sections that touch one variable about ten million times a second
 *   one        one region of the first thread that writes one variable ROUNDS times, without a lock; prints how many
 *              nanoseconds of a processor that took
 *   each       the same with a variable of its own for each write
 *
 * Each critical section is in a region of its own, all data is guarded, and so there is nothing to find. With `split`,
 * the first thread begins by a region `transfer` that lets go of its lock half-way, and the second thread gets in
 * between, always: pipes see to it. No two accesses race there either.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

#define THREADS 2
#define NOINLINE __attribute__((noinline))

enum { MUTEXES = 16, ENTRIES = 64, LOOKED_UP = 8, OWN = 4096, PASSES = 40, BURST = 1000, PAUSE = 64 };

/* Mutexes of different cache lines, each with what it guards. */
static struct {
    pthread_mutex_t lock;
    long count;
} __attribute__((aligned(128))) accounts[MUTEXES];

static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static long table[ENTRIES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t total;         /* guarded by lock */
static volatile long hot;      /* guarded by lock */
static volatile long once;     /* of the first thread alone */
static volatile long balance;  /* guarded by lock */

static long rounds;
static int split;
static turn_t half_way, went_in;

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static NOINLINE void transfer(void)
{
    AVTRACE_BEGIN("transfer");
    pthread_mutex_lock(&lock);
    long seen = balance;
    pthread_mutex_unlock(&lock);
    give_turn(half_way);
    await_turn(went_in);
    pthread_mutex_lock(&lock);
    balance = seen + 1;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("transfer");
}

static NOINLINE void deposit(void)
{
    await_turn(half_way);
    AVTRACE_BEGIN("deposit");
    pthread_mutex_lock(&lock);
    balance = balance + 100;
    pthread_mutex_unlock(&lock);
    AVTRACE_END("deposit");
    give_turn(went_in);
}

static NOINLINE void locks(uint64_t seed)
{
    for (long round = 0; round < rounds; round++) {
        uint64_t number = next(&seed) % MUTEXES;

        AVTRACE_BEGIN("step");
        pthread_mutex_lock(&accounts[number].lock);
        accounts[number].count++;
        pthread_mutex_unlock(&accounts[number].lock);
        AVTRACE_END("step");
    }
}

static NOINLINE void look_up(uint64_t first)
{
    long sum = 0;

    AVTRACE_BEGIN("look up");
    pthread_rwlock_rdlock(&table_lock);
    for (int i = 0; i < LOOKED_UP; i++)
        sum += table[(first + (uint64_t)i) % ENTRIES];
    pthread_rwlock_unlock(&table_lock);
    AVTRACE_END("look up");
    __asm__ volatile("" : : "r"(sum));
}

static NOINLINE void update(uint64_t entry)
{
    AVTRACE_BEGIN("update");
    pthread_rwlock_wrlock(&table_lock);
    table[entry]++;
    pthread_rwlock_unlock(&table_lock);
    AVTRACE_END("update");
}

static NOINLINE void reads(uint64_t seed)
{
    for (long round = 0; round < rounds; round++) {
        uint64_t entry = next(&seed) % ENTRIES;

        if (round % 64 == 63)
            update(entry);
        else
            look_up(entry);
    }
}

static NOINLINE void compute(uint64_t seed)
{
    uint64_t *own = malloc(OWN * sizeof *own);

    if (own == NULL)
        exit(1);
    for (int i = 0; i < OWN; i++)
        own[i] = next(&seed);
    for (long round = 0; round < rounds; round++) {
        for (int pass = 0; pass < PASSES; pass++)
            for (int i = 0; i < OWN; i++)
                own[i] = own[i] * own[(i + pass + 1) % OWN] + (own[i] >> 7);
        AVTRACE_BEGIN("collect");
        pthread_mutex_lock(&lock);
        total += own[round % OWN];
        pthread_mutex_unlock(&lock);
        AVTRACE_END("collect");
    }
    free(own);
}

static NOINLINE void bursts(uint64_t seed)
{
    for (long round = 0; round < rounds; round++) {
        AVTRACE_BEGIN("burst");
        pthread_mutex_lock(&lock);
        for (int i = 0; i < BURST; i++) {
            for (int pause = 0; pause < PAUSE; pause++) {
                seed = seed * 6364136223846793005u + 1;
                /* Some compilers know what comes of all rounds, and make none. */
                __asm__ volatile("" : "+r"(seed));
            }
            hot += (long)(seed & 1);
        }
        pthread_mutex_unlock(&lock);
        AVTRACE_END("burst");
    }
}

/* Nanoseconds that this thread has had a processor. */
static long worked(void)
{
    struct timespec time;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0)
        exit(1);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static NOINLINE void write_once(void)
{
    for (long round = 0; round < rounds; round++)
        once = round;
}

static void one(void)
{
    long before = worked();

    AVTRACE_BEGIN("one");
    write_once();
    AVTRACE_END("one");
    printf("%ld\n", worked() - before);
}

static volatile long words[1 << 20]; /* of the first thread alone */

static NOINLINE void write_each(void)
{
    for (long round = 0; round < rounds; round++)
        words[round % (1 << 20)] = round;
}

static void each(void)
{
    long before = worked();

    AVTRACE_BEGIN("each");
    write_each();
    AVTRACE_END("each");
    printf("%ld\n", worked() - before);
}

static const char *name;

static void *run(void *argument)
{
    int number = (int)(intptr_t)argument;
    uint64_t seed = (uint64_t)number + 1;

    if (split)
        (number == 0 ? transfer : deposit)();
    if (strcmp(name, "locks") == 0)
        locks(seed);
    else if (strcmp(name, "reads") == 0)
        reads(seed);
    else if (strcmp(name, "compute") == 0)
        compute(seed);
    else if (strcmp(name, "hot") == 0)
        bursts(seed);
    else if (number == 0)
        (strcmp(name, "each") == 0 ? each : one)();
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"locks", "reads", "compute", "hot", "one", "each"};
    pthread_t threads[THREADS];
    int known = 0;

    for (size_t i = 0; argc > 2 && i < sizeof names / sizeof *names; i++)
        known |= strcmp(argv[1], names[i]) == 0;
    if (!known) {
        fputs("usage: workloads locks|reads|compute|hot|one|each ROUNDS [split]\n", stderr);
        return 2;
    }
    name = argv[1];
    rounds = atol(argv[2]);
    split = argc > 3;
    make_turn(half_way);
    make_turn(went_in);
    for (int i = 0; i < MUTEXES; i++)
        pthread_mutex_init(&accounts[i].lock, NULL);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(run, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    return 0;
}
