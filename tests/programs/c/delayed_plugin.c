/* Library with one function, of which an instruction can be delayed. */
static volatile int steps;

__attribute__((noinline)) int plugged(int number) {
    steps += number;
    steps += 1;
    steps += 2;
    return steps;
}
