/*
 * runtime.c phdr|start|print|mine - locks of the C library's own, which it takes for itself.
 *
 * phdr: `work` walks the list of loaded objects twice, as those do who throw an exception or print a backtrace; the other
 * thread does so in between. Each walk holds the dynamic loader's lock.
 * start: `work` starts two threads, and the other thread starts one in between: the lock for thread-local storage.
 * print: `work` prints twice, and the other thread prints in between.
 * mine: `work` holds a mutex of its own twice, also while it walks the list, and the other thread does in between: this is
 * to be found.
 */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_other;
static turn_t go_work;
static const char *kind;

static int is(const char *name)
{
    return strcmp(kind, name) == 0;
}

static int count(struct dl_phdr_info *info, size_t size, void *number)
{
    (void)info;
    (void)size;
    ++*(int *)number;
    if (is("mine")) {
        pthread_mutex_lock(&mine);       /* @lock */
        pthread_mutex_unlock(&mine);     /* @unlock */
        return 1;
    }
    return 0;
}

static void *nothing(void *unused)
{
    return unused;
}

/* Detached from the start: musl's pthread_detach joins a thread that has ended by then. */
static void start_detached(void *(*body)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, body, NULL) != 0) {
        fputs("cannot create a thread\n", stderr);
        exit(1);
    }
    pthread_attr_destroy(&attributes);
}

static void step(void)
{
    int number = 0;

    if (is("start")) {
        start_detached(nothing);
    } else if (is("print")) {
        printf("%s\n", "a line");
        fflush(stdout);
    } else {
        dl_iterate_phdr(count, &number);
        if (number == 0)
            exit(1);
    }
}

static void work(void)
{
    AVTRACE_REGION("work");

    step();
    give_turn(go_other);
    await_turn(go_work);
    step();
}

static void *first(void *unused)
{
    work();
    return unused;
}

static void *second(void *unused)
{
    await_turn(go_other);
    step();
    give_turn(go_work);
    return unused;
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "phdr";
    make_turn(go_other);
    make_turn(go_work);

    pthread_t one = start(first, NULL), other = start(second, NULL);

    join(one);
    join(other);
    return 0;
}
