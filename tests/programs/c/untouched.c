/*
 * untouched.c - forks children that compare their code with its files, which differs where there are breakpoints:
 *
 *     child        of fork
 *     grandchild   of a child that forks it at once, and waits for it
 *     orphan       of a child that forks it at once, and ends
 *
 * Each prints whether its code is as in the files in the end. A child of vfork has the memory of its parent, where the
 * breakpoints must stay: whether there are as many as before is printed as well. Without avtrace there are none.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "avtrace.h"
#include "handshake.h"
#include "own_code.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t orphan_ends;

static void work(void)
{
    AVTRACE_REGION("work");
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void tell(const char *name, int is_restored)
{
    work();
    dprintf(1, "%s: %s\n", name, is_restored ? "restored" : "changed");
}

static void await_child(pid_t child)
{
    int status = 0;

    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        dprintf(1, "a child ended with %#x\n", status);
        exit(1);
    }
}

static void in_child(const char *name)
{
    pid_t child = fork();

    if (child == 0) {
        tell(name, code_is_restored());
        _exit(0);
    }
    await_child(child);
}

int main(void)
{
    long before = changed_code();

    make_turn(orphan_ends);
    work();

    pid_t child = vfork();

    if (child == 0) {
        usleep(1000);
        _exit(0);
    }
    await_child(child);
    in_child("child");

    child = fork();
    if (child == 0) {
        in_child("grandchild");
        _exit(0);
    }
    await_child(child);

    child = fork();
    if (child == 0) {
        if (fork() == 0) {
            tell("orphan", code_is_restored());
            give_turn(orphan_ends);
        }
        _exit(0);
    }
    await_child(child);
    await_turn(orphan_ends);

    printf("parent: %s, %s\n", before ? "probed" : "not probed",
           changed_code() == before ? "as before" : "changed");
    return 0;
}
