// Memory behind pointers, in the ways that C code gets at it.
#include <stdlib.h>

typedef struct {
    long id;
    struct {
        int age;
        int height;
    } owner;
    long slots[4];
} person_t;

struct queue {
    person_t *head;
    long length;
    struct queue *next;
};

static struct queue *first;

__attribute__((noinline)) static long add_to(long *counter, long n) {
    *counter += n; // counter
    return *counter;
}

__attribute__((noinline)) static void grow(struct queue *queue) {
    queue->length++;                // length
    queue->next->length++;          // next
    queue->head->owner.height += 2; // height
}

__attribute__((noinline)) static void fill(person_t *person, int index) {
    person->slots[index] += 3; // slots
}

__attribute__((noinline)) static void from_global(void) {
    first->length += 4; // global
}

__attribute__((noinline)) static long on_stack(int index) {
    volatile long total = index;
    total += 5; // local
    return total;
}

int main(int argc, char **argv) {
    (void)argv;
    first = calloc(1, sizeof *first);
    first->next = calloc(1, sizeof *first);
    first->head = calloc(2, sizeof *first->head);
    grow(first);
    fill(first->head, argc);
    from_global();
    return (int)(add_to(&first->length, 1) + on_stack(argc));
}
