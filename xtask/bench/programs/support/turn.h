// Turns between threads, through pipes: they force an order and are nothing that avtrace records. The whole program ends
// by SIGALRM when a turn does not come. A build with -DUNFORCED takes no turns: threads meet as they happen to.
#ifndef TURN_H
#define TURN_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef UNFORCED
#define UNFORCED 0
#endif

// The program's limit, in seconds.
#define TURN_LIMIT 60

// A pipe: the first end is read from, the second is written to.
struct turn {
    int ends[2];
};

static inline void turn_make(struct turn *turn)
{
    alarm(TURN_LIMIT);
    if (pipe(turn->ends) != 0) {
        perror("pipe");
        exit(1);
    }
}

static inline void turn_give(const struct turn *turn)
{
    if (UNFORCED)
        return;
    if (write(turn->ends[1], "!", 1) != 1) {
        perror("write to a pipe");
        exit(1);
    }
}

static inline void turn_await(const struct turn *turn)
{
    char byte;

    if (UNFORCED)
        return;
    if (read(turn->ends[0], &byte, 1) != 1) {
        perror("read from a pipe");
        exit(1);
    }
}

// Runs two threads to their ends.
static inline void run_both(void *(*first)(void *), void *(*second)(void *))
{
    pthread_t threads[2];

    if (pthread_create(&threads[0], NULL, first, NULL) != 0 || pthread_create(&threads[1], NULL, second, NULL) != 0) {
        fputs("cannot create a thread\n", stderr);
        exit(1);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

// Says whether the bad interleaving has happened, as its effect shows.
static inline void turn_outcome(int is_bad)
{
    printf("interleaved: %s\n", is_bad ? "yes" : "no");
    fflush(stdout);
}

#endif
