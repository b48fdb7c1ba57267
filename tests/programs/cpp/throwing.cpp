// throwing.cpp [stay|many] - a function that is left by an exception, and what its thread does afterwards.
//
// `step` takes the lock, releases it, and throws. A destructor in its caller takes the lock while the exception is in
// flight, and the catching function does again, from frames that reach below those of `step`. In between the other
// thread takes the lock, as in leaving.c. With `stay` step throws and catches by itself, takes the lock again, and
// is not atomic. With `many` it throws 10,000 times, with no other thread.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "../c/handshake.h"

static std::mutex lock;
static turn_t go_other;
static turn_t go_step;
static bool stay;

[[gnu::noinline]] static void touch(volatile char *room)
{
    room[0] = 1;
    lock.lock();
    room[1] = 1;
    lock.unlock();
    room[2] = 1;
}

[[gnu::noinline]] static void after()
{
    char room[512];
    touch(room);
}

struct After {
    ~After() { after(); }
};

[[gnu::noinline]] static void fail() { throw std::runtime_error("left"); }

[[gnu::noinline]] void meet()
{
    lock.lock();
    lock.unlock();
    give_turn(go_other);
    await_turn(go_step);
}

[[gnu::noinline]] void step()
{
    if (stay) {
        try {
            fail();
        } catch (const std::exception &) {
        }
        meet();
        lock.lock();
        lock.unlock();
        return;
    }
    meet();
    fail();
}

[[gnu::noinline]] void throw_once(int i)
{
    std::lock_guard<std::mutex> guard(lock);
    throw i;
}

[[gnu::noinline]] static void between()
{
    After after_step;
    step();
    std::puts("not reached, or returned");
}

[[gnu::noinline]] void other()
{
    lock.lock();
    lock.unlock();
}

int main(int argc, char **argv)
{
    stay = argc > 1 && std::strcmp(argv[1], "stay") == 0;
    if (argc > 1 && std::strcmp(argv[1], "many") == 0) {
        int caught = 0;
        for (int i = 0; i < 10000; i++) {
            try {
                throw_once(i);
            } catch (const int &) {
                caught++;
            }
        }
        std::printf("caught %d\n", caught);
        return 0;
    }
    make_turn(go_other);
    make_turn(go_step);
    std::thread first([] {
        try {
            between();
        } catch (const std::exception &error) {
            after();
            std::puts(error.what());
        }
    });
    std::thread second([] {
        await_turn(go_other);
        other();
        give_turn(go_step);
    });
    first.join();
    second.join();
    return 0;
}
