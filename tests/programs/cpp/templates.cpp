// templates.cpp - a class template whose methods are atomic, and a function template that composes two of them.
//
// `add<long>` gets a value and sets another one. Between the two, the other thread adds as well, and its update is lost.
#include <cstdio>
#include <mutex>
#include <thread>

#include "turn.h"

template <typename Value>
class Guarded {
public:
    explicit Guarded(Value value) : value_(value) {}

    Value get()
    {
        std::lock_guard<std::mutex> guard(lock_);
        return value_;
    }

    void set(Value value)
    {
        std::lock_guard<std::mutex> guard(lock_);
        value_ = value;
    }

private:
    std::mutex lock_;
    Value value_; // guarded by lock_
};

static turn go_second, go_first;

template <typename Value, typename Between>
static void add(Guarded<Value> &to, Value amount, Between between)
{
    Value value = to.get();
    between();
    to.set(value + amount);
}

int main()
{
    Guarded<long> total(0);

    std::thread first([&total] {
        for (int i = 0; i < 10; i++)
            add(total, 1L, [] {});
        add(total, 100L, [] {
            go_second.give();
            go_first.await();
        });
    });
    std::thread second([&total] {
        go_second.await();
        add(total, 5L, [] {});
        go_first.give();
    });
    first.join();
    second.join();
    std::printf("total: %ld\n", total.get());
    return 0;
}
