// Threads that wait for one another in several ways. `spins`, `sleeps`, `condition`: correct. `lost-wakeup`: the
// condition is signalled before anybody waits. `adds`: two threads add to a number that is not atomic.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <unistd.h>

static std::mutex mutex;
static std::condition_variable condition;
static bool ready;
static std::atomic<int> flag;
static volatile int sum;

static void two(void (*first)(), void (*second)()) {
    std::thread one(first), other(second);
    one.join();
    other.join();
}

static void raise_flag() {
    flag = 1;
}

static void wait_for_flag() {
    while (!flag.load()) {
    }
}

static void sleep_for_flag() {
    while (!flag.load()) {
        usleep(100000);
    }
}

static void wait_for_condition() {
    std::unique_lock<std::mutex> lock(mutex);
    condition.wait(lock, [] { return ready; });
}

static void signal_condition() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        ready = true;
    }
    condition.notify_one();
}

static void wait_for_anything() {
    std::unique_lock<std::mutex> lock(mutex);
    condition.wait(lock);
}

static void add() {
    sum = sum + 1;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (std::strcmp(mode, "spins") == 0) {
        two(wait_for_flag, raise_flag);
    } else if (std::strcmp(mode, "sleeps") == 0) {
        two(sleep_for_flag, raise_flag);
    } else if (std::strcmp(mode, "condition") == 0) {
        two(wait_for_condition, signal_condition);
    } else if (std::strcmp(mode, "lost-wakeup") == 0) {
        two(wait_for_anything, signal_condition);
    } else if (std::strcmp(mode, "adds") == 0) {
        two(add, add);
        return sum == 2 ? 0 : 4;
    }
    return 0;
}
