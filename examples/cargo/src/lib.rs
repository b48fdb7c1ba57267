//! A transfer that is not atomic although every access to the account is locked; with the feature `fixed` one that is.
//!
//! `transfer` reads the balance under the lock and writes the new one under the lock, and releases the lock between the
//! two. `audit` charges its fee in between, and the fee is lost. The compiler finds nothing wrong with it, nor does a
//! race detector.
//!
//! So that each run shows the same interleaving, the threads take turns through pipes. Programs of your team need
//! nothing of that kind.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::Mutex;
use std::thread;

const AUDIT_FEE: i64 = 5;

/// An account.
#[derive(Debug)]
pub struct Account {
    balance: Mutex<i64>,
}

#[cfg(not(feature = "fixed"))]
fn transfer(account: &Account, amount: i64, mut to_audit: PipeWriter, mut turn: PipeReader) {
    let balance = *account.balance.lock().expect("no panic"); // @read
    to_audit.write_all(b"!").expect("a pipe");
    turn.read_exact(&mut [0]).expect("a pipe");
    *account.balance.lock().expect("no panic") = balance - amount; // @write
}

#[cfg(feature = "fixed")]
fn transfer(account: &Account, amount: i64, mut to_audit: PipeWriter, turn: PipeReader) {
    let mut balance = account.balance.lock().expect("no panic");
    let read = *balance;
    // The audit has to wait for the lock.
    to_audit.write_all(b"!").expect("a pipe");
    *balance = read - amount;
    drop(balance);
    drop(turn);
}

fn audit(account: &Account) {
    *account.balance.lock().expect("no panic") -= AUDIT_FEE; // @fee
}

/// Transfers 100 from an account of 1000 while another thread charges the fee of an audit, and returns the balance
/// afterwards.
pub fn transfer_during_audit() -> i64 {
    let account = Account { balance: Mutex::new(1000) };
    let (mut turn_of_audit, to_audit) = pipe().expect("a pipe");
    let (turn_of_transfer, mut to_transfer) = pipe().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(|| transfer(&account, 100, to_audit, turn_of_transfer));
        scope.spawn(|| {
            turn_of_audit.read_exact(&mut [0]).expect("a pipe");
            audit(&account);
            // The fixed transfer may have ended before.
            let _ = to_transfer.write_all(b"!");
        });
    });
    account.balance.into_inner().expect("no panic")
}
