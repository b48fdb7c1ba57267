// condition.cpp wait|timed|whole - std::condition_variable.
//
// wait, timed: `take` waits for the condition inside its region, for good or for a while. The wait releases the
// mutex, `put` comes in between, and its notification lets the wait through: `take` is not atomic.
// whole: the wait is before the region. Nothing is to be found.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "avtrace.h"
#include "turn.h"

using namespace std::chrono_literals;

static std::mutex mutex;
static std::condition_variable condition;
static bool full; // guarded by mutex

static void take(const turn &go_put, bool timed)
{
    AVTRACE_REGION("take");                            // @begin

    std::unique_lock<std::mutex> lock(mutex);
    go_put.give();
    if (timed) {
        if (!condition.wait_for(lock, 1000s, [] { return full; })) // @timed
            std::exit(1);
    } else {
        while (!full)
            condition.wait(lock);                      // @wait
    }
    full = false;
}

static void take_whole(const turn &go_put)
{
    std::unique_lock<std::mutex> lock(mutex);

    go_put.give();
    condition.wait(lock, [] { return full; });
    {
        AVTRACE_REGION("take");

        full = false;
        lock.unlock();
    }
}

static void put()
{
    AVTRACE_REGION("put");

    std::lock_guard<std::mutex> lock(mutex);           // @put_lock
    full = true;
    condition.notify_one();                            // @notify
}                                                      // @put_unlock

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "wait";
    const turn go_put;

    std::thread taker([&] {
        if (std::strcmp(how, "whole") == 0)
            take_whole(go_put);
        else
            take(go_put, std::strcmp(how, "timed") == 0);
    });
    std::thread putter([&] {
        go_put.await();
        put();
    });
    taker.join();
    putter.join();
    std::printf("full: %d\n", full);
}
