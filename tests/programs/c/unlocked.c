/*
 * unlocked.c - a log without a lock: `append` reads the length, copies the line and sets the length; the other thread
 * appends in between. Nothing names a region.
 */
#include <string.h>

#include "handshake.h"
#include "threads.h"

static struct {
    size_t used;
    char text[256];
} lines;
static turn_t go_other;
static turn_t go_first;

__attribute__((noinline)) static void append(const char *line, int is_split)
{
    size_t at = lines.used;

    for (size_t i = 0; line[i] != 0; i++)
        lines.text[at + i] = line[i];
    if (is_split) {
        give_turn(go_other);
        await_turn(go_first);
    }
    lines.used = at + strlen(line);
}

/* One instruction after the other: it is no candidate. */
__attribute__((noinline)) static void clear(void)
{
    if (lines.used > 0)
        lines.used = 0;
}

static void *first(void *unused)
{
    clear();
    append("one", 0);
    append("two", 1);
    return unused;
}

static void *second(void *unused)
{
    await_turn(go_other);
    append("three", 0);
    give_turn(go_first);
    return unused;
}

int main(void)
{
    make_turn(go_other);
    make_turn(go_first);

    pthread_t one = start(first, NULL), other = start(second, NULL);

    join(one);
    join(other);
    printf("%zu\n", lines.used);
    return 0;
}
