// account.cpp [fixed] - a transfer that is not atomic, in a class whose accessors the compiler puts in line.
//
// Nothing is marked and nothing named: that `transfer` is atomic is for avtrace to suppose, since it takes a lock, and
// what it shares with `audit` for avtrace to see. With `fixed` it keeps the lock. Turns go through pipes.
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "turn.h"

class account {
public:
    explicit account(long balance) : balance_(balance) {}

    long balance() const { return balance_; }                    // @balance
    void set_balance(long balance) { balance_ = balance; }       // @set_balance
    std::mutex &lock() { return lock_; }

private:
    std::mutex lock_;
    long owner_ = 0;
    long balance_; // guarded by lock_
};

static turn go_other;
static turn go_on;
static bool fixed;

__attribute__((noinline)) static void transfer(account &from, long amount)
{
    std::unique_lock<std::mutex> guard(from.lock());
    long before = from.balance();                                // @transfer_read

    if (!fixed) {
        guard.unlock();
        go_other.give();
        go_on.await();
        guard.lock();
    }
    from.set_balance(before - amount);                           // @transfer_write
    guard.unlock();
    if (fixed) {
        go_other.give();
        go_on.await();
    }
}

__attribute__((noinline)) static void audit(account &of)
{
    std::lock_guard<std::mutex> guard(of.lock());

    of.set_balance(of.balance() - 5);                            // @audit
}

int main(int argc, char **argv)
{
    fixed = argc > 1 && std::strcmp(argv[1], "fixed") == 0;

    auto shared = std::make_unique<account>(1000);
    std::thread other([&shared] {
        go_other.await();
        audit(*shared);
        go_on.give();
    });

    transfer(*shared, 100);
    other.join();
    std::printf("balance: %ld\n", shared->balance());
    return 0;
}
