// mutexes.cpp KIND [whole] - the mutexes of the standard library.
//
// `transfer` reads the balance in one locked section and writes it in another; the audit's section comes in between,
// and so the transfer is not atomic. KIND says by what the sections are locked:
//
//     mutex, recursive, timed, recursive_timed     an exclusive lock each, by a try with a time limit in the second
//                                                  section where there is one
//     shared, shared_timed                         shared in the transfer's first section
//     scoped                                       two mutexes at once, by std::scoped_lock
//
// With `whole` the transfer has one section, which the audit has to wait for. Nothing is to be found then.
#include <chrono>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "avtrace.h"
#include "turn.h"

using namespace std::chrono_literals;

static long balance = 1000; // guarded by the lock of the kind in use
static bool whole;

static std::mutex plain, other;
static std::recursive_mutex recursive;
static std::timed_mutex timed;
static std::recursive_timed_mutex recursive_timed;
static std::shared_mutex shared;
static std::shared_timed_mutex shared_timed;

static void must(bool locked)
{
    if (!locked)
        std::exit(1);
}

// How the transfer takes a mutex first, releases it, and takes it again.
static void read_lock(std::mutex &mutex) { mutex.lock(); }
static void read_unlock(std::mutex &mutex) { mutex.unlock(); }                     // @mutex_unlock
static void write_lock(std::mutex &mutex) { mutex.lock(); }                        // @mutex_lock

static void read_lock(std::recursive_mutex &mutex)
{
    mutex.lock();
    mutex.lock();
}
static void read_unlock(std::recursive_mutex &mutex)
{
    mutex.unlock();
    mutex.unlock();                                                                // @recursive_unlock
}
static void write_lock(std::recursive_mutex &mutex) { must(mutex.try_lock()); }    // @recursive_lock

static void read_lock(std::timed_mutex &mutex) { mutex.lock(); }
static void read_unlock(std::timed_mutex &mutex) { mutex.unlock(); }               // @timed_unlock
static void write_lock(std::timed_mutex &mutex) { must(mutex.try_lock_for(1000s)); } // @timed_lock

static void read_lock(std::recursive_timed_mutex &mutex) { mutex.lock(); }
static void read_unlock(std::recursive_timed_mutex &mutex) { mutex.unlock(); }     // @recursive_timed_unlock
static void write_lock(std::recursive_timed_mutex &mutex)
{
    must(mutex.try_lock_until(std::chrono::system_clock::now() + 1000s));          // @recursive_timed_lock
}

static void read_lock(std::shared_mutex &mutex) { mutex.lock_shared(); }
static void read_unlock(std::shared_mutex &mutex) { mutex.unlock_shared(); }       // @shared_unlock
static void write_lock(std::shared_mutex &mutex) { mutex.lock(); }                 // @shared_lock

static void read_lock(std::shared_timed_mutex &mutex) { must(mutex.try_lock_shared_for(1000s)); }
static void read_unlock(std::shared_timed_mutex &mutex) { mutex.unlock_shared(); } // @shared_timed_unlock
static void write_lock(std::shared_timed_mutex &mutex)
{
    must(mutex.try_lock_for(1000s));                                               // @shared_timed_lock
}

template <typename Mutex>
static void transfer(Mutex &mutex, const turn &go_audit, const turn &go_transfer)
{
    AVTRACE_REGION("transfer");            // @begin

    if (whole) {
        write_lock(mutex);
        go_audit.give();
        balance -= 100;
        mutex.unlock();
        return;
    }
    read_lock(mutex);
    long seen = balance;
    read_unlock(mutex);

    go_audit.give();
    go_transfer.await();

    write_lock(mutex);
    balance = seen - 100;
    mutex.unlock();
}

template <typename Mutex>
static void audit(Mutex &mutex)
{
    AVTRACE_REGION("audit");

    std::lock_guard<Mutex> guard(mutex);   // @audit_lock
    balance -= 5;
}                                          // @audit_unlock

template <typename Mutex>
static void run(Mutex &mutex)
{
    const turn go_audit, go_transfer;

    std::thread teller([&] { transfer(mutex, go_audit, go_transfer); });
    std::thread auditor([&] {
        go_audit.await();
        audit(mutex);
        go_transfer.give();
    });
    teller.join();
    auditor.join();
}

// Two mutexes as one.
struct both {
    void lock() { std::lock(plain, other); }
    void unlock()
    {
        plain.unlock();
        other.unlock();
    }
};

static void read_lock(both &mutex) { mutex.lock(); }
static void write_lock(both &mutex) { mutex.lock(); }
static void read_unlock(both &mutex) { mutex.unlock(); }

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "mutex";
    const auto is = [kind](const char *word) { return std::strcmp(kind, word) == 0; };
    both scoped;

    whole = argc > 2;
    if (is("recursive"))
        run(recursive);
    else if (is("timed"))
        run(timed);
    else if (is("recursive_timed"))
        run(recursive_timed);
    else if (is("shared"))
        run(shared);
    else if (is("shared_timed"))
        run(shared_timed);
    else if (is("scoped"))
        run(scoped);
    else
        run(plain);
    std::printf("balance: %ld\n", balance);
}
