// A slot that is claimed by a load and a store of an atomic variable, which would have to be one exchange: two threads
// get the same slot.
//
// Regions: Slots::claim
// Pattern: lost update, stale read
// Evidence: data
// Reference: the load and store that should be one exchange, after Qin et al. (PLDI 2020), Figure 9, in C++
#include <atomic>
#include <thread>

#include "turn.h"

static turn other_may_go, first_may_go_on;

class Slots {
public:
    // Number of the slot, or -1.
    int claim(bool is_split)
    {
        unsigned used = used_.load(std::memory_order_acquire);
        for (int slot = 0; slot < 32; slot++) {
            if ((used >> slot & 1) == 0) {
                if (is_split) {
                    turn_give(&other_may_go);
                    turn_await(&first_may_go_on);
                }
                used_.store(used | 1U << slot, std::memory_order_release);
                return slot;
            }
        }
        return -1;
    }

private:
    std::atomic<unsigned> used_{0};
};

static Slots slots;
static int of_first, of_second;

int main()
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    std::thread first([] {
        for (int i = 0; i < 10; i++)
            slots.claim(false);
        of_first = slots.claim(true);
    });
    std::thread second([] {
        turn_await(&other_may_go);
        of_second = slots.claim(false);
        turn_give(&first_may_go_on);
    });
    first.join();
    second.join();
    turn_outcome(of_first == of_second);
}
