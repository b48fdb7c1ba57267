/*
 * dead_register.c [ROUNDS] - three threads execute `set_up` 2000 times, or one after the other ROUNDS times, which
 * stores to an object of their own. After a while its address is only in a register that nothing reads any more: the one that it was computed into
 * for the stores, minus 0x18. So the addresses of the first stores are known from that alone where a probe at a later
 * instruction reports them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "threads.h"

static int rounds = 2000;

struct context {
    char unused[0x38];
    char *flag;
};

long first, second;
static char yes = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline, used)) void *allocate(void)
{
    pthread_mutex_lock(&lock);
    void *object = calloc(1, 64);
    pthread_mutex_unlock(&lock);
    return object;
}

long set_up(struct context *context, long *own);

__asm__(".globl set_up\n"
        ".type set_up, @function\n"
        "set_up: push %rbp\n"
        "push %rbx\n"
        "sub $8, %rsp\n"
        "mov %rdi, %rbp\n"
        "mov %rsi, %rbx\n"
        "call allocate\n"
        "test %rax, %rax\n"
        "je 2f\n"
        "mov first(%rip), %rdx\n"
        "movabs $0xffffffff00000000, %rdi\n"
        "mov %rdi, 0x28(%rax)\n"
        "lea second(%rip), %rdi\n"
        "mov %rdx, (%rax)\n"
        "lea 0x18(%rax), %rdx\n"
        "mov %rdx, 0x20(%rax)\n"
        "mov %rdx, 0x18(%rax)\n"
        "mov %rax, 0x78(%rbx)\n"
        "mov %rdi, 0x8(%rax)\n"
        "mov %rbx, 0x10(%rax)\n"
        "mov 0x38(%rbp), %rax\n"
        "movl $0, 0x80(%rbx)\n"
        "movl $0, 0xa0(%rbx)\n"
        "test %rax, %rax\n"
        "je 1f\n"
        "cmpb $1, (%rax)\n"
        "jne 1f\n"
        "mov first(%rip), %edx\n"
        "mov second(%rip), %eax\n"
        "mov %eax, 0xa4(%rbx)\n"
        "cmove %eax, %edx\n"
        "mov %edx, 0xa8(%rbx)\n"
        "1: xor %edx, %edx\n"
        "mov second(%rip), %eax\n"
        "2: add $8, %rsp\n"
        "pop %rbx\n"
        "pop %rbp\n"
        "ret\n"
        ".size set_up, . - set_up\n");

static void *work(void *unused)
{
    struct context context = {.flag = &yes};
    long *own = calloc(1, 0x100);
    for (int round = 0; round < rounds; round++)
        set_up(&context, own);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[3];
    if (argc > 1)
        rounds = atoi(argv[1]);
    for (int each = 0; each < 3; each++) {
        threads[each] = start(work, NULL);
        if (argc > 1)
            join(threads[each]);
    }
    for (int each = 0; each < 3 && argc == 1; each++)
        join(threads[each]);
    puts("done");
}
