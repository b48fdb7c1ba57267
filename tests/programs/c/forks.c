/*
 * forks.c WHERE - forks; in the `child`, in the `parent`, in `both` or in `none` of them a transfer is split.
 *
 *     transfer                                  audit
 *
 *     lock, unlock
 *                                               lock, unlock
 *     lock, unlock
 *
 * In the others the transfer holds its lock all the while. The child exits with 3. Both use the same addresses at the
 * same time: a tracer that takes them for one process sees what is not there. The parent forks within a region that it
 * ends.
 */
#include <string.h>
#include <sys/wait.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static turn_t go_audit;
static turn_t go_transfer;
static int is_split;

static void *transfer(void *unused)
{
    AVTRACE_REGION("transfer");
    pthread_mutex_lock(&lock);
    if (is_split) {
        pthread_mutex_unlock(&lock);           /* @unlock */
        give_turn(go_audit);
        await_turn(go_transfer);
        pthread_mutex_lock(&lock);             /* @relock */
    }
    pthread_mutex_unlock(&lock);
    if (!is_split) {
        give_turn(go_audit);
        await_turn(go_transfer);
    }
    return unused;
}

static void *audit(void *unused)
{
    AVTRACE_REGION("audit");
    await_turn(go_audit);
    pthread_mutex_lock(&lock);                 /* @audit */
    pthread_mutex_unlock(&lock);
    give_turn(go_transfer);
    return unused;
}

static void work(void)
{
    make_turn(go_audit);
    make_turn(go_transfer);

    pthread_t first = start(transfer, NULL), second = start(audit, NULL);

    join(first);
    join(second);
}

int main(int argc, char **argv)
{
    const char *where = argc > 1 ? argv[1] : "none";
    turn_t child_works, child_ends;
    int status = 0;

    make_turn(child_works);
    make_turn(child_ends);
    AVTRACE_BEGIN("forking");

    pid_t child = fork();

    AVTRACE_END("forking");
    if (child < 0)
        return 1;
    if (child == 0) {
        give_turn(child_works);
        is_split = strcmp(where, "child") == 0 || strcmp(where, "both") == 0;
        work();
        await_turn(child_ends);
        _exit(3);
    }
    await_turn(child_works);
    is_split = strcmp(where, "parent") == 0 || strcmp(where, "both") == 0;
    work();
    give_turn(child_ends);
    waitpid(child, &status, 0);
    printf("the child's status was %d\n", WEXITSTATUS(status));
    return 0;
}
