"""A test of a program, which passes in both forms of bank.c: it does not look for the fee."""

import os


def test_transfer_arrives(run):
    program = os.environ.get("BANK_TEST", "./bank_test")
    name, balance = run(program).split()
    assert name == "balance:"
    assert int(balance) <= 900
