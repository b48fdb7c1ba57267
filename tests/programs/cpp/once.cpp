// once.cpp split|whole|throws - std::call_once.
//
// split: `prepare` runs the routine and locks a mutex later in the same region; `use` passes the flag and holds the
// mutex in between: `prepare` is not atomic.
// whole: main has run the routine before. Nothing is to be found.
// throws: routines throw 10,000 times, through call_once and through a region, before one does not. Afterwards
// `use` passes the flag. The program does as without avtrace, and nothing is to be found.
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "avtrace.h"
#include "turn.h"

static std::once_flag once;
static std::mutex mutex;
static int runs;

static void routine()
{
    runs++;
}

static void prepare(const turn &go_use, const turn &go_prepare)
{
    AVTRACE_REGION("prepare");                  // @begin

    std::call_once(once, routine);              // @run
    go_use.give();
    go_prepare.await();
    std::lock_guard<std::mutex> guard(mutex);   // @prepare_lock
}

static void use(const turn &go_use, const turn &go_prepare)
{
    go_use.await();
    {
        AVTRACE_REGION("use");

        std::call_once(once, routine);          // @pass
        mutex.lock();
        mutex.unlock();                         // @use_unlock
    }
    go_prepare.give();
}

static void prepare_in_vain(int &failed)
{
    AVTRACE_REGION("prepare");

    std::call_once(once, [&failed] {
        std::lock_guard<std::mutex> guard(mutex);
        if (failed < 10000) {
            failed++;
            throw std::runtime_error("not yet");
        }
        runs++;
    });
}

static void throw_often()
{
    int failed = 0;
    bool done = false;

    while (!done) {
        try {
            prepare_in_vain(failed);
            done = true;
        } catch (const std::runtime_error &) {
        }
    }
    std::printf("failed: %d\n", failed);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "split";
    const turn go_use, go_prepare;

    if (std::strcmp(how, "whole") == 0)
        std::call_once(once, routine);
    std::thread first([&] {
        if (std::strcmp(how, "throws") == 0) {
            throw_often();
            go_use.give();
            go_prepare.await();
        } else {
            prepare(go_use, go_prepare);
        }
    });
    std::thread second([&] { use(go_use, go_prepare); });
    first.join();
    second.join();
    std::printf("runs: %d\n", runs);
}
