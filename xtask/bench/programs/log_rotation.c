/*
 * Rotation of a log: the old file is closed in one section and the new one opened in another. A writer that comes in
 * between finds no log that is open, and its record is missing.
 *
 * Regions: rotate_log
 * Pattern: intermediate state
 * Evidence: data
 * Reference: MySQL bug 791, after Lu, Tucek, Qin, Zhou: AVIO (ASPLOS 2006)
 */
#include "turn.h"

#define QUIET_RECORDS 20

enum log_state { LOG_CLOSED, LOG_OPEN };

struct binlog {
    pthread_mutex_t lock;
    enum log_state state; /* guarded by lock */
    long records;         /* guarded by lock */
    long file;            /* guarded by lock */
};

static struct binlog binlog = {PTHREAD_MUTEX_INITIALIZER, LOG_OPEN, 0, 1};
static struct turn writer_may_go, rotation_may_go_on;

static void log_close(struct binlog *log)
{
    pthread_mutex_lock(&log->lock);
    log->state = LOG_CLOSED;
    pthread_mutex_unlock(&log->lock);
}

static void log_open(struct binlog *log)
{
    pthread_mutex_lock(&log->lock);
    log->state = LOG_OPEN;
    log->file++;
    pthread_mutex_unlock(&log->lock);
}

static void rotate_log(struct binlog *log, int is_split)
{
    log_close(log);
    if (is_split) {
        turn_give(&writer_may_go);
        turn_await(&rotation_may_go_on);
    }
    log_open(log);
}

static void log_write(struct binlog *log)
{
    pthread_mutex_lock(&log->lock);
    if (log->state == LOG_OPEN)
        log->records++;
    pthread_mutex_unlock(&log->lock);
}

static void *rotator(void *unused)
{
    for (int i = 0; i < 5; i++)
        rotate_log(&binlog, 0);
    rotate_log(&binlog, 1);
    return unused;
}

static void *writer(void *unused)
{
    for (int i = 0; i < QUIET_RECORDS; i++)
        log_write(&binlog);
    turn_await(&writer_may_go);
    log_write(&binlog);
    turn_give(&rotation_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&writer_may_go);
    turn_make(&rotation_may_go_on);
    run_both(rotator, writer);
    turn_outcome(binlog.records <= QUIET_RECORDS);
    return 0;
}
