/*
 * data.c KIND [fixed] - data that two threads meet on, with nothing that names it.
 *
 * KIND is what goes wrong:
 *
 *     global, heap   `transfer` has two locked sections, and `audit` gets in between: the account is a global
 *                    variable, or on the heap
 *     lost           `add` reads a total and writes it back, without any lock, and `charge` gets in between
 *     check          `claim` looks whether a place on the heap is taken, and takes it: both threads do
 *     torn           `look` reads two fields, and `set` writes both in between
 *
 * With `fixed` each is right: one locked section, an atomic instruction, or the other thread comes later. Turns are
 * given through pipes, so that the order is the same in every run.
 */
#include <string.h>

#include "threads.h"
#include "two_turns.h"

#define NOINLINE __attribute__((noinline))

struct account {
    pthread_mutex_t lock;
    long owner;
    long balance; /* guarded by lock */
};

struct place {
    long number;
    int taken;
};

struct pair {
    long first;
    long second;
};

static struct account global = {PTHREAD_MUTEX_INITIALIZER, 1, 1000};
static struct account *account = &global;
static long total;
static struct place *place;
static struct pair pair;
static int fixed;

static NOINLINE void transfer(struct account *from, long amount)
{
    pthread_mutex_lock(&from->lock);
    long before = from->balance;                       /* @transfer_read */
    if (!fixed) {
        pthread_mutex_unlock(&from->lock);
        let_other();
        pthread_mutex_lock(&from->lock);
    }
    from->balance = before - amount;                   /* @transfer_write */
    pthread_mutex_unlock(&from->lock);
    if (fixed)
        let_other();
}

static NOINLINE void audit(struct account *of)
{
    pthread_mutex_lock(&of->lock);
    long before = of->balance;                         /* @audit_read */
    of->balance = before - 5;                          /* @audit_write */
    pthread_mutex_unlock(&of->lock);
}

static NOINLINE void add(long amount)
{
    if (fixed) {
        __atomic_fetch_add(&total, amount, __ATOMIC_SEQ_CST);
        let_other();
        return;
    }

    long before = total;                               /* @add_read */

    let_other();
    total = before + amount;                           /* @add_write */
}

static NOINLINE void charge(long amount)
{
    if (fixed)
        __atomic_fetch_sub(&total, amount, __ATOMIC_SEQ_CST);
    else
        total -= amount;                               /* @charge */
}

static NOINLINE int claim(struct place *wanted, int waits)
{
    if (fixed) {
        int was_taken = __atomic_exchange_n(&wanted->taken, 1, __ATOMIC_SEQ_CST);

        if (waits)
            let_other();
        return !was_taken;
    }
    if (wanted->taken)                                 /* @claim_check */
        return 0;
    if (waits)
        let_other();
    wanted->taken = 1;                                 /* @claim_take */
    return 1;
}

static NOINLINE long look(struct pair *at)
{
    long first = at->first;                            /* @look_first */

    if (!fixed)
        let_other();

    long second = at->second;                          /* @look_second */

    if (fixed)
        let_other();
    return first - second;
}

static NOINLINE void set(struct pair *at, long to)
{
    at->first = to;                                    /* @set_first */
    at->second = to;                                   /* @set_second */
}

static void *other(void *kind)
{
    await_turn(go_other);
    if (strcmp(kind, "lost") == 0)
        charge(5);
    else if (strcmp(kind, "check") == 0)
        printf("the other has it: %d\n", claim(place, 0));
    else if (strcmp(kind, "torn") == 0)
        set(&pair, 7);
    else
        audit(account);
    give_turn(go_on);
    return kind;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;

    char *kind = argv[1];

    fixed = argc > 2 && strcmp(argv[2], "fixed") == 0;
    make_turns();
    if (strcmp(kind, "heap") == 0) {
        account = calloc(1, sizeof *account);
        pthread_mutex_init(&account->lock, NULL);
        account->balance = 1000;
    }
    place = calloc(1, sizeof *place);
    total = 1000;

    pthread_t thread = start(other, kind);

    if (strcmp(kind, "lost") == 0)
        add(100);
    else if (strcmp(kind, "check") == 0)
        printf("the first has it: %d\n", claim(place, 1));
    else if (strcmp(kind, "torn") == 0)
        printf("difference: %ld\n", look(&pair));
    else
        transfer(account, 100);
    join(thread);
    printf("balance %ld, total %ld\n", account->balance, total);
    return 0;
}
