// own_new.cpp - threads that make, write and delete objects of their own in a region, with an `operator new` of the
// program's for all and one for a class: lists of free blocks behind locks. No object is shared, so nothing is wrong.
#include <pthread.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

struct Free {
    Free *next;
};

struct List {
    pthread_mutex_t lock;
    Free *first;

    __attribute__((noinline)) void *take(std::size_t size)
    {
        pthread_mutex_lock(&lock);
        Free *block = first;
        if (block != nullptr)
            first = block->next;
        pthread_mutex_unlock(&lock);
        return block != nullptr ? block : std::malloc(size);
    }

    __attribute__((noinline)) void give(void *memory)
    {
        Free *block = static_cast<Free *>(memory);
        pthread_mutex_lock(&lock);
        block->next = first;
        first = block;
        pthread_mutex_unlock(&lock);
    }
};

List all = {PTHREAD_MUTEX_INITIALIZER, nullptr};
List nodes = {PTHREAD_MUTEX_INITIALIZER, nullptr};

} // namespace

// All blocks have the size of the largest that is wanted.
__attribute__((noinline)) void *operator new(std::size_t size)
{
    return size <= 256 ? all.take(256) : std::malloc(size);
}

__attribute__((noinline)) void operator delete(void *block) noexcept
{
    all.give(block);
}

__attribute__((noinline)) void operator delete(void *block, std::size_t) noexcept
{
    all.give(block);
}

struct Plain {
    long words[6];
};

struct Node {
    long words[6];

    __attribute__((noinline)) static void *operator new(std::size_t size) { return nodes.take(size); }
    __attribute__((noinline)) static void operator delete(void *node) { nodes.give(node); }
};

static __attribute__((noinline)) void fill(long *words, long value)
{
    for (int i = 0; i < 6; i++)
        words[i] = value + i;
}

__attribute__((noinline)) long use_objects(long seed)
{
    long sum = 0;

    for (int i = 0; i < 4; i++) {
        Plain *plain = new Plain;
        fill(plain->words, seed);
        sum += plain->words[i];
        delete plain;
        sched_yield();
        Node *node = new Node;
        fill(node->words, seed);
        sum += node->words[i];
        delete node;
        sched_yield();
    }
    return sum;
}

static void *run(void *)
{
    long sum = 0;

    for (int i = 0; i < 100; i++)
        sum += use_objects(i);
    return reinterpret_cast<void *>(sum);
}

int main()
{
    pthread_t threads[4];

    for (pthread_t &thread : threads)
        if (pthread_create(&thread, nullptr, run, nullptr) != 0)
            return 1;
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    std::puts("done");
    return 0;
}
