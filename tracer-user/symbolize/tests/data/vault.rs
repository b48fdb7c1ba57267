// Statics of a Rust program: plain, atomic, locked, nested, tuples and enums.
use std::cell::UnsafeCell;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

pub mod bank {
    use super::*;

    pub struct Account {
        pub id: u32,
        pub balance: AtomicI64,
        pub limits: (u16, u64),
    }

    pub struct Shared(pub UnsafeCell<[u32; 4]>);
    unsafe impl Sync for Shared {}

    #[derive(Clone, Copy)]
    pub enum State {
        Closed,
        Open { since: u64 },
    }

    pub struct Door(pub UnsafeCell<State>);
    unsafe impl Sync for Door {}

    pub static BALANCE: AtomicI64 = AtomicI64::new(100);
    pub static ACCOUNT: Account =
        Account { id: 1, balance: AtomicI64::new(5), limits: (1, 2) };
    pub static SHARED: Shared = Shared(UnsafeCell::new([1, 2, 3, 4]));
    pub static DOOR: Door = Door(UnsafeCell::new(State::Open { since: 7 }));
    pub static LOCKED: Mutex<i64> = Mutex::new(3);
    pub static ACCOUNTS: [Account; 2] = [
        Account { id: 2, balance: AtomicI64::new(6), limits: (3, 4) },
        Account { id: 3, balance: AtomicI64::new(7), limits: (5, 6) },
    ];

    #[inline(never)]
    pub fn deposit(amount: i64) -> i64 {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        CALLS.fetch_add(1, Ordering::Relaxed);
        BALANCE.fetch_add(amount, Ordering::SeqCst) + amount // deposit adds
    }
}

fn main() {
    let waits = std::env::args().nth(1).is_some_and(|argument| argument == "wait");
    if waits {
        println!("balance {:p}", &bank::BALANCE);
        println!("account_balance {:p}", &bank::ACCOUNT.balance);
        println!("limit1 {:p}", &bank::ACCOUNT.limits.1);
        println!("shared2 {:p}", bank::SHARED.0.get().cast::<u32>().wrapping_add(2));
        println!("locked {:p}", &bank::LOCKED);
        println!("accounts1_balance {:p}", &bank::ACCOUNTS[1].balance);
        let mut rest = Vec::new();
        std::io::stdin().read_to_end(&mut rest).unwrap();
    }
    let count = std::env::args().count() as i64;
    *bank::LOCKED.lock().unwrap() += count;
    unsafe {
        (*bank::SHARED.0.get())[1] += 1;
        *bank::DOOR.0.get() = match *bank::DOOR.0.get() {
            bank::State::Open { since } if since == 9 => bank::State::Closed,
            _ => bank::State::Open { since: count as u64 },
        };
    }
    if bank::deposit(count) == 9999 {
        println!("{}", bank::ACCOUNTS[count as usize].id);
    }
}
