/*
 * tokens.c - threads pass tokens round by exchanges with memory that stand alone in their lines of code, as a store with
 * sequential consistency does behind a call: prints how many tokens are missing or there twice.
 */
#include <stdatomic.h>
#include "threads.h"

enum { SLOTS = 3, THREADS = 4, ROUNDS = 3000, TOKENS = SLOTS + THREADS };

/* 8 bytes each; the first by its address in the instruction, the others through a register. */
long slots[SLOTS];
static _Atomic long published;
static long held[THREADS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long rounds;

/* Return what was in the slot. No instruction of these can take a probe but the exchange and the return. */
long exchange_at(long *slot, long token);
long exchange_first(long token);
__asm__(".text\n"
        ".globl exchange_at\n"
        ".type exchange_at, @function\n"
        "exchange_at:\n"
        "    movq %rsi, %rax\n"
        "    xchgq %rax, (%rdi)\n"
        "    ret\n"
        ".size exchange_at, . - exchange_at\n"
        ".globl exchange_first\n"
        ".type exchange_first, @function\n"
        "exchange_first:\n"
        "    movq %rdi, %rax\n"
        "    xchgq %rax, slots(%rip)\n"
        "    ret\n"
        ".size exchange_first, . - exchange_first\n");

/* A store behind a call, as compilers make it. */
__attribute__((noinline)) static void publish(long value)
{
    atomic_store(&published, value); /* @publish */
}

/* A region, so that accesses matter. */
static __attribute__((noinline)) void finish_round(void)
{
    pthread_mutex_lock(&mutex);
    rounds++;
    pthread_mutex_unlock(&mutex);
}

static void *work(void *own)
{
    long token = *(long *)own;

    for (int round = 0; round < ROUNDS; round++) {
        token = round % SLOTS == 0 ? exchange_first(token)
                                   : exchange_at(&slots[round % SLOTS], token);
        publish(token);
        if (round % 100 == 0)
            finish_round();
    }
    *(long *)own = token;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int seen[TOKENS] = { 0 }, wrong = 0;

    for (int slot = 0; slot < SLOTS; slot++)
        slots[slot] = slot;
    for (int thread = 0; thread < THREADS; thread++)
        held[thread] = SLOTS + thread;
    for (int thread = 0; thread < THREADS; thread++)
        threads[thread] = start(work, &held[thread]);
    for (int thread = 0; thread < THREADS; thread++)
        join(threads[thread]);
    for (int slot = 0; slot < SLOTS; slot++)
        seen[slots[slot]]++;
    for (int thread = 0; thread < THREADS; thread++)
        seen[held[thread]]++;
    for (int token = 0; token < TOKENS; token++)
        wrong += seen[token] != 1;
    printf("%d wrong, published %s\n", wrong, published < TOKENS ? "one" : "none");
    return 0;
}
