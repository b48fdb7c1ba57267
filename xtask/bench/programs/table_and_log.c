/*
 * Deleting rows and logging that are two sections under two locks. An insertion in between reaches the log first: a
 * server that replays the log deletes the new row.
 *
 * Regions: delete_all
 * Pattern: torn, overwritten, intermediate state
 * Evidence: data
 * Reference: MySQL bug 169, after Lu, Tucek, Qin, Zhou: AVIO (ASPLOS 2006)
 */
#include "turn.h"

struct table {
    pthread_mutex_t lock;
    int rows; /* guarded by lock */
};

struct binlog {
    pthread_mutex_t lock;
    char records[64]; /* guarded by lock */
    int count;        /* guarded by lock */
};

static struct table table = {PTHREAD_MUTEX_INITIALIZER, 0};
static struct binlog binlog = {PTHREAD_MUTEX_INITIALIZER, {0}, 0};
static struct turn other_may_go, first_may_go_on;

static void append(struct binlog *log, char record)
{
    pthread_mutex_lock(&log->lock);
    log->records[log->count++] = record;
    pthread_mutex_unlock(&log->lock);
}

static void delete_all(struct table *table, int is_split)
{
    pthread_mutex_lock(&table->lock);
    table->rows = 0;
    pthread_mutex_unlock(&table->lock);
    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    append(&binlog, 'd');
}

static void insert(struct table *table)
{
    pthread_mutex_lock(&table->lock);
    table->rows++;
    append(&binlog, 'i');
    pthread_mutex_unlock(&table->lock);
}

static void *deleter(void *unused)
{
    for (int i = 0; i < 10; i++) {
        insert(&table);
        delete_all(&table, 0);
    }
    delete_all(&table, 1);
    return unused;
}

static void *inserter(void *unused)
{
    turn_await(&other_may_go);
    insert(&table);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(deleter, inserter);
    /* What a replay leaves of the log. */
    int replayed = 0;
    for (int i = 0; i < binlog.count; i++)
        replayed = binlog.records[i] == 'd' ? 0 : replayed + 1;
    turn_outcome(replayed != table.rows);
    return 0;
}
