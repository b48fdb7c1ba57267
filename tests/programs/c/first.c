/*
 * first.c - functions whose first instruction takes no breakpoint of the kernel: an atomic one, and one of AVX, which
 * the kernel takes for a jump. Two threads call each of them 500 times. Prints the sum.
 */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 2, CALLS = 500 };

static int total;
static int words[4] = {1, 2, 3, 4}, copied[4];

__attribute__((naked, noinline)) int count(__attribute__((unused)) int *word)
{
    __asm__("lock addl $1, (%rdi)\n\t"
            "movl (%rdi), %eax\n\t"
            "ret");
}

__attribute__((naked, noinline)) void copy(__attribute__((unused)) int *from,
                                            __attribute__((unused)) int *to)
{
    __asm__("vmovups (%rdi), %xmm0\n\t"
            "vmovups %xmm0, (%rsi)\n\t"
            "ret");
}

static void *work(void *argument)
{
    for (int call = 0; call < CALLS; call++) {
        count(&total);
        copy(words, copied);
    }
    return argument;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, work, NULL);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    printf("%d\n", total + copied[3]);
    return 0;
}
