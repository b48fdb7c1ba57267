//! Tests that pass in both forms of the library: they do not look for the fee.

#[test]
fn transfer_arrives() {
    assert!(bank::transfer_during_audit() <= 900);
}

#[test]
fn nothing_is_left_to_do() {}
