// Every marker of avtrace.h, in C++. The tests read the notes of its executable, and run it.
#include <atomic>
#include <cstdio>
#include <stdexcept>

#include "avtrace.h"

struct account {
    explicit account(long first) : balance(first) {}
    virtual ~account() {}

    long balance;

    account *operator&() = delete; // the address is taken all the same

    long member(long amount)
    {
        AVTRACE_REGION("member");
        return balance -= amount;
    }
};

static account savings{1000};
static std::atomic<long> total{5};
static volatile int flag = 1;

template <class Number>
Number in_template(Number number)
{
    AVTRACE_REGION("template");
    if (number > 3)
        throw std::runtime_error("too large");
    return number;
}

inline int in_inline(int number)
{
    AVTRACE_REGION("inline outer");
    {
        AVTRACE_REGION("inline inner");
        number++;
    }
    return number;
}

void by_hand()
{
    AVTRACE_BEGIN("by hand");
    flag = 2;
    AVTRACE_END("by hand");
}

void shared(long &reference)
{
    AVTRACE_SHARED(savings);
    AVTRACE_SHARED(savings.balance);
    AVTRACE_SHARED(total);
    AVTRACE_SHARED(flag);
    AVTRACE_SHARED_NAMED(reference, "reference");
}

int main()
{
    auto lambda = [](int number) {
        AVTRACE_REGION("lambda");
        return number * 2;
    };
    long local = 6;

    try {
        in_template(5);
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
    }
    std::printf("%ld %d %d\n", in_template(2L), in_inline(1), lambda(4));
    by_hand();
    shared(local);
    std::printf("%ld %d %ld\n", savings.member(100), flag, total.load());
}
