/*
 * Locks that are taken through a table of functions, as SQLite takes its mutexes. Pages are counted in one section and
 * the count is written in another.
 *
 * Regions: allocate_page
 * Pattern: lost update
 * Evidence: data
 * Reference: SQLite's sqlite3_mutex_methods; the bug is the bank account's of Flanagan, Freund (POPL 2004)
 */
#include "turn.h"

struct mutex_methods {
    void (*enter)(pthread_mutex_t *);
    void (*leave)(pthread_mutex_t *);
};

struct pager {
    pthread_mutex_t mutex;
    unsigned pages; /* guarded by mutex */
};

static void enter(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
}

static void leave(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
}

static void enter_nothing(pthread_mutex_t *mutex)
{
    (void)mutex;
}

static struct mutex_methods methods = {enter_nothing, enter_nothing};
static struct pager pager = {PTHREAD_MUTEX_INITIALIZER, 0};
static struct turn other_may_go, first_may_go_on;

/* As sqlite3_config does it. */
static void configure(int is_threaded)
{
    if (is_threaded)
        methods = (struct mutex_methods){enter, leave};
}

static unsigned allocate_page(struct pager *pager, int is_split)
{
    methods.enter(&pager->mutex);
    unsigned page = pager->pages;
    methods.leave(&pager->mutex);
    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    methods.enter(&pager->mutex);
    pager->pages = page + 1;
    methods.leave(&pager->mutex);
    return page;
}

static void *connection(void *unused)
{
    for (int i = 0; i < 20; i++)
        allocate_page(&pager, 0);
    allocate_page(&pager, 1);
    return unused;
}

static void *other_connection(void *unused)
{
    turn_await(&other_may_go);
    allocate_page(&pager, 0);
    turn_give(&first_may_go_on);
    return unused;
}

int main(int count, char **arguments)
{
    (void)arguments;
    configure(count > 0);
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(connection, other_connection);
    turn_outcome(pager.pages != 22);
    return 0;
}
