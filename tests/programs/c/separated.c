/*
 * separated.c [filtered] - a process that separates privileges: its child gives up its rights, and attacks it. With
 * `filtered` it has had a filter of system calls from its start, as in a container.
 *
 * The child becomes nobody where it may. Then it writes ones to all memory with a name that it shares with its parent,
 * also to code if that can be made writable, and ends. Meanwhile the parent waits; afterwards its threads lock and
 * unlock. It prints what the child could change, and "end".
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, STEPS = 300, NOBODY = 65534, MOST = 1 << 26 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count; /* guarded by lock */

__attribute__((noinline)) static void step(void)
{
    pthread_mutex_lock(&lock);
    count++;
    pthread_mutex_unlock(&lock);
}

static void *steps(void *unused)
{
    for (int i = 0; i < STEPS; i++)
        step();
    return unused;
}

/* Returns 1 if code that the parent executes could be written. */
static int attack(void)
{
    static struct { unsigned long start, end; int is_code; } maps[64];
    int known = 0, is_written = 0;
    char line[512], access[5];
    FILE *file = fopen("/proc/self/maps", "r");

    while (known < 64 && fgets(line, sizeof line, file)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx %4s", &start, &end, access) == 3 && access[3] == 's') {
            maps[known].start = start;
            maps[known].end = end;
            maps[known++].is_code = access[2] == 'x';
        }
    }
    fclose(file);
    for (int i = 0; i < known; i++) {
        unsigned long length = maps[i].end - maps[i].start;
        if (maps[i].is_code) {
            is_written |= mprotect((void *)maps[i].start, length, PROT_READ | PROT_WRITE) == 0;
            continue;
        }
        /* Where threads have their blocks, and the tables before them. */
        memset((void *)maps[i].start, 0x11, length < MOST ? length : MOST);
    }
    return is_written;
}

/* Executes the program again, with a filter that allows everything. */
static int filtered(void)
{
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {1, all};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 1;
    execl("/proc/self/exe", "separated", (char *)0);
    return 1;
}

int main(int argc, char **argv)
{
    int status;

    (void)argv;
    if (argc > 1)
        return filtered();

    steps(0);
    pid_t child = fork();
    if (child == 0) {
        int is_less = setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
        (void)is_less; /* who is not root has none to give up, and shares nothing all the same */
        _exit(attack());
    }
    waitpid(child, &status, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(threads + i, 0, steps, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("%s, count %ld\nend\n", status == 0 ? "nothing was written" : "code was written", count);
    return 0;
}
