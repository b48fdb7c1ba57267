/*
 * lost_wake_up.c split|flag|again|whole|after - a notification that comes between a look at a condition and the begin of
 * the wait for it.
 *
 *     thread 1: await_news                       thread 2: bring_news
 *
 *     looks: no news
 *                              -- go_bring -->
 *                                                news, signal: nobody waits yet
 *                              <-- go_wait --
 *     waits, in vain
 *
 * split: `await_news` looks in a critical section, and waits in another one.
 * flag: it looks and waits in one section, in a loop, and `bring_news` changes the flag without the mutex.
 * again: as split, but it looks again in the second section, and does not wait. Nothing is to be found.
 * whole: it looks and waits in one section, and `bring_news` changes the flag under the mutex. Nothing is to be found.
 * after: as whole, with the signal after the section. Nothing is to be found.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "handshake.h"

#define WAIT_NS 50000000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int news; /* guarded by mutex, except in flag */
static turn_t go_bring;
static turn_t go_wait;
static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

/* Lets `bring_news` go first, once. */
static void let_it_come(void)
{
    static int has_come;

    if (has_come)
        return;
    has_come = 1;
    give_turn(go_bring);
    await_turn(go_wait);
}

static void wait_briefly(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &mutex, &until);       /* @wait */
}

static void await_in_two_sections(void)
{
    pthread_mutex_lock(&mutex);
    int seen = news;                                        /* @look */
    pthread_mutex_unlock(&mutex);
    let_it_come();
    pthread_mutex_lock(&mutex);
    if (!seen)
        wait_briefly();
    pthread_mutex_unlock(&mutex);
}

static void await_and_look_again(void)
{
    pthread_mutex_lock(&mutex);
    int seen = news;
    pthread_mutex_unlock(&mutex);
    let_it_come();
    pthread_mutex_lock(&mutex);
    while (!seen && !news)
        wait_briefly();
    pthread_mutex_unlock(&mutex);
}

static void await_in_one_section(void)
{
    pthread_mutex_lock(&mutex);
    while (!news) {                                         /* @test */
        if (is("flag"))
            let_it_come();
        wait_briefly();
    }
    pthread_mutex_unlock(&mutex);
}

static void bring_news(void)
{
    if (!is("flag"))
        pthread_mutex_lock(&mutex);
    news = 1;                                               /* @news */
    if (!is("flag") && !is("after"))
        pthread_cond_signal(&changed);                      /* @signal */
    if (!is("flag"))
        pthread_mutex_unlock(&mutex);
    if (is("flag") || is("after"))
        pthread_cond_signal(&changed);                      /* @signal_after */
}

static void *await_news(void *unused)
{
    if (is("split"))
        await_in_two_sections();
    else if (is("again"))
        await_and_look_again();
    else
        await_in_one_section();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t waiter;

    how = argc > 1 ? argv[1] : "split";
    make_turn(go_bring);
    make_turn(go_wait);
    if (is("whole") || is("after"))
        give_turn(go_bring);
    pthread_create(&waiter, NULL, await_news, NULL);
    await_turn(go_bring);
    bring_news();
    give_turn(go_wait);
    pthread_join(waiter, NULL);
    printf("news: %d\n", news);
    return 0;
}
