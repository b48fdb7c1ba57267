/*
 * early_main.c WHAT - a program that early.c, linked as a library, does things to before it starts. One region, which
 * is seen wherever the program is traced. Its exit status is 7.
 */
#include "avtrace.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    AVTRACE_REGION("main");

    printf("main: %s\n", argc > 1 ? argv[1] : "nothing");
    fflush(stdout);
    return 7;
}
