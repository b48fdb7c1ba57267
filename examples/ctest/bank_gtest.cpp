// bank_gtest.cpp - tests with GoogleTest that pass in both forms of bank.c.
#include <gtest/gtest.h>

#include "bank.h"

TEST(Bank, TransferArrives)
{
    EXPECT_LE(transfer_during_audit(), 900);
}

TEST(Bank, NothingIsLeftToDo)
{
    EXPECT_TRUE(true);
}
