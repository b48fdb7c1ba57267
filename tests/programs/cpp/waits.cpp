// waits.cpp KIND split|whole - the semaphores, latches and barriers of C++20.
//
// KIND says what is used:
//
//     acquire, try, try_for   a binary semaphore as a lock. With `split`, `transfer` passes it twice, the second time by
//                             the function of that name, and the audit passes it in between: it is not atomic. With
//                             `whole` it passes it once, and the audit has to wait.
//     pool                    a semaphore of value 2. The audit takes what nobody had taken before, and not what the
//                             transfer has given back, and then a mutex that the transfer takes later: nothing is to
//                             be found in either form.
//     latch, try_latch        `prepare` counts a latch down and locks a mutex later in the same region; `use` passes the
//                             latch and holds the mutex in between. With `whole` the region ends before that.
//     barrier, arrive         two threads meet twice in one region, or in none of theirs with `whole`.
#include <barrier>
#include <chrono>
#include <cstring>
#include <latch>
#include <mutex>
#include <semaphore>
#include <thread>

#include "avtrace.h"
#include "turn.h"

using namespace std::chrono_literals;

static std::binary_semaphore semaphore{1};
static std::counting_semaphore<8> pool{2};
static std::latch latch{1};
static std::barrier<> meeting{2};
static std::mutex mutex;
static long balance = 1000;
static const char *kind;
static bool whole;

static bool is(const char *word)
{
    return std::strcmp(kind, word) == 0;
}

static void must(bool got)
{
    if (!got)
        std::exit(1);
}

// So that no call is the last thing that a function does: it would be a jump.
static void done()
{
    asm volatile("");
}

static void transfer(const turn &go_audit, const turn &go_transfer)
{
    AVTRACE_REGION("transfer");

    semaphore.acquire();
    long seen = balance;
    if (whole) {
        go_audit.give();
        balance = seen - 100;
        semaphore.release();
        return;
    }
    semaphore.release();                        // @release
    go_audit.give();
    go_transfer.await();
    if (is("try"))
        must(semaphore.try_acquire());          // @try
    else if (is("try_for"))
        must(semaphore.try_acquire_for(1000s)); // @try_for
    else
        semaphore.acquire();                    // @acquire
    balance = seen - 100;
    semaphore.release();
    done();
}

static void audit(const turn &go_audit, const turn &go_transfer)
{
    go_audit.await();
    {
        AVTRACE_REGION("audit");

        semaphore.acquire();                    // @audit_acquire
        balance -= 5;
        semaphore.release();                    // @audit_release
        done();
    }
    go_transfer.give();
}

static void transfer_from_pool(const turn &go_audit, const turn &go_transfer)
{
    AVTRACE_REGION("transfer");

    pool.acquire();
    pool.release();
    go_audit.give();
    go_transfer.await();
    pool.acquire();
    pool.release();
    mutex.lock();
    mutex.unlock();
}

static void audit_from_pool(const turn &go_audit, const turn &go_transfer)
{
    go_audit.await();
    {
        AVTRACE_REGION("audit");

        pool.acquire();
        mutex.lock();
        mutex.unlock();
    }
    go_transfer.give();
}

static void prepare(const turn &go_use, const turn &go_prepare)
{
    AVTRACE_REGION("prepare");

    if (whole)
        mutex.lock(), mutex.unlock();
    latch.count_down();                         // @count_down
    if (whole)
        return;
    go_use.give();
    go_prepare.await();
    std::lock_guard<std::mutex> guard(mutex);   // @prepare_lock
}

static void use(const turn &go_use, const turn &go_prepare)
{
    if (!whole)
        go_use.await();
    {
        AVTRACE_REGION("use");

        if (is("try_latch"))
            while (!latch.try_wait())           // @try_wait
                std::this_thread::yield();
        else
            latch.wait();                       // @wait
        mutex.lock();
        mutex.unlock();                         // @use_unlock
    }
    go_prepare.give();
}

[[gnu::noinline]] static void arrive_and_wait()
{
    std::barrier<>::arrival_token token = meeting.arrive(); // @arrive

    meeting.wait(std::move(token));             // @depart
    done();
}

static void meet()
{
    if (whole) {
        for (int i = 0; i < 2; i++) {
            meeting.arrive_and_wait();
            AVTRACE_REGION("step");
            mutex.lock();
            mutex.unlock();
        }
    } else if (is("arrive")) {
        AVTRACE_REGION("step");

        arrive_and_wait();
        arrive_and_wait();
    } else {
        AVTRACE_REGION("step");

        meeting.arrive_and_wait();              // @first
        meeting.arrive_and_wait();              // @second
        done();
    }
}

int main(int argc, char **argv)
{
    const turn there, back;

    kind = argc > 1 ? argv[1] : "acquire";
    whole = argc > 2 && std::strcmp(argv[2], "whole") == 0;

    std::jthread first([&] {
        if (is("pool"))
            transfer_from_pool(there, back);
        else if (is("latch") || is("try_latch"))
            prepare(there, back);
        else if (is("barrier") || is("arrive"))
            meet();
        else
            transfer(there, back);
    });
    std::jthread second([&] {
        if (is("pool"))
            audit_from_pool(there, back);
        else if (is("latch") || is("try_latch"))
            use(there, back);
        else if (is("barrier") || is("arrive"))
            meet();
        else
            audit(there, back);
    });
    first.join();
    second.join();
    std::printf("balance: %ld\n", balance);
}
