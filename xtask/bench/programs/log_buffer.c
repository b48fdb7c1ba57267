/*
 * A buffered log without any lock: the index is read, the line copied there, and the index set behind it. A line that
 * comes in between is overwritten.
 *
 * Regions: buffered_log_write
 * Pattern: lost update, stale read, torn
 * Evidence: data
 * Reference: Apache httpd bug 25520, mod_log_config, after Lu et al.: AVIO (ASPLOS 2006)
 */
#include <string.h>

#include "turn.h"

#define QUIET_LINES 20

struct log_buffer {
    size_t used;
    char text[1024];
};

struct log_buffer access_log;
static struct turn other_may_go, first_may_go_on;

static void buffered_log_write(struct log_buffer *log, const char *line, int is_split)
{
    size_t length = strlen(line);
    size_t at = log->used;

    for (size_t i = 0; i < length; i++)
        log->text[at + i] = line[i];
    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    log->used = at + length;
}

static void *worker(void *unused)
{
    for (int i = 0; i < QUIET_LINES; i++)
        buffered_log_write(&access_log, "GET /\n", 0);
    buffered_log_write(&access_log, "GET /first\n", 1);
    return unused;
}

static void *other_worker(void *unused)
{
    turn_await(&other_may_go);
    buffered_log_write(&access_log, "GET /second\n", 0);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(worker, other_worker);
    turn_outcome(access_log.used != QUIET_LINES * 6 + 11 + 12);
    return 0;
}
