// A library: two exported functions and a static one between them.
#include "fee.h"

int fee_table[8] = {1, 2, 3};

__attribute__((noinline)) static int look_up(int kind)
{
    return fee_table[kind & 7]; // library line
}

int fee_of(int kind)
{
    return look_up(kind) + 1; // library call
}

int fee_callback(int (*callback)(int), int kind)
{
    int result = callback(kind); // calls back
    return result + 1;
}
