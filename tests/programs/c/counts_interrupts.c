/*
 * counts_interrupts.c [apart] - counts what a terminal sends, until it is to terminate; its exit status is 10 more than
 * that. With `apart` it first makes a process group of its own, as job control does.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t count;
static volatile sig_atomic_t is_over;

static void on_signal(int signal)
{
    if (signal == SIGTERM) {
        is_over = 1;
        return;
    }
    count++;
    if (write(1, "interrupted\n", 12) != 12)
        _exit(1);
}

int main(int argc, char **argv)
{
    static const int signals[] = { SIGINT, SIGQUIT, SIGTERM };
    struct sigaction action;
    sigset_t before;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    /* Blocked until sigsuspend, so that none before it is lost. */
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&action.sa_mask, signals[i]);
    sigprocmask(SIG_BLOCK, &action.sa_mask, &before);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
    if (argc > 1 && strcmp(argv[1], "apart") == 0)
        setpgid(0, 0);

    puts("ready");
    fflush(stdout);
    while (!is_over)
        sigsuspend(&before);
    return 10 + count;
}
