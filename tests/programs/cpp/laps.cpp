// Workers that loop over locked steps: LOOP is the kind of loop, FORM what the loop is in. Each section is complete in
// itself, unless WRONG is defined: then an iteration writes back what it has computed from a snapshot, and loses what
// others have added meanwhile. Another thread comes in between all steps of iterations, and between two iterations.
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>

enum { LAPS = 40 };

struct Task {
    long runs = 0;
};

struct Queue {
    std::mutex lock;
    std::condition_variable filled;
    std::queue<Task *> tasks;

    void put(Task *task)
    {
        std::unique_lock<std::mutex> hold(lock);
        tasks.push(task);
        filled.notify_one();
    }

    Task *get()
    {
        std::unique_lock<std::mutex> hold(lock);
        filled.wait(hold, [&] { return !tasks.empty(); });
        Task *task = tasks.front();
        tasks.pop();
        return task;
    }
};

struct Total {
    std::mutex lock;
    long total = 0;

    void add(long number)
    {
        std::lock_guard<std::mutex> hold(lock);
        total += number;
    }

    long snapshot()
    {
        std::lock_guard<std::mutex> hold(lock);
        return total;
    }

    void set(long number)
    {
        std::lock_guard<std::mutex> hold(lock);
        total = number;
    }
};

static Queue queue;
static Total total;
static int asked[2], answered[2];

// Lets the other thread take its turn, at one of seven calls: few iterations are cut, and each place in them is.
static void turn()
{
    static int calls;
    char byte = 1;
    if (calls++ % 7)
        return;
    if (write(asked[1], &byte, 1) != 1 || read(answered[0], &byte, 1) != 1)
        _exit(3);
}

[[maybe_unused]] static void work(Task *task)
{
    turn();
    task->runs++;
}

#ifdef WRONG
#define BODY long number = total.snapshot(); turn(); total.set(number + 1);
#else
#define BODY Task *task = queue.get(); work(task); total.add(1); turn(); queue.put(task); turn();
#endif

#if LOOP == 0
#define LOOPS(body) for (int lap = 0; lap < LAPS; lap++) { body }
#elif LOOP == 1
#define LOOPS(body) int lap = 0; while (lap < LAPS) { lap++; body }
#elif LOOP == 2
#define LOOPS(body) int lap = 0; do { body } while (++lap < LAPS);
#else
#define LOOPS(body) int lap = 0; for (;;) { if (lap++ == LAPS) break; body }
#endif

#if FORM == 0
static std::thread start() { return std::thread([](int) { LOOPS(BODY) }, 1); }
#elif FORM == 1
static void run(int) { LOOPS(BODY) }
static std::thread start() { return std::thread(run, 1); }
#elif FORM == 2
struct Worker {
    void run() { LOOPS(BODY) }
};
static Worker worker;
static std::thread start() { return std::thread(&Worker::run, &worker); }
#elif FORM == 3
static void once() { BODY }
static void (*volatile step)() = once;
static void run(int) { LOOPS(step();) }
static std::thread start() { return std::thread(run, 1); }
#elif FORM == 4
static void repeat(const std::function<void()> &task) { LOOPS(task();) }
static std::thread start() { return std::thread([] { repeat([] { BODY }); }); }
#else
__attribute__((noinline)) static void part() { LOOPS(BODY) }
static std::thread start() { return std::thread([] { for (int part_number = 0; part_number < 2; part_number++) part(); }); }
#endif

int main()
{
    if (pipe(asked) || pipe(answered))
        return 2;
    for (int number = 0; number < 3; number++)
        queue.put(new Task);
    std::thread other([] {
        char byte;
        while (read(asked[0], &byte, 1) == 1) {
            Task *task = queue.get();
            total.add(1);
            queue.put(task);
            if (write(answered[1], &byte, 1) != 1)
                _exit(4);
        }
    });
    start().join();
    close(asked[1]);
    other.join();
    puts("end");
}
