// A window in a function that several threads call: once it is armed, the first caller waits in it until another one has
// passed through the function.
#ifndef WINDOW_H
#define WINDOW_H

#include <fcntl.h>

#include "turn.h"

struct window {
    struct turn armed, waiting, entered, passed;
};

// One for all files of a program.
__attribute__((weak)) struct window window;

static inline void window_make(void)
{
    turn_make(&window.armed);
    turn_make(&window.waiting);
    turn_make(&window.entered);
    turn_make(&window.passed);
    fcntl(window.armed.ends[0], F_SETFL, O_NONBLOCK);
    fcntl(window.waiting.ends[0], F_SETFL, O_NONBLOCK);
}

static inline void window_arm(void)
{
    turn_give(&window.armed);
}

// Where the function can be left.
static inline void window_enter(void)
{
    char byte;

    if (UNFORCED)
        return;
    if (read(window.armed.ends[0], &byte, 1) == 1) {
        turn_give(&window.waiting);
        turn_give(&window.entered);
        turn_await(&window.passed);
    }
}

// The end of the function.
static inline void window_leave(void)
{
    char byte;

    if (UNFORCED)
        return;
    if (read(window.waiting.ends[0], &byte, 1) == 1)
        turn_give(&window.passed);
}

#endif
