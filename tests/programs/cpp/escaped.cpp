// escaped.cpp [argument|captured|boxed] - `update` reads a variable on main's stack and writes the sum; another thread
// makes its first access, a write, between the two. The address goes to the new
// thread as the argument of its function, in the captures of a lambda, or in an object on the heap that has a pointer to
// an object which has it.
#include <pthread.h>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include "../c/two_turns.h"

struct Account {
    std::mutex lock;
    long balance = 0;
};

struct Task {
    Account *account;
};

__attribute__((noinline)) static void set(Account &account, long balance)
{
    std::lock_guard<std::mutex> guard(account.lock);
    account.balance = balance;
}

__attribute__((noinline)) static void update(Account &account)
{
    account.lock.lock();
    long before = account.balance; // @before
    account.lock.unlock();
    let_other();
    account.lock.lock();
    account.balance = before + 1; // @after
    account.lock.unlock();
}

static void act(Account &account)
{
    await_turn(go_other);
    set(account, 10);
    give_turn(go_on);
}

static void *run(void *account)
{
    act(*static_cast<Account *>(account));
    return nullptr;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "argument";
    Account account;

    make_turns();
    if (std::strcmp(how, "argument") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, nullptr, run, &account) != 0)
            return 1;
        update(account);
        pthread_join(thread, nullptr);
    } else if (std::strcmp(how, "captured") == 0) {
        std::thread thread([&] { act(account); });
        update(account);
        thread.join();
    } else {
        auto task = std::make_unique<Task>(Task{&account});
        std::thread thread([&task] { act(*task->account); });
        update(account);
        thread.join();
    }
    std::printf("%ld\n", account.balance);
    return 0;
}
