/*
 * ignores_signals.c - says so when a signal asks it to end, and goes on.
 *
 * Prints "ready", and the name of each SIGTERM and SIGINT.
 */
#include <signal.h>
#include <unistd.h>

static void say(int signal)
{
    if (signal == SIGTERM)
        (void)!write(1, "TERM\n", 5);
    else
        (void)!write(1, "INT\n", 4);
}

int main(void)
{
    signal(SIGTERM, say);
    signal(SIGINT, say);
    (void)!write(1, "ready\n", 6);
    for (;;)
        pause();
}
