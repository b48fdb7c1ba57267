// wrapped_lock.cpp - sessions under a lock of the program's own type, which wraps the library's. The second thread opens
// its session within a function that is a region itself.
//
// Nothing is marked and nothing named. Turns go through pipes.
#include <cstdio>
#include <mutex>
#include <thread>

#include "turn.h"

static turn go_other;
static turn go_on;

class mutex {
public:
    void acquire() { mu_.lock(); }
    void release() { mu_.unlock(); }

private:
    std::mutex mu_;
};

class sessions {
public:
    bool contains(int user)
    {
        lock_.acquire();
        bool found = by_user_[user] != 0; // @find
        lock_.release();
        return found;
    }

    void insert(int user, int session)
    {
        lock_.acquire();
        by_user_[user] = session; // @insert
        lock_.release();
    }

private:
    int by_user_[8] = {}; // guarded by lock_
    mutex lock_;
};

__attribute__((noinline)) static void open_session(sessions &all, int session, bool is_split)
{
    if (!all.contains(7)) {
        if (is_split) {
            go_other.give();
            go_on.await();
        }
        all.insert(7, session);
    }
}

__attribute__((noinline)) static void serve(sessions &all)
{
    all.insert(1, 1);
    open_session(all, 200, false);
}

int main()
{
    sessions all;

    std::thread first([&all] { open_session(all, 100, true); });
    std::thread second([&all] {
        go_other.await();
        serve(all);
        go_on.give();
    });
    first.join();
    second.join();
    std::puts("done");
    return 0;
}
