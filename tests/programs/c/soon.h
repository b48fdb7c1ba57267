/* Deadlines a little ahead, for calls that have to time out, and far ahead, for those that must not. */
#ifndef SOON_H
#define SOON_H

#include <time.h>

static inline struct timespec in_milliseconds(clockid_t clock, long milliseconds)
{
    struct timespec time;

    clock_gettime(clock, &time);
    time.tv_sec += milliseconds / 1000;
    time.tv_nsec += milliseconds % 1000 * 1000 * 1000;
    if (time.tv_nsec >= 1000 * 1000 * 1000) {
        time.tv_sec++;
        time.tv_nsec -= 1000 * 1000 * 1000;
    }
    return time;
}

static inline struct timespec soon(clockid_t clock)
{
    return in_milliseconds(clock, 10);
}

static inline struct timespec never(clockid_t clock)
{
    return in_milliseconds(clock, 1000 * 1000);
}

#endif
