/*
 * owned.c KIND [fixed|again] - data that one thread has to itself for a long time before another one comes.
 *
 * KIND is what goes wrong then:
 *
 *     lost    `add` reads a total and writes it back, as often before, and `charge` gets in between
 *     torn    `look` reads two fields, and `set`, which nobody has disturbed so far, writes both in between
 *     halves  `fill` reads one half of a word and, after it held some lock, writes the other half, as often before; then
 *             `spoil` writes what was read, before `fill` does
 *
 * With `fixed` the other thread comes when the first one is done. With `again` the program first replaces itself. No lock guards these data. Turns are given through pipes,
 * so that the order is the same in every run.
 */
#include <string.h>
#include <unistd.h>

#include "threads.h"
#include "two_turns.h"

#define NOINLINE __attribute__((noinline))

enum { ALONE = 1000 };

struct pair {
    long first;
    long second;
};

struct halves {
    _Alignas(8) int first;
    int second;
};

static long total;
static struct halves halves;
static pthread_mutex_t some = PTHREAD_MUTEX_INITIALIZER;
static struct pair pair;

static NOINLINE void add(long amount, int waits)
{
    long before = total;                               /* @add_read */

    if (waits)
        let_other();
    total = before + amount;                           /* @add_write */
}

static NOINLINE void charge(long amount)
{
    total -= amount;                                   /* @charge */
}

static NOINLINE void fill(struct halves *at, int to, int waits)
{
    int before = at->second;                           /* @fill_read */

    pthread_mutex_lock(&some);
    pthread_mutex_unlock(&some);
    at->first = to;
    if (waits) {
        let_other();
        at->second = before + 1;                       /* @fill_write */
    }
}

static NOINLINE void spoil(struct halves *at)
{
    at->second = 7;                                    /* @spoil */
}

static NOINLINE long look(const struct pair *at, int waits)
{
    long first = at->first;                            /* @look_first */

    if (waits)
        let_other();
    return first - at->second;                         /* @look_second */
}

static NOINLINE void set(struct pair *at, long to)
{
    at->first = to;                                    /* @set_first */
    __asm__ volatile("" ::: "memory"); /* no store of both at once */
    at->second = to;                                   /* @set_second */
}

static void *other(void *kind)
{
    if (strcmp(kind, "torn") == 0)
        for (int i = 0; i < ALONE; i++)
            set(&pair, i);
    give_turn(go_on);
    await_turn(go_other);
    if (strcmp(kind, "torn") == 0)
        set(&pair, 7);
    else if (strcmp(kind, "halves") == 0)
        spoil(&halves);
    else
        charge(5);
    give_turn(go_on);
    return kind;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;

    char *kind = argv[1];
    int fixed = argc > 2 && strcmp(argv[2], "fixed") == 0;

    if (argc > 2 && strcmp(argv[2], "again") == 0) {
        execl("/proc/self/exe", argv[0], kind, (char *)NULL);
        return 3;
    }

    make_turns();

    pthread_t thread = start(other, kind);

    await_turn(go_on);
    if (strcmp(kind, "torn") == 0) {
        printf("difference: %ld\n", look(&pair, !fixed));
    } else if (strcmp(kind, "halves") == 0) {
        for (int i = 0; i < ALONE; i++)
            fill(&halves, i, 0);
        fill(&halves, 0, !fixed);
    } else {
        for (int i = 0; i < ALONE; i++)
            add(1, 0);
        add(100, !fixed);
    }
    if (fixed)
        let_other();
    join(thread);
    printf("total %ld, pair %ld %ld\n", total, pair.first, pair.second);
    return 0;
}
