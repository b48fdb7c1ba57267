// locales.cpp - a lock of the C++ library's own: `work` sets the global locale twice, and the other thread sets it in
// between. Each time the library holds its mutex for locales.
#include <locale>
#include <thread>

#include "avtrace.h"
#include "turn.h"

static void work(const turn &go_other, const turn &go_work)
{
    AVTRACE_REGION("work");

    std::locale::global(std::locale::classic());
    go_other.give();
    go_work.await();
    std::locale::global(std::locale::classic());
}

int main()
{
    turn go_other, go_work;
    std::thread one([&] { work(go_other, go_work); });
    std::thread other([&] {
        go_other.await();
        std::locale::global(std::locale::classic());
        go_work.give();
    });

    one.join();
    other.join();
}
