// Memory behind the end of a record: the array that it ends with, another record of its kind, or something else.
#include <stdlib.h>

struct node {
    struct node *next;
    long uses;
    long tail[];
};

struct header {
    long kind;
    long length;
};

struct item {
    long id;
    long price;
};

__attribute__((noinline)) static void write_tail(struct node *node) {
    node->tail[0] = node->tail[0] * 3 + 1; // first
    node->tail[3] = node->tail[3] * 5 + 1; // third
}

__attribute__((noinline)) static void write_any(struct node *node, int index) {
    node->tail[index] += 3; // any
}

__attribute__((noinline)) static void follow(struct node *node) {
    node->next->tail[1] += 4; // next
}

__attribute__((noinline)) static void write_payload(struct header *header) {
    *(long *)(header + 1) += header->length; // payload
    ((long *)(header + 1))[3] += 5;          // payload
}

__attribute__((noinline)) static void raise_price(struct item *items, int index) {
    items[index].price += 6; // element
}

int main(int argc, char **argv) {
    (void)argv;
    struct node *node = calloc(1, sizeof *node + 64);
    struct header *header = calloc(1, sizeof *header + 64);
    struct item *items = calloc(8, sizeof *items);
    node->next = node;
    write_tail(node);
    write_any(node, argc);
    follow(node);
    write_payload(header);
    raise_price(items, argc);
    return (int)(node->tail[3] + header->kind + items[1].price);
}
