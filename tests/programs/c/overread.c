/*
 * overread.c length|copy - what a C library's function reads is not what it was asked for.
 *
 * length: `look` asks twice for the length of a name, and the other thread counts in between, in the field behind the name.
 * The library compares 16 bytes and more at once, the counter among them. Nothing is to be found.
 * copy: `look` copies the whole structure twice, by the library's memcpy: it reads the counter, and that is to be found if
 * the counter is watched.
 */
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

enum { TIMES = 300 };

static struct account {
    char name[8];
    long count;
    char rest[240];
} account __attribute__((aligned(64))) = { "ada", 0, "" };

static struct account copy;
static turn_t go_other;
static turn_t go_look;
static int copies;
static size_t (*volatile length)(const char *) = strlen;
static void *(*volatile copying)(void *, const void *, size_t) = memcpy;

__attribute__((noinline)) static void step(void)
{
    if (copies)
        copying(&copy, &account, sizeof account);
    else if (length(account.name) != 3)
        exit(1);
}

__attribute__((noinline)) static void look(void)
{
    AVTRACE_REGION("look");

    step();
    give_turn(go_other);
    await_turn(go_look);
    step();
}

__attribute__((noinline)) static void count(void)
{
    AVTRACE_REGION("count");

    account.count++;                           /* @count */
}

static void *first(void *unused)
{
    for (int i = 0; i < TIMES; i++)
        look();
    return unused;
}

static void *second(void *unused)
{
    for (int i = 0; i < TIMES; i++) {
        await_turn(go_other);
        count();
        give_turn(go_look);
    }
    return unused;
}

int main(int argc, char **argv)
{
    copies = argc > 1 && strcmp(argv[1], "copy") == 0;
    make_turn(go_other);
    make_turn(go_look);

    pthread_t one = start(first, NULL), other = start(second, NULL);

    join(one);
    join(other);
    printf("count: %ld\n", account.count);
    return 0;
}
