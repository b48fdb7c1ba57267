// Memory behind pointers, in the ways that Rust code gets at it.
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Account {
    id: u64,
    balance: AtomicU64,
}

#[inline(never)]
fn deposit(account: &Account, amount: u64) {
    account.balance.store(account.id + amount, Relaxed);
}

#[inline(never)]
fn rename(account: &mut Account) {
    account.id += 2; // field
}

#[inline(never)]
fn shared(account: &Arc<Mutex<Account>>) {
    let mut account = account.lock().unwrap();
    account.id += 3; // guarded
}

fn main() {
    let mut own = Account { id: 1, balance: AtomicU64::new(0) };
    rename(&mut own);
    deposit(&own, 2);
    let account = Arc::new(Mutex::new(own));
    shared(&account);
}
