//! A closure that reads a balance under a lock and writes it under the same lock later. Another thread's closure
//! deposits in between, and the deposit is lost.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Mutex;
use std::thread;

struct Account {
    /// Guarded by the mutex.
    balance: Mutex<i64>,
}

fn give_turn(mut turn: &PipeWriter) {
    turn.write_all(b"!").expect("write to a pipe");
}

fn await_turn(mut turn: &PipeReader) {
    turn.read_exact(&mut [0]).expect("read from a pipe");
}

/// Calls a closure for each amount.
#[inline(never)]
fn for_each_amount(amounts: &[i64], apply: &dyn Fn(i64)) {
    for &amount in amounts {
        apply(amount);
    }
}

static ACCOUNT: Account = Account { balance: Mutex::new(1000) };

fn main() {
    let (go_deposit_reader, go_deposit) = pipe().expect("a pipe");
    let (go_on_reader, go_on) = pipe().expect("a pipe");
    let first = thread::spawn(move || {
        let withdraw = |amount: i64| {
            let balance = *ACCOUNT.balance.lock().unwrap();
            if amount == 100 {
                give_turn(&go_deposit);
                await_turn(&go_on_reader);
            }
            *ACCOUNT.balance.lock().unwrap() = balance - amount;
        };
        for_each_amount(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 100], &withdraw);
    });
    let second = thread::spawn(move || {
        let deposit = |amount: i64| *ACCOUNT.balance.lock().unwrap() += amount;
        await_turn(&go_deposit_reader);
        for_each_amount(&[5], &deposit);
        give_turn(&go_on);
    });
    first.join().unwrap();
    second.join().unwrap();
    println!("balance: {}", ACCOUNT.balance.lock().unwrap());
}
