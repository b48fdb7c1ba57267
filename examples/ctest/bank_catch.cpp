// bank_catch.cpp - tests with Catch2 that pass in both forms of bank.c.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp> // Catch2 3; link Catch2::Catch2WithMain
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp> // Catch2 2
#endif

#include "bank.h"

TEST_CASE("transfer arrives")
{
    CHECK(transfer_during_audit() <= 900);
}

TEST_CASE("nothing is left to do")
{
    CHECK(true);
}
