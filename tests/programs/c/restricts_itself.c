/* Restricts itself: in a constructor of a library, as the variable EARLY says, or in main, as the first argument says.
 * Then it becomes the program of its other arguments, or works with a lock and prints "done". */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

/* Answers one system call in this way, and allows all others. */
static int filter(int number, unsigned answer)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog whole = {sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole);
}

#if defined(GS) || !defined(EARLY)
static long words[64];
#endif

#ifdef UNTRACED
static int sleeps(void *unused)
{
    (void)unused;
    return pause();
}
#endif

static int restrict_by(const char *how)
{
    if (!strcmp(how, "mdwe"))
        return prctl(PR_SET_MDWE, 1, 0, 0, 0);
    if (!strcmp(how, "strict"))
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (!strcmp(how, "no-memfd"))
        return filter(SYS_memfd_create, SECCOMP_RET_ERRNO | EPERM);
    /* What it says of the new file is false: the descriptor is that of another one. */
    if (!strcmp(how, "false-memfd")) {
        int file = open(getenv("FILE"), O_PATH | O_CLOEXEC);
        if (file < 0 || dup2(file, 0))
            return 1;
        return filter(SYS_memfd_create, SECCOMP_RET_ERRNO | 0);
    }
    /* Everything is mapped at address 0. */
    if (!strcmp(how, "false-mmap"))
        return filter(SYS_mmap, SECCOMP_RET_ERRNO | 0);
    if (!strcmp(how, "no-membarrier"))
        return filter(SYS_membarrier, SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(how, "no-mmap"))
        return filter(SYS_mmap, SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(how, "killed"))
        return filter(SYS_memfd_create, SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(how, "undumpable"))
        return prctl(PR_SET_DUMPABLE, 0);
    if (!strcmp(how, "no-tsc"))
        return prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    if (!strcmp(how, "no-ptrace"))
        return filter(SYS_ptrace, SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(how, "no-bpf"))
        return filter(SYS_bpf, SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(how, "no-breakpoints"))
        return filter(SYS_perf_event_open, SECCOMP_RET_ERRNO | EACCES);
#ifdef GS
    if (!strcmp(how, "gs"))
        return syscall(SYS_arch_prctl, ARCH_SET_GS, words);
#endif
#ifdef COMPUTED
    if (!strcmp(how, "computed")) {
        extern int arch_prctl(int, unsigned long);
        volatile int code = ARCH_SET_GS - 1;
        return arch_prctl(code + 1, (unsigned long)words);
    }
#endif
#ifdef UNTRACED
    if (!strcmp(how, "untraced")) {
        static char stack[16384];
        return clone(sleeps, stack + sizeof stack,
                     CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_UNTRACED,
                     NULL) < 0;
    }
#endif
    return strcmp(how, "nothing");
}

#ifdef EARLY
__attribute__((constructor)) static void early(void)
{
    const char *how = getenv("EARLY");
    if (how && restrict_by(how))
        _exit(77);
}
#else
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int main(int count, char **arguments)
{
    static const char done[] = "done\n";
    if (count > 1 && restrict_by(arguments[1]))
        return 77;
    if (count > 2) {
        execvp(arguments[2], arguments + 2);
        return 1;
    }
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&lock);
        words[i % 64]++;
        pthread_mutex_unlock(&lock);
    }
    if (write(1, done, sizeof done - 1) < 0)
        return 1;
    /* Strict mode allows no other end. */
    syscall(SYS_exit, 0);
}
#endif
