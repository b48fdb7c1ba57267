//! starts - what threads start with: closures that compilers inline into the library's code, and a function.
//!
//! `transfer` and `audit` are called by closures that threads start with, and `patrol` is what one starts with
//! itself. The transfer releases the lock in between, and the audit gets in: pipes see to that.

use std::{
    io::{Read as _, Write as _, pipe},
    sync::{Arc, Mutex},
    thread,
};

struct Bank {
    balance: Mutex<i64>,
}

static ROUNDS: Mutex<i64> = Mutex::new(0);

#[inline(never)]
fn transfer(bank: &Bank, pause: impl FnOnce()) {
    let before = *bank.balance.lock().expect("the balance"); // @transfer_unlock
    pause();
    *bank.balance.lock().expect("the balance") = before - 100; // @transfer_relock
}

#[inline(never)]
fn audit(bank: &Bank) {
    *bank.balance.lock().expect("the balance") -= 5;
}

#[inline(never)]
fn patrol() {
    *ROUNDS.lock().expect("the rounds") += 1;
}

fn main() {
    let bank = Arc::new(Bank { balance: Mutex::new(1000) });
    let (mut await_audit, mut go_audit) = pipe().expect("a pipe");
    let (mut await_transfer, mut go_transfer) = pipe().expect("a pipe");
    let patrolling = thread::spawn(patrol);
    let shared = Arc::clone(&bank);
    let transferring = thread::spawn(move || {
        transfer(&shared, || {
            go_audit.write_all(&[0]).expect("a turn to give");
            await_transfer.read_exact(&mut [0]).expect("a turn");
        });
    });
    let shared = Arc::clone(&bank);
    let auditing = thread::spawn(move || {
        await_audit.read_exact(&mut [0]).expect("a turn");
        audit(&shared);
        go_transfer.write_all(&[0]).expect("a turn to give");
    });
    for thread in [patrolling, transferring, auditing] {
        thread.join().expect("a thread that does not panic");
    }
    println!("balance: {}", bank.balance.lock().expect("the balance"));
}
