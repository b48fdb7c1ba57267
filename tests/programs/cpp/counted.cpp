// counted.cpp LOCK apart|together - two threads take one lock a thousand times each, and nothing else is done with it.
//
// LOCK is `mutex`, `recursive`, `timed`, `read` or `write`; `read` and `write` are those of a std::shared_mutex. With
// `apart` one thread follows the other, so that nobody ever waits for the lock; with `together` they run at the same
// time.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <thread>

static constexpr int times = 1000;

static std::mutex mutex;
static std::recursive_mutex recursive;
static std::timed_mutex timed;
static std::shared_mutex shared;
static const char *lock;
static volatile long sum;

static bool is(const char *word)
{
    return std::strcmp(lock, word) == 0;
}

template <typename Guard, typename Mutex>
static void add(Mutex &of)
{
    Guard guard(of);
    sum = sum + 1;
}

static void steps()
{
    for (int i = 0; i < times; i++) {
        if (is("read"))
            std::shared_lock<std::shared_mutex> guard(shared);
        else if (is("write"))
            add<std::unique_lock<std::shared_mutex>>(shared);
        else if (is("recursive"))
            add<std::lock_guard<std::recursive_mutex>>(recursive);
        else if (is("timed"))
            add<std::unique_lock<std::timed_mutex>>(timed);
        else
            add<std::scoped_lock<std::mutex>>(mutex);
    }
}

int main(int argc, char **argv)
{
    lock = argc > 1 ? argv[1] : "mutex";
    const bool together = argc > 2 && std::strcmp(argv[2], "together") == 0;

    std::thread first(steps);
    if (!together)
        first.join();
    steps();
    if (together)
        first.join();
    std::printf("%ld\n", sum);
}
