// bank_fixed.cpp - bank.cpp with one locked section in `transfer`, which is now atomic.
//
//     c++ -g -O2 -I markers/include tests/programs/cpp/bank_fixed.cpp -o bank_fixed -pthread
//     sudo avtrace ./bank_fixed
//
// The transfer invites the audit in at the same place as before, between its read and its write, but holds
// the lock all along. The audit can only wait until the transfer is over:
//
//     thread 1: transfer                         thread 2: audit
//
//     lock, read 1000
//                              -- go_audit -->
//                                                lock (has to wait)
//     write 900, unlock
//                                                read 900, write 895, unlock
//
// The transfer does not wait for the audit here: the two would wait for each other forever.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <unistd.h>

#include "avtrace.h"

static constexpr long audit_fee = 5;

struct account_t {
    std::mutex lock;
    long balance; // guarded by lock
};

static account_t account{{}, 1000};

// One thread gives the turn, the other one waits for it.
class turn {
public:
    turn()
    {
        if (pipe(ends_) != 0) {
            std::perror("bank_fixed: pipe");
            std::exit(1);
        }
    }

    void give() const
    {
        if (write(ends_[1], "!", 1) != 1) {
            std::perror("bank_fixed: write to a pipe");
            std::exit(1);
        }
    }

    void await() const
    {
        char byte;

        if (read(ends_[0], &byte, 1) != 1) {
            std::perror("bank_fixed: read from a pipe");
            std::exit(1);
        }
    }

private:
    int ends_[2];
};

// Takes `amount` out of the account. Meant to be atomic, and is.
static void transfer(long amount, const turn &go_audit)
{
    AVTRACE_REGION("transfer");                            // @transfer_begin

    std::lock_guard<std::mutex> guard(account.lock);       // @transfer_lock
    long balance = account.balance;                        // @transfer_read

    go_audit.give(); // The audit may start, but the lock is taken.

    account.balance = balance - amount;                    // @transfer_write
}                                                          // @transfer_unlock @transfer_end

// Looks at the account and charges the fee for it.
static void audit()
{
    AVTRACE_REGION("audit");                               // @audit_begin

    std::lock_guard<std::mutex> guard(account.lock);       // @audit_lock
    long balance = account.balance;                        // @audit_read
    account.balance = balance - audit_fee;                 // @audit_write
}                                                          // @audit_unlock @audit_end

int main()
{
    const turn go_audit;

    std::thread teller([&] { transfer(100, go_audit); });
    std::thread auditor([&] {
        go_audit.await();
        audit();
    });
    teller.join();
    auditor.join();

    std::printf("balance: %ld\n", account.balance); // 895 = 1000 - 100 - 5
}
