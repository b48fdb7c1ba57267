/* large.c - names a variable as shared that is too large to be watched, by a million times and more. */
#include <stdio.h>

#include "avtrace.h"

static char large[1UL << 30] __attribute__((__aligned__(8)));

int main(void)
{
    AVTRACE_SHARED(large);
    large[5]++;
    printf("%d\n", large[5]);
    return 0;
}
