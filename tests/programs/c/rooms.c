/*
 * rooms.c FIFO - a process that runs already when it is traced, with code in which patches lie within each other: `step`
 * ends in two bytes that others than the one before jump to, which is too little for a jump to a trampoline, and `mark`
 * next to it is an instruction with room for two. It reads commands of one byte from FIFO:
 *
 * t: three threads at once execute both many times.
 * q: end with status 7.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "threads.h"

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
long first, second;
int marked;

void mark(void);
long step(long only_looks);

__asm__(".pushsection .text\n"
        ".balign 4096\n"
        ".globl mark, step\n"
        ".type mark, @function\n"
        ".type step, @function\n"
        "mark: movl $1, marked(%rip)\n"
        "ret\n"
        ".size mark, . - mark\n"
        "step: push %rbx\n"
        "test %rdi, %rdi\n"
        "jne 1f\n"
        "lea lock(%rip), %rbx\n"
        "mov %rbx, %rdi\n"
        "call pthread_mutex_lock@plt\n"
        "addq $1, first(%rip)\n"
        "addq $2, second(%rip)\n"
        "mov %rbx, %rdi\n"
        "call pthread_mutex_unlock@plt\n"
        "1: pop %rbx\n"
        "ret\n"
        ".size step, . - step\n"
        ".popsection");

static void *work(void *unused)
{
    for (int round = 0; round < 100; round++) {
        step(0);
        mark();
        step(1);
    }
    return unused;
}

int main(int argc, char **argv)
{
    char command;
    int commands = open(argv[argc - 1], O_RDWR | O_CLOEXEC);
    puts("ready");
    fflush(stdout);
    while (read(commands, &command, 1) == 1 && command != 'q') {
        pthread_t threads[3];
        for (int each = 0; each < 3; each++)
            threads[each] = start(work, NULL);
        for (int each = 0; each < 3; each++)
            join(threads[each]);
        printf("%c %s\n", command, second == 2 * first ? "done" : "wrong");
        fflush(stdout);
    }
    exit(7);
}
