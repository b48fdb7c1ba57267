// bank.cpp - a transfer that is not atomic, although every access to the account is locked.
//
// Build and trace it:
//
//     c++ -g -O2 -I markers/include tests/programs/cpp/bank.cpp -o bank -pthread
//     sudo avtrace ./bank
//
// This is bank.c in C++: std::mutex instead of pthread_mutex_t, and a lock_guard for each locked section.
// `transfer` has two of them. Between the two, `audit` charges its fee, and the transfer then writes a
// balance that knows nothing of it.
//
// The interleaving, the same in every run:
//
//     thread 1: transfer                         thread 2: audit
//
//     lock, read 1000, unlock
//                              -- go_audit -->
//                                                lock, read 1000, write 995, unlock
//                            <-- go_transfer --
//     lock, write 900, unlock                    (the fee of 5 is gone)
//
// The two threads take turns through pipes, one byte per turn. A pipe is nothing that avtrace records, so it
// forces the order and leaves no trace of its own.
//
// bank_fixed.cpp is the same program with one locked section in `transfer`.
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
            std::perror("bank: pipe");
            std::exit(1);
        }
    }

    void give() const
    {
        if (write(ends_[1], "!", 1) != 1) {
            std::perror("bank: write to a pipe");
            std::exit(1);
        }
    }

    void await() const
    {
        char byte;

        if (read(ends_[0], &byte, 1) != 1) {
            std::perror("bank: read from a pipe");
            std::exit(1);
        }
    }

private:
    int ends_[2];
};

// Takes `amount` out of the account. Meant to be atomic, and says so by a region.
static void transfer(long amount, const turn &go_audit, const turn &go_transfer)
{
    AVTRACE_REGION("transfer");                            // @transfer_begin
    long balance;

    {
        std::lock_guard<std::mutex> guard(account.lock);   // @transfer_lock
        balance = account.balance;                         // @transfer_read
    }                                                      // @transfer_unlock

    go_audit.give(); // The lock is free, and the audit uses it.
    go_transfer.await();

    {
        std::lock_guard<std::mutex> guard(account.lock);   // @transfer_relock
        account.balance = balance - amount;                // @transfer_write: `balance` is out of date by now.
    }                                                      // @transfer_reunlock
}                                                          // @transfer_end

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
    const turn go_audit, go_transfer;

    std::thread teller([&] { transfer(100, go_audit, go_transfer); });
    std::thread auditor([&] {
        go_audit.await();
        audit();
        go_transfer.give();
    });
    teller.join();
    auditor.join();

    std::printf("balance: %ld\n", account.balance); // 900; it should be 1000 - 100 - 5 = 895
}
