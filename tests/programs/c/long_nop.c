/*
 * long_nop.c - calls a function that begins with a nop of 5 bytes, before and after a fork. Linux 6.18 replaces such a nop
 * by a call when it has a probe that was hit; a child has the call, and not the memory that it leads to.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int with_nop(int number);
__asm__(".text\n"
        ".globl with_nop\n"
        ".type with_nop, @function\n"
        "with_nop:\n"
        "	.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
        "	lea 1(%rdi), %eax\n"
        "	ret\n"
        ".size with_nop, . - with_nop\n");

int main(void)
{
    int sum = with_nop(1) + with_nop(2) + with_nop(3);
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(with_nop(6));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    printf("%d, and the child's status %#x\n", sum, status);
    return 0;
}
