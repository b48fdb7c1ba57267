/*
 * red_zone.c - leaf functions that keep a value in the red zone, the 128 bytes below the stack pointer, across a nop
 * of 5 bytes such as compilers put before loops. Prints those whose result is wrong, before a fork or in the child.
 *
 * Linux 6.18 replaces such a nop by a call when it has a probe that was hit. The call writes below the stack pointer, and
 * a child process has the call, but not the memory that it leads to.
 *
 * Each has one line of code whose last instruction is the nop, and which accesses memory that threads share. There is
 * no instruction in it that the kernel emulates, so that the nop would be as good a place for a probe as any other.
 */
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"

enum { ROUNDS = 300 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long shared[8];

/* Copies `*from` through the red zone, over the nop, to `rax`; then counts down for as long as a loop does. */
#define LEAF(name, nop)                         \
    long name(const long *from);                \
    __asm__(".text\n"                           \
            ".globl " #name "\n"                \
            ".type " #name ", @function\n"      \
            #name ":\n"                         \
            "    movq (%rdi), %rax\n"           \
            "    movq %rax, -8(%rsp)\n"         \
            "    movl $3, %ecx\n"               \
            "    movq 8(%rdi), %rdx\n"          \
            "    " nop "\n"                     \
            "1:  addq $0, 16(%rdi)\n"           \
            "    subl $1, %ecx\n"               \
            "    jnz 1b\n"                      \
            "    movq -8(%rsp), %rax\n"         \
            "    ret\n"                         \
            ".size " #name ", . - " #name "\n")

/* Every form that the kernel takes for a nop of 5 bytes: `insn_is_nop` in arch/x86/lib/insn-eval.c. */
LEAF(nopl_indexed, ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00");
LEAF(nopw_based, ".byte 0x66, 0x0f, 0x1f, 0x40, 0x00");
LEAF(nop_prefixed, ".byte 0x66, 0x66, 0x66, 0x66, 0x90");
LEAF(jmp_to_next, ".byte 0xe9, 0x00, 0x00, 0x00, 0x00");
LEAF(lea_of_itself, ".byte 0x48, 0x8d, 0x74, 0x26, 0x00");

/* A function that begins with the nop, as those do that can be patched. */
long patchable(const long *from);
__asm__(".text\n"
        ".globl patchable\n"
        ".type patchable, @function\n"
        "patchable:\n"
        "    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
        "    movq (%rdi), %rax\n"
        "    movq %rax, -8(%rsp)\n"
        "    addq $0, 16(%rdi)\n"
        "    movq -8(%rsp), %rax\n"
        "    ret\n"
        ".size patchable, . - patchable\n");

static const struct leaf {
    long (*function)(const long *from);
    const char *name;
} leaves[] = {
    { nopl_indexed, "nopl_indexed" },   { nopw_based, "nopw_based" },
    { nop_prefixed, "nop_prefixed" },   { jmp_to_next, "jmp_to_next" },
    { lea_of_itself, "lea_of_itself" }, { patchable, "patchable" },
};
enum { LEAVES = sizeof leaves / sizeof *leaves };

/* How often each was wrong, by thread. */
static int wrong[2][LEAVES];

/* A region, so that accesses matter. */
static __attribute__((noinline)) void locked(int *is_wrong)
{
    pthread_mutex_lock(&mutex);
    shared[0]++;
    for (int leaf = 0; leaf < LEAVES; leaf++)
        is_wrong[leaf] += leaves[leaf].function(shared) != shared[0];
    pthread_mutex_unlock(&mutex);
}

static void *work(void *is_wrong)
{
    for (int round = 0; round < ROUNDS; round++)
        locked(is_wrong);
    return NULL;
}

int main(void)
{
    pthread_t first = start(work, wrong[0]);
    pthread_t second = start(work, wrong[1]);

    join(first);
    join(second);
    /* A child executes what the probes have made of the code. */
    pid_t child = fork();
    if (child == 0) {
        int in_child[LEAVES] = {0};
        int sum = 0;

        locked(in_child);
        for (int leaf = 0; leaf < LEAVES; leaf++)
            sum += in_child[leaf];
        _exit(sum);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        puts("the child failed");
    for (int leaf = 0; leaf < LEAVES; leaf++)
        if (wrong[0][leaf] + wrong[1][leaf] > 0)
            printf("%s: %d wrong\n", leaves[leaf].name, wrong[0][leaf] + wrong[1][leaf]);
    puts("done");
    return 0;
}
