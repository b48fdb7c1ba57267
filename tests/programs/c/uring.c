// A program with a thread of the kernel: io_uring has one that waits for a read from an empty pipe. It is created when
// the program reads a first line, and the program ends when it reads a second one. Prints "ready", and then "created"
// or, where there is no io_uring, "none".
#include <dirent.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static int read_in_the_kernel(void) {
    static char buffer[8];
    struct io_uring_params params = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
    int ends[2];
    if (ring < 0 || pipe(ends) < 0)
        return 0;
    size_t size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    int protection = PROT_READ | PROT_WRITE;
    char *queue = mmap(NULL, size, protection, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry =
        mmap(NULL, sizeof *entry, protection, MAP_SHARED, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || entry == MAP_FAILED)
        return 0;
    entry->opcode = IORING_OP_READ;
    entry->flags = IOSQE_ASYNC;
    entry->fd = ends[0];
    entry->addr = (uintptr_t)buffer;
    entry->len = sizeof buffer;
    *(unsigned *)(queue + params.sq_off.tail) = 1;
    if (syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) != 1)
        return 0;
    while (threads() < 2)
        usleep(100);
    return 1;
}

int main(void) {
    char line[8];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    puts(read_in_the_kernel() ? "created" : "none");
    fflush(stdout);
    return !fgets(line, sizeof line, stdin);
}
