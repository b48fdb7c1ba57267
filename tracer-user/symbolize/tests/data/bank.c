// Globals, statics, members and a call chain, at places that the tests look up. When asked to, the program
// prints where they are and waits for the end of its standard input.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct owner {
    char name[12];
    int age;
};

typedef struct account {
    long id;
    struct owner owner;
    _Atomic long balance;
    union {
        int whole;
        struct {
            short low, high;
        } halves;
    } limit;
    unsigned flags : 3;
    unsigned colour : 5;
} account_t;

account_t account = {1, {"first", 30}, 100, {7}, 1, 2};
account_t accounts[4];
int matrix[3][5];
volatile int ready;
const int fixed_fee = 3;
static long hidden_total = 1;
int *pointer_to_ready = (int *)&ready;
char big_zeroes[20000];

static inline __attribute__((always_inline)) long add_fee(long amount)
{
    ready = ready + 1; // inlined line
    return amount + fixed_fee;
}

__attribute__((noinline)) long deposit(long amount)
{
    static int calls;
    calls++; // deposit counts
    account.balance += add_fee(amount); // deposit calls add_fee
    hidden_total += amount;
    return account.balance;
}

__attribute__((noinline)) long transfer(long amount)
{
    long before = account.balance;
    long after = deposit(amount); // transfer calls deposit
    return after - before;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        printf("deposit %p\n", (void *)deposit);
        printf("account %p\n", (void *)&account);
        printf("balance %p\n", (void *)&account.balance);
        printf("accounts2_age %p\n", (void *)&accounts[2].owner.age);
        printf("matrix12 %p\n", (void *)&matrix[1][2]);
        printf("big_zeroes %p\n", (void *)&big_zeroes[19999]);
        printf("printf %p\n", (void *)printf);
        fflush(stdout);
        while (getchar() != EOF) {
        }
    }
    return (int)transfer(argc) == 1000;
}
