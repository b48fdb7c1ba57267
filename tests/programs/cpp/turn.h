// Turns between threads, through pipes: they force an order and are nothing that avtrace records.
#ifndef TURN_H
#define TURN_H

#include <cstdio>
#include <cstdlib>

#include <unistd.h>

// One thread gives the turn, the other one waits for it.
class turn {
public:
    turn()
    {
        if (pipe(ends_) != 0) {
            std::perror("pipe");
            std::exit(1);
        }
    }

    void give() const
    {
        if (write(ends_[1], "!", 1) != 1) {
            std::perror("write to a pipe");
            std::exit(1);
        }
    }

    void await() const
    {
        char byte;

        if (read(ends_[0], &byte, 1) != 1) {
            std::perror("read from a pipe");
            std::exit(1);
        }
    }

private:
    int ends_[2];
};

#endif
