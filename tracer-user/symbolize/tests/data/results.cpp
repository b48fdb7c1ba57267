// Functions with a result and without, declared in a class and outside of it.
struct Counter {
    long value;
    void set(long to);
    long get() const;
};

__attribute__((noinline)) void Counter::set(long to) { value = to; }

__attribute__((noinline)) long Counter::get() const { return value; }

extern "C" __attribute__((noinline)) void nothing(Counter *counter) { counter->set(1); }

extern "C" __attribute__((noinline)) long a_number(const Counter *counter) { return counter->get(); }

int main() {
    Counter counter;
    nothing(&counter);
    return a_number(&counter) == 1 ? 0 : 1;
}
