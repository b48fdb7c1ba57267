/*
 * fixed_address.c - maps memory at an address of its own choice, in place of whatever is there, and goes on in a second
 * thread. Prints where memory of probes is that can be written, and "done" if nobody else has written to its own.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "threads.h"

enum { BYTES = 64 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long numbers[16];

__attribute__((noinline)) static void add(long more)
{
    pthread_mutex_lock(&lock);
    for (int each = 0; each < 16; each++)
        numbers[each] += more;
    pthread_mutex_unlock(&lock);
}

static void *work(void *unused)
{
    for (int round = 0; round < 1000; round++)
        add(1);
    return unused;
}

int main(void)
{
    add(1);
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, " rw-s ") && strstr(line, "memfd:avtrace"))
            printf("%.*s\n", (int)strcspn(line, "-"), line);
    fclose(maps);
    char *own = mmap((void *)0x200000000000, BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (own == MAP_FAILED)
        return 1;
    pthread_t other = start(work, NULL);
    work(NULL);
    join(other);
    if (own[0] || memcmp(own, own + 1, BYTES - 1))
        return 2;
    puts("done");
}
