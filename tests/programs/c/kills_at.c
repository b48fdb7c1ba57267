/*
 * kills_at COUNT PID COMMAND... - runs a command, and kills the process PID, or the command itself where that is 0, when
 * the command is about to make its system call number COUNT of those that reach into other processes or into the kernel
 * (none for 0). Waits for all processes of the command, prints the number of those calls, and ends as the command did:
 * with its status, or 128 and the signal.
 *
 * With WRITES=START-END in the environment, two hexadecimal numbers, only writes to these addresses of other processes
 * count. The address of each is printed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define IF(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)

static int stop_at_calls(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        IF(SYS_ptrace),
        IF(SYS_pwrite64),
        IF(SYS_bpf),
        IF(SYS_perf_event_open),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog whole = {sizeof program / sizeof *program, program};
    if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole);
}

static unsigned long start, end;

/* Returns whether the call that a process is about to make counts. */
static int counts(pid_t process)
{
    struct user_regs_struct registers;
    if (end == 0)
        return 1;
    if (ptrace(PTRACE_GETREGS, process, 0, &registers) || registers.orig_rax != SYS_pwrite64)
        return 0;
    if (registers.r10 < start || registers.r10 >= end)
        return 0;
    printf("%#llx\n", registers.r10);
    return 1;
}

int main(int argc, char **argv)
{
    const char *writes = getenv("WRITES");
    if (argc < 4 || (writes && sscanf(writes, "%lx-%lx", &start, &end) != 2))
        return 125;
    long wanted = atol(argv[1]), calls = 0;
    pid_t victim = (pid_t)atol(argv[2]);
    pid_t command = fork();
    if (command == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) || raise(SIGSTOP) || stop_at_calls())
            _exit(126);
        execv(argv[3], argv + 3);
        _exit(127);
    }
    int status, last = 0;
    if (waitpid(command, &status, 0) != command || !WIFSTOPPED(status))
        return 125;
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK
        | PTRACE_O_TRACEEXEC;
    if (ptrace(PTRACE_SETOPTIONS, command, 0, options) || ptrace(PTRACE_CONT, command, 0, 0))
        return 125;
    for (;;) {
        pid_t stopped = waitpid(-1, &status, __WALL);
        if (stopped < 0 && errno == ECHILD)
            break;
        if (!WIFSTOPPED(status)) {
            if (stopped == command)
                last = status;
            continue;
        }
        int event = status >> 16, signal = event ? 0 : WSTOPSIG(status);
        if (event == PTRACE_EVENT_SECCOMP && counts(stopped) && ++calls == wanted)
            kill(victim ? victim : command, SIGKILL);
        /* New threads and processes begin with it. */
        if (signal == SIGSTOP)
            signal = 0;
        /* It may have been killed. */
        ptrace(PTRACE_CONT, stopped, 0, signal);
    }
    printf("%ld calls\n", calls);
    return WIFEXITED(last) ? WEXITSTATUS(last) : 128 + WTERMSIG(last);
}
