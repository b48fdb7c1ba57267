// containers.cpp - a map that is looked up in one section and changed in another: its nodes are linked by the library.
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

        by_user_.insert({user, session}); // @insert
    }

private:
    std::mutex lock_;
    std::map<int, int> by_user_; // guarded by lock_
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

int main()
{
    sessions all;

    all.insert(1, 1);
    std::thread first([&all] { open_session(all, 100, true); });
    std::thread second([&all] {
        go_other.await();
        open_session(all, 200, false);
        go_on.give();
    });
    first.join();
    second.join();
    std::puts("done");
    return 0;
}
