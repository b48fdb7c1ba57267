/*
 * held_again.c - `step` looks at an item under the lock and drops it under the lock; `change` comes in between. Then
 * its thread and another one take the lock again, as often as the argument says: it is the same defect.
 */
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int flags, refs, next, prev, kind; } item;
static int unrelated, again;
static turn_t go_change, go_other, go_drop;

__attribute__((noinline)) static int look(void)
{
    pthread_mutex_lock(&lock);
    int flags = item.flags;
    pthread_mutex_unlock(&lock);
    return flags;
}

__attribute__((noinline)) static void drop(int flags)
{
    pthread_mutex_lock(&lock);
    item.refs -= flags;
    item.next = item.prev + flags;
    item.prev = flags;
    item.kind = flags;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void step(void)
{
    int flags = look();

    give_turn(go_change);
    await_turn(go_drop);
    drop(flags);
}

__attribute__((noinline)) static void change(void)
{
    pthread_mutex_lock(&lock);
    item.flags++;
    item.refs++;
    item.next++;
    item.prev++;
    item.kind++;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void other(void)
{
    pthread_mutex_lock(&lock);
    unrelated++;
    pthread_mutex_unlock(&lock);
}

static void *stepping(void *unused)
{
    step();
    return unused;
}

static void *changing(void *unused)
{
    await_turn(go_change);
    change();
    for (int i = 0; i < again; i++)
        other();
    give_turn(go_other);
    return unused;
}

static void *last(void *unused)
{
    await_turn(go_other);
    for (int i = 0; i < again; i++)
        other();
    give_turn(go_drop);
    return unused;
}

int main(int argc, char **argv)
{
    again = argc > 1 ? atoi(argv[1]) : 0;
    make_turn(go_change);
    make_turn(go_other);
    make_turn(go_drop);

    pthread_t threads[] = { start(stepping, NULL), start(changing, NULL), start(last, NULL) };

    for (int i = 0; i < 3; i++)
        join(threads[i]);
    printf("%d\n", item.refs);
    return 0;
}
