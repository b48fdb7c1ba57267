//! Tests of an account: `splits` has deposits of two critical sections each, `whole` those of one. Built with `--test`.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

const DEPOSITS: u64 = 30;

#[derive(Default)]
struct Account {
    balance: Mutex<u64>,
}

impl Account {
    #[inline(never)]
    fn get(&self) -> u64 {
        *self.balance.lock().unwrap()
    }

    #[inline(never)]
    fn set(&self, balance: u64) {
        *self.balance.lock().unwrap() = balance;
    }

    #[inline(never)]
    fn deposit(&self, amount: u64) {
        let balance = self.get();
        self.set(balance + amount);
    }

    #[inline(never)]
    fn deposit_whole(&self, amount: u64) {
        *self.balance.lock().unwrap() += amount;
    }
}

fn by_two(deposit: fn(&Account, u64)) -> u64 {
    let account = Arc::new(Account::default());
    let threads = [(); 2].map(|()| {
        let account = Arc::clone(&account);
        thread::spawn(move || {
            for _ in 0..DEPOSITS {
                deposit(&account, 1);
                thread::sleep(Duration::from_millis(1));
            }
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    account.get()
}

#[test]
fn splits() {
    assert_eq!(by_two(Account::deposit), 2 * DEPOSITS);
}

#[test]
fn whole() {
    assert_eq!(by_two(Account::deposit_whole), 2 * DEPOSITS);
}

#[test]
#[ignore = "to be left out"]
fn ignored() {
    panic!();
}
