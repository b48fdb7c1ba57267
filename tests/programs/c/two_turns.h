/* Turns of two threads: one of them lets the other do its part in the middle of its own. */
#ifndef TWO_TURNS_H
#define TWO_TURNS_H

#include "handshake.h"

static turn_t go_other;
static turn_t go_on;

static inline void make_turns(void)
{
    make_turn(go_other);
    make_turn(go_on);
}

/* The other thread does its part. */
static void let_other(void)
{
    give_turn(go_other);
    await_turn(go_on);
}

#endif
