/*
 * own_code.c        - prints how many bytes of its code are not those of the files that it is from.
 * own_code.c PIPE   - forks, says of child and parent whether there are any, and stays until somebody writes to the pipe.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "avtrace.h"
#include "handshake.h"
#include "own_code.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void tell(const char *name)
{
    AVTRACE_REGION("tell");
    pthread_mutex_lock(&lock);
    dprintf(1, "%s: %s\n", name, changed_code() ? "probed" : "not probed");
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    turn_t child_told, child_ends;
    int status = 0;

    if (argc < 2) {
        printf("%ld\n", changed_code());
        return 0;
    }
    make_turn(child_told);
    make_turn(child_ends);

    pid_t child = fork();

    if (child == 0) {
        tell("child");
        give_turn(child_told);
        await_turn(child_ends);
        _exit(0);
    }
    await_turn(child_told);
    tell("parent");

    char byte;
    int pipe = open(argv[1], O_RDONLY);

    if (pipe < 0 || read(pipe, &byte, 1) != 1) {
        perror(argv[1]);
        return 1;
    }
    give_turn(child_ends);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
