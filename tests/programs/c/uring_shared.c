// uring_shared.c HOW [wait] - threads that share buffers, which the kernel reads and writes for them by io_uring.
//
// HOW: "polled" by a ring that a thread of the kernel polls, "registered" by buffers that the kernel keeps mapped,
// "plain" without either. Each turn a thread fills a buffer under a lock, has it written to a file and read back into
// another buffer, and compares. Prints the sum of all that was read, or "none" where there is no io_uring. With "wait"
// it prints "ready" at first, and goes on when it reads a line.
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ENTRIES = 8, THREADS = 3, TURNS = 50, SIZE = 256 };

struct ring {
    int descriptor;
    unsigned flags;
    unsigned *sq_tail, *sq_mask, *sq_array, *sq_flags;
    unsigned *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
};

static struct ring ring;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char out[SIZE], in[SIZE];
static long sum;
static int file, registered;

static int open_ring(unsigned flags) {
    struct io_uring_params params = {.flags = flags, .sq_thread_idle = 50};
    int descriptor = (int)syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (descriptor < 0)
        return 0;
    size_t sq = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    int protection = PROT_READ | PROT_WRITE;
    char *s = mmap(NULL, sq, protection, MAP_SHARED, descriptor, IORING_OFF_SQ_RING);
    char *c = mmap(NULL, cq, protection, MAP_SHARED, descriptor, IORING_OFF_CQ_RING);
    ring.entries = mmap(NULL, params.sq_entries * sizeof *ring.entries, protection, MAP_SHARED, descriptor,
                        IORING_OFF_SQES);
    if (s == MAP_FAILED || c == MAP_FAILED || ring.entries == MAP_FAILED)
        return 0;
    ring.descriptor = descriptor;
    ring.flags = flags;
    ring.sq_tail = (unsigned *)(s + params.sq_off.tail);
    ring.sq_mask = (unsigned *)(s + params.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(s + params.sq_off.array);
    ring.sq_flags = (unsigned *)(s + params.sq_off.flags);
    ring.cq_head = (unsigned *)(c + params.cq_off.head);
    ring.cq_tail = (unsigned *)(c + params.cq_off.tail);
    ring.cq_mask = (unsigned *)(c + params.cq_off.ring_mask);
    ring.completions = (struct io_uring_cqe *)(c + params.cq_off.cqes);
    return 1;
}

// Has the kernel do one thing, and returns the result.
__attribute__((noinline)) static int submit(int opcode, void *buffer, int index) {
    unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;
    struct io_uring_sqe *entry = &ring.entries[at];
    memset(entry, 0, sizeof *entry);
    entry->opcode = opcode;
    entry->fd = file;
    entry->addr = (uintptr_t)buffer;
    entry->len = SIZE;
    entry->buf_index = index;
    ring.sq_array[at] = at;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    unsigned flags = IORING_ENTER_GETEVENTS, count = 1;
    if (ring.flags & IORING_SETUP_SQPOLL) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (__atomic_load_n(ring.sq_flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP)
            flags |= IORING_ENTER_SQ_WAKEUP;
    }
    unsigned head = *ring.cq_head;
    while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == head) {
        if (syscall(SYS_io_uring_enter, ring.descriptor, count, 1, flags, NULL, 0) > 0)
            count = 0;
    }
    int result = ring.completions[head & *ring.cq_mask].res;
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

__attribute__((noinline)) static int turn(unsigned char value) {
    pthread_mutex_lock(&lock);
    for (int at = 0; at < SIZE; at++)
        out[at] = (unsigned char)(value + at);
    int written = submit(registered ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE, out, 0);
    int read = submit(registered ? IORING_OP_READ_FIXED : IORING_OP_READ, in, 1);
    int same = written == SIZE && read == SIZE && !memcmp(in, out, SIZE);
    for (int at = 0; at < SIZE; at++)
        sum += in[at];
    memset(in, 0, SIZE);
    pthread_mutex_unlock(&lock);
    return same;
}

static void *works(void *unused) {
    (void)unused;
    for (int number = 0; number < TURNS; number++)
        if (!turn((unsigned char)number))
            return "differs";
    return NULL;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "plain";
    if (count > 2) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    file = memfd_create("file", 0);
    if (file < 0 || !open_ring(!strcmp(how, "polled") ? IORING_SETUP_SQPOLL : 0)) {
        puts("none");
        return 0;
    }
    registered = !strcmp(how, "registered");
    struct iovec buffers[] = {{out, SIZE}, {in, SIZE}};
    if (registered && syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, buffers, 2)) {
        puts("none");
        return 0;
    }
    pthread_t threads[THREADS];
    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, works, NULL);
    int failed = 0;
    for (int number = 0; number < THREADS; number++) {
        void *result;
        pthread_join(threads[number], &result);
        failed |= result != NULL;
    }
    printf("%ld %s\n", sum, failed ? "differs" : "same");
    return failed;
}
