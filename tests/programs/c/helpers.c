/*
 * helpers.c [body|table|atomics] - updates that are lost although each step is atomic by itself.
 *
 * Nothing is marked and nothing named. `deposit` calls `get` and `set`, each of which locks; with `body` the body of
 * the thread does so itself, in a loop; with `table` the lock is reached through a table of functions, as sqlite's are;
 * with `atomics` a counter is read and then written, each atomically. Another thread gets in between: pipes
 * see to that.
 */
#include <stdatomic.h>
#include <string.h>

#include "threads.h"
#include "two_turns.h"

#ifdef INLINE
#define MAYBE_INLINE static inline __attribute__((always_inline))
#else
#define MAYBE_INLINE static __attribute__((noinline))
#endif
#define NOINLINE __attribute__((noinline))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long balance = 1000; /* guarded by lock */
static atomic_long seats;
static const char *mode = "";

MAYBE_INLINE long get(void)
{
    pthread_mutex_lock(&lock);
    long now = balance;
    pthread_mutex_unlock(&lock);
    return now;
}

MAYBE_INLINE void set(long value)
{
    pthread_mutex_lock(&lock);
    balance = value;
    pthread_mutex_unlock(&lock);
}

MAYBE_INLINE void deposit(long amount, int meets)
{
    long before = get();                       /* @deposit_get */
    if (meets)
        let_other();
    set(before + amount);                      /* @deposit_set */
}

/* Calls one function that can be violated, and does nothing else. */
static NOINLINE void pass_on(int meets)
{
    deposit(10, meets);
}

struct lock_methods {
    void (*init)(pthread_mutex_t *mutex);
    void (*enter)(pthread_mutex_t *mutex);
    void (*leave)(pthread_mutex_t *mutex);
};

static void method_init(pthread_mutex_t *mutex)
{
    pthread_mutex_init(mutex, NULL);
}

static void method_enter(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
}

static void method_leave(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
}

static struct {
    int size;
    struct lock_methods mutex;
} config;

static const struct lock_methods methods = {method_init, method_enter, method_leave};

NOINLINE void choose_methods(const struct lock_methods *chosen)
{
    config.size = 1;
    config.mutex = *chosen;
}

NOINLINE void db_mutex_enter(pthread_mutex_t *mutex)
{
    if (mutex)
        config.mutex.enter(mutex);
}

NOINLINE void db_mutex_leave(pthread_mutex_t *mutex)
{
    if (mutex)
        config.mutex.leave(mutex);
}

static NOINLINE void db_transfer(int meets)
{
    db_mutex_enter(&lock);
    long before = balance;
    db_mutex_leave(&lock);
    if (meets)
        let_other();
    db_mutex_enter(&lock);
    balance = before - 1;
    db_mutex_leave(&lock);
}

static NOINLINE void reserve(int meets)
{
    long taken = atomic_load(&seats);          /* @reserve_load */

    if (meets)
        let_other();
    atomic_store(&seats, taken + 1);           /* @reserve_store */
}

static void *run_deposits(void *unused)
{
    for (int round = 0; round < 2; round++)
        pass_on(round == 1);
    return unused;
}

static void *run_alone(void *unused)
{
    for (int round = 0; round < 2; round++) {
        long before = get();
        if (round == 1)
            let_other();
        set(before + 1);
    }
    return unused;
}

static void *run_transfers(void *unused)
{
    db_transfer(0);
    db_transfer(1);
    return unused;
}

static void *run_reservations(void *unused)
{
    reserve(0);
    reserve(1);
    return unused;
}

static void *run_other(void *unused)
{
    await_turn(go_other);
    if (strcmp(mode, "atomics") == 0)
        atomic_store(&seats, 10);
    else
        set(0);
    give_turn(go_on);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        mode = argv[1];
    make_turns();
    choose_methods(&methods);
    pthread_t other = start(run_other, NULL);
    pthread_t first;
    if (strcmp(mode, "body") == 0)
        first = start(run_alone, NULL);
    else if (strcmp(mode, "table") == 0)
        first = start(run_transfers, NULL);
    else if (strcmp(mode, "atomics") == 0)
        first = start(run_reservations, NULL);
    else
        first = start(run_deposits, NULL);
    join(first);
    join(other);
    printf("balance: %ld, seats: %ld\n", balance, atomic_load(&seats));
    return 0;
}
