// helpers.cpp - a deposit that is lost although each of its steps is atomic by itself.
//
// `account::deposit` calls `get` and `set`, each of which locks; threads run lambdas. Nothing is marked and nothing
// named. Another thread gets in between: pipes see to that.
#include <cstdio>
#include <mutex>
#include <thread>

#include "turn.h"

static turn go_other;
static turn go_on;

class account {
public:
    long get() const
    {
        std::lock_guard<std::mutex> guard(lock_);
        return balance_;
    }

    void set(long value)
    {
        std::lock_guard<std::mutex> guard(lock_);
        balance_ = value;
    }

    void deposit(long amount, bool meets)
    {
        long before = get();
        if (meets) {
            go_other.give();
            go_on.await();
        }
        set(before + amount);
    }

private:
    mutable std::mutex lock_;
    long balance_ = 1000; // guarded by lock_
};

int main()
{
    account shared;
    std::thread first([&shared] {
        shared.deposit(5, false);
        shared.deposit(10, true);
    });
    std::thread second([&shared] {
        go_other.await();
        shared.set(0);
        go_on.give();
    });

    first.join();
    second.join();
    std::printf("balance: %ld\n", shared.get());
    return 0;
}
