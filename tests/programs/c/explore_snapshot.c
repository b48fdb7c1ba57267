/* A pair that is read without a lock: `read_pair` reads the first half again, and takes the pair if that has not
 * changed meanwhile. It may have changed twice. PairSnapshot of "Interleaving-tree Based Fine-grained Linearizability
 * Fault Localization", with its test. Prints the pair that was read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int d[2] = {1, 1};
static int first, second;

__attribute__((noinline)) static void write_half(int i, int value) {
    atomic_store_explicit(&d[i], value, memory_order_release); /* @write */
}

__attribute__((noinline)) static void read_pair(void) {
    int x, y;
    do {
        x = atomic_load_explicit(&d[0], memory_order_acquire); /* @first */
        y = atomic_load_explicit(&d[1], memory_order_acquire); /* @second */
    } while (x != atomic_load_explicit(&d[0], memory_order_acquire)); /* @again */
    first = x;
    second = y;
}

static void *writer(void *unused) {
    (void)unused;
    write_half(0, 2);
    write_half(1, 2);
    write_half(1, 1);
    write_half(0, 1);
    return NULL;
}

static void *reader(void *unused) {
    (void)unused;
    read_pair();
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, writer, NULL);
    pthread_create(&threads[1], NULL, reader, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d %d\n", first, second);
    return 0;
}
