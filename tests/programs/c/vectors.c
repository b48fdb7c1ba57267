/*
 * vectors.c - a region of vector instructions, which the kernel's single-stepping may take for others.
 *
 * Their opcodes begin, after a prefix, with bytes that stand for jumps, calls and pushes elsewhere. The sums are the same
 * with and without probes, or something was left out.
 */
#include <immintrin.h>

#include "handshake.h"
#include "threads.h"

#define WORDS 64

static int from[WORDS], to[WORDS];

__attribute__((noinline, target("avx2"))) static void mix(int *out, const int *in)
{
    for (int i = 0; i < WORDS; i += 8) {
        __m256i one = _mm256_loadu_si256((const __m256i *)(in + i));
        __m256i other = _mm256_loadu_si256((const __m256i *)(out + i));
        __m256i sum = _mm256_subs_epi8(_mm256_add_epi32(one, other), _mm256_set1_epi8(1));

        sum = _mm256_xor_si256(sum, _mm256_adds_epi8(one, _mm256_avg_epu8(other, one)));
        sum = _mm256_shuffle_epi32(sum, 0x1b);
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_or_si256(sum, _mm256_max_epi16(one, other)));
    }
}

static void *run(void *unused)
{
    for (int i = 0; i < 50; i++)
        mix(to, from);
    return unused;
}

int main(void)
{
    unsigned long sum = 0;

    for (int i = 0; i < WORDS; i++) {
        from[i] = i * 2654435761u;
        to[i] = ~i;
    }
    if (__builtin_cpu_supports("avx2"))
        join(start(run, NULL));
    for (int i = 0; i < WORDS; i++)
        sum = sum * 31 + (unsigned)to[i];
    printf("%lu\n", sum);
    return 0;
}
