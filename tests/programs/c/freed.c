/*
 * freed.c [looked_up|counted|both] [fixed] - memory is freed while another thread has found it and goes on to use it.
 *
 * looked_up: a node is found under a lock, and its reference is taken after the lock was released. Another thread
 * puts a new node in its place meanwhile and drops the last reference. fixed: the reference is taken under the lock.
 * counted: both threads use a node and drop their references, which is correct; the last one frees it.
 * both: the thread that finds the count at zero frees the node, and both find it there. fixed: they look under the lock.
 */
#include "threads.h"
#include "two_turns.h"

struct node {
    int key;
    /* The allocator's, when the node is freed. */
    long unused[2];
    int refs;
    int uses;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *slot;
static int is_fixed;
static volatile int freed, references;

__attribute__((noinline)) static struct node *new_node(int key, int refs)
{
    struct node *node = malloc(sizeof *node);

    node->key = key;
    node->refs = refs;
    node->uses = 0;
    return node;
}

__attribute__((noinline)) static void drop(struct node *node)
{
    if (__atomic_sub_fetch(&node->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(node); /* @drop */
}

#ifndef RESULT_UNUSED
__attribute__((noinline)) static int take(struct node *node)
{
    return __atomic_add_fetch(&node->refs, 1, __ATOMIC_RELAXED); /* @used */
}
#define TAKE(node) (references = take(node))
#else
/* Other ways lead to the code behind it: the instruction is a line by itself. */
#define TAKE(node) __atomic_add_fetch(&(node)->refs, 1, __ATOMIC_RELAXED)
#endif

__attribute__((noinline)) static struct node *get(int key)
{
    struct node *found;

    pthread_mutex_lock(&lock);
    found = slot->key == key ? slot : NULL; /* @found */
    if (found && is_fixed)
        TAKE(found);
    pthread_mutex_unlock(&lock);
    let_other();
    if (found && !is_fixed)
        TAKE(found); /* @taken */
    return found;
}

__attribute__((noinline)) static void put(int key)
{
    struct node *node = new_node(key, 1), *old;

    pthread_mutex_lock(&lock);
    old = slot;
    slot = node;
    pthread_mutex_unlock(&lock);
    drop(old);
}

__attribute__((noinline)) static void use(struct node *node)
{
    pthread_mutex_lock(&lock);
    node->uses++;
    pthread_mutex_unlock(&lock);
    drop(node);
}

/* The node is not freed twice for the allocator's sake: the second free is of no block. */
__attribute__((noinline)) static void release(struct node *node, int first)
{
    int refs;

    pthread_mutex_lock(&lock);
    refs = --node->refs;
    if (is_fixed && refs == 0)
        free(node);
    pthread_mutex_unlock(&lock);
    if (is_fixed)
        return;
    if (first)
        let_other();
    pthread_mutex_lock(&lock);
    refs = node->refs; /* @looked */
    pthread_mutex_unlock(&lock);
    if (refs == 0 && !freed) {
        freed = 1;
        free(node); /* @released */
    }
}

static void *other(void *mode)
{
    if (strcmp(mode, "looked_up") == 0) {
        await_turn(go_other);
        put(2);
        give_turn(go_on);
    } else if (strcmp(mode, "counted") == 0) {
        await_turn(go_other);
        use(slot);
        give_turn(go_on);
    } else {
        if (!is_fixed)
            await_turn(go_other);
        release(slot, 0);
        if (!is_fixed)
            give_turn(go_on);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char *mode = argc > 1 ? argv[1] : "looked_up";
    pthread_t thread;

    is_fixed = argc > 2;
    make_turns();
    slot = new_node(1, strcmp(mode, "looked_up") == 0 ? 1 : 2);
    thread = start(other, mode);
    if (strcmp(mode, "looked_up") == 0) {
        struct node *found = get(1);

        if (is_fixed)
            drop(found);
    } else if (strcmp(mode, "counted") == 0) {
        struct node *node = slot;

        pthread_mutex_lock(&lock);
        node->uses++;
        pthread_mutex_unlock(&lock);
        let_other();
        drop(node);
    } else {
        release(slot, 1);
    }
    join(thread);
    puts("done");
    return 0;
}
