/* A stack of Treiber, which is correct as nothing is pushed twice: one thread pushes two numbers, the other one pops
 * twice. Prints what was popped, and what is left. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct node {
    struct node *next;
    int value;
};

static _Atomic(struct node *) top;
static struct node nodes[2] = {{NULL, 1}, {NULL, 2}};
static int popped[2];

__attribute__((noinline)) static void push(struct node *node) {
    struct node *old = atomic_load(&top); /* @read */
    do {
        node->next = old;
    } while (!atomic_compare_exchange_strong(&top, &old, node)); /* @push */
}

__attribute__((noinline)) static int pop(void) {
    struct node *old = atomic_load(&top);
    while (old && !atomic_compare_exchange_strong(&top, &old, old->next)) { /* @pop */
    }
    return old ? old->value : 0;
}

static void *pusher(void *unused) {
    (void)unused;
    push(&nodes[0]);
    push(&nodes[1]);
    return NULL;
}

static void *popper(void *unused) {
    (void)unused;
    popped[0] = pop();
    popped[1] = pop();
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, pusher, NULL);
    pthread_create(&threads[1], NULL, popper, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("popped %d %d, left %d", popped[0], popped[1], pop());
    printf(" %d\n", pop());
    return 0;
}
