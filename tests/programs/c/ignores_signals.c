/*
 * ignores_signals.c - says so when a signal asks it to end, and goes on.
 *
 * Prints "ready", and "signal" for each SIGTERM and SIGINT.
 */
#include <signal.h>
#include <unistd.h>

static void say(int signal)
{
    (void)signal;
    (void)!write(1, "signal\n", 7);
}

int main(void)
{
    signal(SIGTERM, say);
    signal(SIGINT, say);
    (void)!write(1, "ready\n", 6);
    for (;;)
        pause();
}
