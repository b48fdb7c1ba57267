/*
 * exec_loop.c COUNT - replaces itself by itself COUNT times, and writes a letter each time; then `done`.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0;
    char rest[16];

    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    if (count == 0) {
        puts("done");
        return 7;
    }
    if (write(STDOUT_FILENO, "x", 1) != 1)
        return 1;
    snprintf(rest, sizeof rest, "%d", count - 1);
    execl("/proc/self/exe", argv[0], rest, (char *)NULL);
    return 127;
}
