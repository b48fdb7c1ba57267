/*
 * restartable.c - restartable sequences (rseq) that are described in three ways, between labels. They are not executed.
 */
#define SIGNATURE ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"

/* In the section that is for it, behind a descriptor of which nothing is right. */
__asm__(".section __rseq_cs, \"aw\"\n"
        ".balign 32\n"
        ".long 0, 0\n"
        ".quad 1, 2, 3\n"
        ".long 0, 0\n"
        ".quad listed_start, listed_end - listed_start, listed_abort\n"
        ".text\n"
        ".globl listed, listed_start, listed_end, listed_abort\n"
        ".hidden listed_start, listed_end, listed_abort\n"
        ".type listed, @function\n"
        "listed:\n"
        "    nop\n"
        "listed_start:\n"
        "    movq (%rdi), %rax\n"
        "    incq %rax\n"
        "    movq %rax, (%rdi)\n"
        "listed_end:\n"
        "    ret\n"
        SIGNATURE
        "listed_abort:\n"
        "    ret\n"
        ".size listed, . - listed\n");

/* In other data. */
__asm__(".data\n"
        ".balign 32\n"
        ".long 0, 0\n"
        ".quad hidden_start, hidden_end - hidden_start, hidden_abort\n"
        ".text\n"
        ".globl hidden, hidden_start, hidden_end, hidden_abort\n"
        ".hidden hidden_start, hidden_end, hidden_abort\n"
        ".type hidden, @function\n"
        "hidden:\n"
        "    nop\n"
        "hidden_start:\n"
        "    incq (%rdi)\n"
        "hidden_end:\n"
        "    ret\n"
        SIGNATURE
        "hidden_abort:\n"
        "    ret\n"
        ".size hidden, . - hidden\n");

/* In none: such a function makes it while it runs. Its abort handler is elsewhere. */
__asm__(".text\n"
        ".globl made\n"
        ".type made, @function\n"
        "made:\n"
        "    incq (%rdi)\n"
        "made_aborted:\n"
        "    ret\n"
        ".size made, . - made\n"
        ".section __rseq_failure, \"ax\"\n"
        SIGNATURE
        "    jmp made_aborted\n"
        ".text\n");

/* A number that looks like the signature, as where a thread is registered. */
int registers(void)
{
    return 0x53053053;
}

int main(void)
{
    return 0;
}
