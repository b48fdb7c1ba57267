//! A test that asserts what no test of the balance alone finds.

use std::process::Command;

use avtrace_test::assert_atomic;

#[test]
fn transfers_are_atomic() {
    let run = assert_atomic!(Command::new(env!("CARGO_BIN_EXE_bank-program")));
    assert_eq!(run.stdout, "balance: 895\n");
}
