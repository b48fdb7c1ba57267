/* Turns between threads, through pipes: they force an order and are nothing that avtrace records. */
#ifndef HANDSHAKE_H
#define HANDSHAKE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
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

/* Sends the identity of the calling thread. */
static inline void give_thread(const turn_t turn)
{
    pid_t thread = (pid_t)syscall(SYS_gettid);

    if (write(turn[1], &thread, sizeof thread) != sizeof thread) {
        perror("write to a pipe");
        exit(1);
    }
}

static inline pid_t receive_thread(const turn_t turn)
{
    pid_t thread;

    if (read(turn[0], &thread, sizeof thread) != sizeof thread) {
        perror("read from a pipe");
        exit(1);
    }
    return thread;
}

/* Waits until a thread of this process is in futex(2), as one that waits for a condition or a lock is. */
static inline void await_futex(pid_t thread)
{
    char path[64], call[64];
    size_t number;

    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    do {
        int file = open(path, O_RDONLY);
        ssize_t length = file < 0 ? -1 : read(file, call, sizeof call - 1);

        if (length < 0) {
            perror(path);
            exit(1);
        }
        close(file);
        call[length] = 0;
        number = strtoul(call, NULL, 10);
    } while (number != SYS_futex);
}

#endif
