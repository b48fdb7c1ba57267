/* bank_test.c - a test that passes in both forms of bank.c: it does not look for the fee. */
#include "bank.h"

#include <stdio.h>

int main(void)
{
    long balance = transfer_during_audit();

    printf("balance: %ld\n", balance);
    return balance <= 900 ? 0 : 1;
}
