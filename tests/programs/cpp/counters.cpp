// counters - `handle` copies a shared pointer twice, and the other thread in between: correct, as the reference count
// only decides who is the last. Turns go through pipes.
#include <cstdio>
#include <memory>
#include <thread>

#include "avtrace.h"
#include "../c/handshake.h"

static std::shared_ptr<long> shared = std::make_shared<long>(1);
static turn_t go_other;
static turn_t go_handle;
static thread_local volatile long sum;

__attribute__((noinline)) static void use(std::shared_ptr<long> one)
{
    sum = sum + *one;
}

__attribute__((noinline)) static void handle()
{
    AVTRACE_REGION("handle");

    use(shared);
    give_turn(go_other);
    await_turn(go_handle);
    use(shared);
}

static void first()
{
    for (int i = 0; i < 4; i++)
        handle();
}

static void second()
{
    for (int i = 0; i < 4; i++) {
        await_turn(go_other);
        use(shared);
        give_turn(go_handle);
    }
}

int main()
{
    make_turn(go_other);
    make_turn(go_handle);

    std::thread one(first), other(second);

    one.join();
    other.join();
    printf("%ld\n", *shared);
    return 0;
}
