/*
 * A pointer that is compared with null and then used, without any lock: another thread clears it in between.
 *
 * Regions: print_process
 * Pattern: stale read
 * Evidence: data
 * Reference: MySQL bug 3596, thd->proc_info, after Lu et al.: Learning from Mistakes (ASPLOS 2008)
 */
#include <string.h>

#include "turn.h"

struct session {
    const char *volatile proc_info;
    long queries;
};

struct session session = {"sending data", 0};
static struct turn other_may_go, first_may_go_on;
static int is_null_used;

static void print_process(struct session *of, int is_split)
{
    if (of->proc_info) {
        if (is_split) {
            turn_give(&other_may_go);
            turn_await(&first_may_go_on);
        }
        const char *info = of->proc_info;

        if (info)
            fprintf(stderr, "%s\n", info);
        else
            is_null_used = 1; /* where the server crashed */
    }
}

static void end_query(struct session *of)
{
    of->proc_info = NULL;
    of->queries++;
}

static void *show_processlist(void *unused)
{
    for (int i = 0; i < 10; i++)
        print_process(&session, 0);
    print_process(&session, 1);
    return unused;
}

static void *query(void *unused)
{
    turn_await(&other_may_go);
    end_query(&session);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(show_processlist, query);
    turn_outcome(is_null_used);
    return 0;
}
