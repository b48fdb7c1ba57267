/*
 * aborts.c - ends by SIGABRT, inside a region and with a lock held.
 *
 * The region and the locked section never end. Neither is a violation, and the report is written all the
 * same. A shell sees the status 134 = 128 + SIGABRT.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "avtrace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
    puts("before the abort");
    fflush(stdout);
    AVTRACE_BEGIN("doomed");
    pthread_mutex_lock(&lock);
    abort();
}
