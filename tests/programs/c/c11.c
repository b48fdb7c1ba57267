/*
 * c11.c lock|try|timed|whole|condition|once - the threads of C11.
 *
 * lock, try, timed: `transfer` holds a mutex twice, the second time by the function that the word names, and the audit
 * holds it in between: the transfer is not atomic.
 * whole: one locked section. Nothing is to be found.
 * condition: the transfer waits for a condition in its region.
 * once: the transfer runs a routine and takes the mutex later; the audit passes the once flag and the mutex in
 * between.
 */
#include <string.h>
#include <threads.h>

#include "avtrace.h"
#include "handshake.h"
#include "soon.h"

static mtx_t mutex;
static cnd_t condition;
static once_flag once = ONCE_FLAG_INIT;
static long balance = 1000; /* guarded by mutex */
static int audited;         /* guarded by mutex */
static turn_t go_audit;
static turn_t go_transfer;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static void must(int status)
{
    if (status != thrd_success) {
        fprintf(stderr, "c11: status %d\n", status);
        exit(1);
    }
}

static void routine(void)
{
    balance++;
}

static void transfer(void)
{
    AVTRACE_REGION("transfer");               /* @begin */
    struct timespec until = never(CLOCK_REALTIME);

    if (is("once"))
        call_once(&once, routine);            /* @run */
    else
        must(mtx_lock(&mutex));
    if (is("whole"))
        give_turn(go_audit);
    if (is("condition")) {
        give_turn(go_audit);
        while (!audited)
            must(cnd_wait(&condition, &mutex)); /* @wait */
    }
    if (is("whole") || is("condition")) {
        must(mtx_unlock(&mutex));
        return;
    }
    if (!is("once"))
        must(mtx_unlock(&mutex));             /* @unlock */

    give_turn(go_audit);
    await_turn(go_transfer);

    if (is("try"))
        must(mtx_trylock(&mutex));            /* @try */
    else if (is("timed"))
        must(mtx_timedlock(&mutex, &until));  /* @timed */
    else
        must(mtx_lock(&mutex));               /* @lock */
    balance -= 100;
    must(mtx_unlock(&mutex));
}

static void audit(void)
{
    AVTRACE_REGION("audit");

    if (is("once"))
        call_once(&once, routine);            /* @pass */
    must(mtx_lock(&mutex));                   /* @audit_lock */
    balance -= 5;
    audited = 1;
    must(cnd_signal(&condition));             /* @signal */
    must(mtx_unlock(&mutex));                 /* @audit_unlock */
}

static int first(void *unused)
{
    (void)unused;
    transfer();
    return 0;
}

static int second(void *unused)
{
    (void)unused;
    await_turn(go_audit);
    audit();
    give_turn(go_transfer);
    return 0;
}

int main(int argc, char **argv)
{
    thrd_t teller, auditor;

    how = argc > 1 ? argv[1] : "lock";
    must(mtx_init(&mutex, mtx_timed));
    must(cnd_init(&condition));
    make_turn(go_audit);
    make_turn(go_transfer);
    must(thrd_create(&teller, first, NULL));
    must(thrd_create(&auditor, second, NULL));
    must(thrd_join(teller, NULL));
    must(thrd_join(auditor, NULL));
    cnd_destroy(&condition);
    mtx_destroy(&mutex);
    printf("balance: %ld\n", balance);
    return 0;
}
