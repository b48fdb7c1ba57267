// A buffer that appends another one: the other's length is asked for in one section and its characters are copied in
// another. The other is made shorter in between.
//
// Regions: StringBuffer::append
// Pattern: stale read, torn
// Evidence: data
// Reference: java.lang.StringBuffer.append, Flanagan, Qadeer: A Type and Effect System for Atomicity (PLDI 2003)
#include <mutex>
#include <string>
#include <thread>

#include "turn.h"

static turn other_may_go, first_may_go_on;
static bool is_past_the_end;

class StringBuffer {
public:
    std::size_t length() const
    {
        std::lock_guard<std::mutex> guard(lock_);
        return count_;
    }

    void get_chars(std::size_t end, char *to) const
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (end > count_)
            is_past_the_end = true; // where Java throws
        for (std::size_t i = 0; i < end && i < count_; i++)
            to[i] = text_[i];
    }

    void set_length(std::size_t length)
    {
        std::lock_guard<std::mutex> guard(lock_);
        count_ = length;
    }

    void append(const StringBuffer &other, bool is_split)
    {
        std::lock_guard<std::mutex> guard(lock_);
        std::size_t length = other.length();
        if (is_split) {
            turn_give(&other_may_go);
            turn_await(&first_may_go_on);
        }
        other.get_chars(length, text_ + count_);
        count_ += length;
    }

    void put(char character)
    {
        std::lock_guard<std::mutex> guard(lock_);
        text_[count_++] = character;
    }

private:
    mutable std::mutex lock_;
    std::size_t count_ = 0; // guarded by lock_
    char text_[512] = {};   // guarded by lock_
};

int main()
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    StringBuffer *to = new StringBuffer, *from = new StringBuffer;
    for (char character = 'a'; character < 'k'; character++)
        from->put(character);
    std::thread first([&] {
        for (int i = 0; i < 20; i++)
            to->append(*from, false);
        to->append(*from, true);
    });
    std::thread second([&] {
        turn_await(&other_may_go);
        from->set_length(0);
        turn_give(&first_may_go_on);
    });
    first.join();
    second.join();
    turn_outcome(is_past_the_end);
    delete to;
    delete from;
}
