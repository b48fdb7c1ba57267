// Namespaces, classes, inheritance, templates, static members and locals, inlined standard library code.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace shop {

struct Item {
    int id;
    double price;
};

class Base {
public:
    virtual ~Base() = default;
    int base_id = 7;
};

class Stock : public Base {
public:
    static long total;
    std::mutex lock;
    std::atomic<long> count{0};
    Item items[3];
    const volatile short code = 5;

    __attribute__((noinline)) long add(long amount)
    {
        static int added;
        std::lock_guard<std::mutex> guard(lock); // takes the lock
        added++;
        total += amount;
        return count += amount; // adds to the count
    }
};

long Stock::total = 3;
Stock stock;

namespace {
int hidden = 4;
}

template <typename T> struct Pair {
    T first, second;
};

Pair<int> pair{1, 2};

template <typename T> __attribute__((noinline)) T twice(T value)
{
    hidden++;
    return value + value; // doubles
}

} // namespace shop

thread_local int per_thread = 1;
int shadowed = 1;
namespace other {
int shadowed = 2;
}

int main(int argc, char **argv)
{
    if (argc > 1 && std::strcmp(argv[1], "wait") == 0) {
        std::printf("stock %p\n", static_cast<void *>(&shop::stock));
        std::printf("count %p\n", static_cast<void *>(&shop::stock.count));
        std::printf("price1 %p\n", static_cast<void *>(&shop::stock.items[1].price));
        std::fflush(stdout);
        while (std::getchar() != EOF) {
        }
    }
    per_thread += argc;
    return shop::stock.add(shop::twice<long>(argc)) == 1000 && shop::pair.first == other::shadowed;
}
