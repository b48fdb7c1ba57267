// threads.cpp thread|jthread|whole - threads of the standard library.
//
// thread, jthread: `work` starts a thread and waits for its end in the same region; a std::jthread is waited for where
// it goes out of scope. What the thread does comes in the middle: the region is not atomic.
// whole: the thread is started in one region and joined in another one. Nothing is to be found.
#include <cstdio>
#include <cstring>
#include <thread>

#include <pthread.h>

#include "avtrace.h"

static long balance = 1000;

static void pay()
{
    AVTRACE_REGION("pay");

    pthread_setname_np(pthread_self(), "payer");
    balance -= 100;
}

static void work()
{
    AVTRACE_REGION("work");        // @begin

    std::thread thread(pay);       // @create
    thread.join();                 // @join
}

static void work_with_jthread()
{
    AVTRACE_REGION("work");        // @jthread_begin

    std::jthread thread(pay);      // @jthread_create
}                                  // @jthread_join

static std::thread start()
{
    AVTRACE_REGION("before");

    return std::thread(pay);
}

static void join(std::thread thread)
{
    AVTRACE_REGION("after");

    thread.join();
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "thread";

    if (std::strcmp(how, "jthread") == 0)
        work_with_jthread();
    else if (std::strcmp(how, "whole") == 0)
        join(start());
    else
        work();
    std::printf("balance: %ld\n", balance);
}
