// changed_by_pointer.cpp - a map that is looked up in one section and changed in another, by a function that is called
// through a pointer. The direct call that could change it is never made.
//
// Nothing is marked and nothing named. Turns go through pipes.
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "turn.h"

static turn go_other;
static turn go_on;

class sessions {
public:
    bool contains(int user)
    {
        std::lock_guard<std::mutex> guard(lock_);

        return by_user_.find(user) != by_user_.end(); // @find
    }

    void insert(int user, int session)
    {
        std::lock_guard<std::mutex> guard(lock_);

        by_user_.insert({user, session}); // @never
    }

    void insert_later(int user, int session)
    {
        std::lock_guard<std::mutex> guard(lock_);

        by_user_.insert({user, session}); // @pointed
    }

private:
    std::mutex lock_;
    std::map<int, int> by_user_; // guarded by lock_
};

using change_t = void (sessions::*)(int, int);
static volatile change_t kept = &sessions::insert_later;

__attribute__((noinline)) static void
open_session(sessions &all, int session, change_t change, bool is_split)
{
    if (!all.contains(7)) {
        if (is_split) {
            go_other.give();
            go_on.await();
        }
        (all.*change)(7, session);
    }
    if (session < 0)
        all.insert(7, session);
}

int main()
{
    sessions all;

    all.insert(1, 1);
    std::thread first([&all] { open_session(all, 100, kept, true); });
    std::thread second([&all] {
        go_other.await();
        open_session(all, 200, kept, false);
        go_on.give();
    });
    first.join();
    second.join();
    std::puts("done");
    return 0;
}
