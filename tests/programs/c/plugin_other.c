/*
 * plugin_other.c - another library for host.c, of the same size as plugin.c, with its code in other places.
 */


int run(int fixed);
int other_first(int fixed);
#define run other_first
#include "plugin.c"
#undef run

int run(int fixed)
{
    return other_first(fixed) + 100;
}
