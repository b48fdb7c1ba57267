/*
 * causes.c MODE - two threads that are delayed where only their code says that they could meet, or where only failures
 * say that they should not.
 *
 * stop: each round has a flag of its own, which both threads test, and only the first of them sets. Fails when both did.
 * apart: one thread adds to two sums, each under a lock of its own; the program fails when the other one finds
 *   that they are not equal.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 20
#define REST_US 1000

struct channel {
    int is_stopped;
    int handled;
};

static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static long sums[2]; /* each guarded by its lock */
static struct channel *channels[ROUNDS];
static int differ;
static pthread_barrier_t round_begins;

__attribute__((noinline)) static void stop(struct channel *channel)
{
    if (__atomic_load_n(&channel->is_stopped, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&channel->is_stopped, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&channel->handled, 1, __ATOMIC_RELAXED);
}

static void *stops(void *is_second)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&round_begins);
        if (is_second)
            usleep(REST_US);
        stop(channels[i]);
    }
    return NULL;
}

static void add_to(long *sum, pthread_mutex_t *of)
{
    pthread_mutex_lock(of);
    *sum = *sum * 3 + 1;
    pthread_mutex_unlock(of);
}

static long read_from(long *sum, pthread_mutex_t *of)
{
    pthread_mutex_lock(of);
    long now = *sum;
    pthread_mutex_unlock(of);
    return now;
}

__attribute__((noinline)) static void add_to_both(void)
{
    add_to(&sums[0], &locks[0]);
    add_to(&sums[1], &locks[1]);
}

__attribute__((noinline)) static void compare(void)
{
    long one = read_from(&sums[0], &locks[0]);
    long other = read_from(&sums[1], &locks[1]);

    if (one != other)
        differ = 1;
}

static void *sums_of_two(void *is_second)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&round_begins);
        if (is_second) {
            usleep(REST_US);
            compare();
        } else {
            add_to_both();
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    void *(*body)(void *) = argc > 1 && strcmp(argv[1], "apart") == 0 ? sums_of_two : stops;
    pthread_t one, other;

    for (int i = 0; i < ROUNDS; i++)
        channels[i] = calloc(1, sizeof *channels[i]);
    pthread_barrier_init(&round_begins, NULL, 2);
    pthread_create(&one, NULL, body, NULL);
    pthread_create(&other, NULL, body, (void *)1L);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    for (int i = 0; i < ROUNDS; i++)
        differ |= channels[i]->handled > 1;
    return differ;
}
