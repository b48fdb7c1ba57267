/*
 * own_lock.c spin|ticket|door|poll split|whole - locks that the program makes itself, which no option names.
 *
 * split: `transfer` releases the lock between its read and its write, and the audit comes in between: an update is
 * lost. whole: `transfer` holds the lock, and nothing is to be found.
 * spin, ticket: a word that is exchanged, and tickets. door: a static word beside the data, with a function that tries
 * once, and one that is not inlined where its counterpart is. poll: no lock; threads count themselves and wait until
 * all are there, so that nothing is to be found on the counter.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "threads.h"
#include "two_turns.h"

struct spin {
    long uses;
    atomic_flag taken;
};

struct tickets {
    atomic_uint next;
    atomic_uint serving;
};

struct account {
    struct spin spin;
    struct tickets tickets;
    long balance;
};

static struct account *account;
static atomic_int door;
static long till = 1000; /* guarded by door */
static atomic_uint arrived;
static const char *kind;
static int is_split;

static void spin_enter(struct spin *spin)
{
    while (atomic_flag_test_and_set_explicit(&spin->taken, memory_order_acquire))
        sched_yield();
}

static void spin_leave(struct spin *spin)
{
    atomic_flag_clear_explicit(&spin->taken, memory_order_release);
}

static void draw(struct tickets *tickets)
{
    unsigned mine = atomic_fetch_add(&tickets->next, 1);

    while (atomic_load(&tickets->serving) != mine)
        sched_yield();
}

static void call_next(struct tickets *tickets)
{
    atomic_store(&tickets->serving, atomic_load(&tickets->serving) + 1);
}

static bool try_door(void)
{
    return !atomic_exchange(&door, 1);
}

static __attribute__((noinline)) void open_door(void)
{
    while (!try_door())
        sched_yield();
}

static void close_door(void)
{
    atomic_store(&door, 0);
}

static void transfer_door(long amount)
{
    open_door();
    long seen = till;
    if (is_split) {
        close_door();
        let_other();
        open_door();
    }
    till = seen - amount;
    close_door();
}

static void transfer_spin(struct account *from, long amount)
{
    spin_enter(&from->spin);
    long seen = from->balance;
    if (is_split) {
        spin_leave(&from->spin);
        let_other();
        spin_enter(&from->spin);
    }
    from->balance = seen - amount;
    spin_leave(&from->spin);
}

static void transfer_ticket(struct account *from, long amount)
{
    draw(&from->tickets);
    long seen = from->balance;
    if (is_split) {
        call_next(&from->tickets);
        let_other();
        draw(&from->tickets);
    }
    from->balance = seen - amount;
    call_next(&from->tickets);
}

static void audit(struct account *of)
{
    if (*kind == 's') {
        spin_enter(&of->spin);
        of->balance -= 5;
        spin_leave(&of->spin);
    } else if (*kind == 'd') {
        open_door();
        till -= 5;
        close_door();
    } else {
        draw(&of->tickets);
        of->balance -= 5;
        call_next(&of->tickets);
    }
}

static void start_together(void)
{
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2)
        sched_yield();
}

static void *first(void *unused)
{
    if (*kind == 'p')
        start_together();
    else if (*kind == 's')
        transfer_spin(account, 100);
    else if (*kind == 'd')
        transfer_door(100);
    else
        transfer_ticket(account, 100);
    if (!is_split)
        let_other();
    return unused;
}

static void *second(void *unused)
{
    if (*kind == 'p')
        start_together();
    await_turn(go_other);
    audit(account);
    give_turn(go_on);
    return unused;
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "spin";
    is_split = argc < 3 || strcmp(argv[2], "split") == 0;
    make_turns();
    account = calloc(1, sizeof *account);
    account->balance = 1000;

    pthread_t teller = start(first, NULL), auditor = start(second, NULL);

    join(teller);
    join(auditor);
    printf("balance: %ld\n", *kind == 'd' ? till : account->balance);
    return 0;
}
