// Memory behind pointers, in the ways that C++ code gets at it.
#include <atomic>
#include <memory>
#include <mutex>

struct Account {
    std::mutex lock;
    long balance = 0;
    std::atomic<int> visits{0};

    __attribute__((noinline)) void deposit(long amount) {
        balance += amount; // this
        visits.fetch_add(1);
    }
};

__attribute__((noinline)) void through_reference(Account &account) {
    account.balance += 2; // reference
}

__attribute__((noinline)) void through_owner(std::unique_ptr<Account> &account) {
    account->balance += 3; // owner
}

template <class Body> __attribute__((noinline)) void run(Body body) { body(); }

int main() {
    auto account = std::make_unique<Account>();
    account->deposit(1);
    through_reference(*account);
    through_owner(account);
    long total = 0;
    run([&total, &account] {
        total += 4; // captured
        account->balance += total;
    });
    return static_cast<int>(total);
}
