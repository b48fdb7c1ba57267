/* Turns between threads, through pipes: they force an order and are nothing that avtrace records. */
#ifndef HANDSHAKE_H
#define HANDSHAKE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A pipe: [0] is read from, [1] is written to. */
typedef int turn_t[2];

static inline void make_turn(turn_t turn)
{
    if (pipe(turn) != 0) {
        perror("pipe");
        exit(1);
    }
}

static inline void give_turn(const turn_t turn)
{
    if (write(turn[1], "!", 1) != 1) {
        perror("write to a pipe");
        exit(1);
    }
}

static inline void await_turn(const turn_t turn)
{
    char byte;

    if (read(turn[0], &byte, 1) != 1) {
        perror("read from a pipe");
        exit(1);
    }
}

#endif
