// A region whose exit is two bytes, `pop` and `ret`, with -O1, which aligns nothing: there is no padding around. It looks
// at an account and then sets it; another thread's turn comes in between. With an argument nobody else comes in.
#include <pthread.h>

#include "handshake.h"

struct account {
    int value;
    pthread_mutex_t lock;
};

static struct account account = {0, PTHREAD_MUTEX_INITIALIZER};
static turn_t came, gone;
static __thread int lets_others_in;

__attribute__((noinline)) static int look(struct account *of)
{
    pthread_mutex_lock(&of->lock);
    int value = of->value;
    pthread_mutex_unlock(&of->lock);
    if (lets_others_in) {
        give_turn(came);
        await_turn(gone);
    }
    return value;
}

__attribute__((noinline)) static int more(int value)
{
    return value + 10;
}

__attribute__((noinline)) static void set(struct account *of, int value)
{
    pthread_mutex_lock(&of->lock);
    of->value = value;
    pthread_mutex_unlock(&of->lock);
}

__attribute__((noinline)) static void turn(struct account *of)
{
    set(of, more(look(of)));
}

static void *first(void *of)
{
    lets_others_in = 1;
    turn(of);
    return NULL;
}

static void *second(void *of)
{
    await_turn(came);
    turn(of);
    give_turn(gone);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[2];

    (void)arguments;
    if (count > 1) {
        turn(&account);
        return 0;
    }
    make_turn(came);
    make_turn(gone);
    pthread_create(&threads[0], NULL, first, &account);
    pthread_create(&threads[1], NULL, second, &account);
    for (int number = 0; number < 2; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
