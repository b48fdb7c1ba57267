// A registry whose methods lock with lock_guard, and a caller that composes two of them: `if (!contains) insert`. The
// session that came in between is replaced.
//
// Regions: session_for, Sessions::session_for
// Pattern: stale read, lost update, torn
// Evidence: data
// Reference: Shacham et al.: Testing Atomicity of Composed Concurrent Operations (OOPSLA 2011)
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "turn.h"

static turn other_may_go, first_may_go_on;

class Sessions {
public:
    bool contains(const std::string &user)
    {
        std::lock_guard<std::mutex> guard(lock_);
        return by_user_.count(user) != 0;
    }

    void insert(const std::string &user, int session)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (!by_user_.insert({user, session}).second)
            replaced_++;
        by_user_[user] = session;
        size_ = by_user_.size();
    }

    int replaced()
    {
        std::lock_guard<std::mutex> guard(lock_);
        return replaced_;
    }

private:
    std::mutex lock_;
    std::map<std::string, int> by_user_; // guarded by lock_
    std::size_t size_ = 0;               // guarded by lock_
    int replaced_ = 0;                   // guarded by lock_
};

static void session_for(Sessions &sessions, const std::string &user, int session, bool is_split)
{
    if (!sessions.contains(user)) {
        if (is_split) {
            turn_give(&other_may_go);
            turn_await(&first_may_go_on);
        }
        sessions.insert(user, session);
    }
}

int main()
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    Sessions sessions;
    std::thread first([&] {
        for (int i = 0; i < 10; i++)
            session_for(sessions, "quiet" + std::to_string(i), i, false);
        session_for(sessions, "alice", 100, true);
    });
    std::thread second([&] {
        turn_await(&other_may_go);
        session_for(sessions, "alice", 200, false);
        turn_give(&first_may_go_on);
    });
    first.join();
    second.join();
    turn_outcome(sessions.replaced() != 0);
}
