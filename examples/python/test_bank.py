"""A test of the extension module, which passes in both forms of bank.c: it does not look for the fee."""

import bank


def test_transfer_arrives():
    assert bank.transfer_during_audit() <= 900


if __name__ == "__main__":
    test_transfer_arrives()
