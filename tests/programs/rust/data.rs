//! A transfer that is not atomic, on data that nothing names: `data mutex [fixed]` keeps the account in a `Mutex` on
//! the heap, `data cell [fixed]` in an `UnsafeCell` beside a lock. With `fixed` the transfer keeps the lock. Turns go
//! through pipes.

use std::cell::UnsafeCell;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Debug)]
struct Account {
    owner: u64,
    balance: i64,
}

/// An account that its user guards.
struct Guarded {
    lock: Mutex<()>,
    account: UnsafeCell<Account>,
}

// SAFETY: whoever uses the account holds the lock.
unsafe impl Sync for Guarded {}

/// The first thread's ends: it gives the turn to the other one, and waits for its own.
struct Turns {
    give: PipeWriter,
    wait: PipeReader,
}

impl Turns {
    fn let_other(&mut self) {
        self.give.write_all(b"!").expect("write to a pipe");
        self.wait.read_exact(&mut [0]).expect("read from a pipe");
    }
}

#[inline(never)]
fn transfer(from: &Mutex<Account>, amount: i64, turns: &mut Turns, fixed: bool) {
    let mut account = from.lock().expect("not poisoned");
    let before = account.balance; // @transfer_read
    if !fixed {
        drop(account);
        turns.let_other();
        account = from.lock().expect("not poisoned");
    }
    account.balance = before - amount; // @transfer_write
    drop(account);
    if fixed {
        turns.let_other();
    }
}

#[inline(never)]
fn audit(of: &Mutex<Account>) {
    let mut account = of.lock().expect("not poisoned");
    account.balance -= 5; // @audit
}

#[inline(never)]
fn transfer_cell(from: &Guarded, amount: i64, turns: &mut Turns, fixed: bool) {
    let mut guard = from.lock.lock().expect("not poisoned");
    // SAFETY: the lock is held.
    let before = unsafe { (*from.account.get()).balance }; // @cell_read
    if !fixed {
        drop(guard);
        turns.let_other();
        guard = from.lock.lock().expect("not poisoned");
    }
    // SAFETY: the lock is held.
    unsafe { (*from.account.get()).balance = before - amount }; // @cell_write
    drop(guard);
    if fixed {
        turns.let_other();
    }
}

#[inline(never)]
fn audit_cell(of: &Guarded) {
    let _guard = of.lock.lock().expect("not poisoned");
    // SAFETY: the lock is held.
    unsafe { (*of.account.get()).balance -= 5 }; // @cell_audit
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().expect("mutex or cell");
    let fixed = arguments.next().is_some_and(|argument| argument == "fixed");
    let (mut go_other, give) = pipe().expect("a pipe");
    let (wait, mut go_on) = pipe().expect("a pipe");
    let mut turns = Turns { give, wait };
    let account = Account { owner: 1, balance: 1000 };
    let mut other = |audit: &dyn Fn()| {
        go_other.read_exact(&mut [0]).expect("read from a pipe");
        audit();
        go_on.write_all(b"!").expect("write to a pipe");
    };
    let left = if kind == "cell" {
        let shared = Arc::new(Guarded { lock: Mutex::new(()), account: UnsafeCell::new(account) });
        thread::scope(|scope| {
            let other = scope.spawn(|| other(&|| audit_cell(&shared)));
            transfer_cell(&shared, 100, &mut turns, fixed);
            other.join().expect("no panic");
        });
        Arc::into_inner(shared).expect("the last").account.into_inner()
    } else {
        let shared = Arc::new(Mutex::new(account));
        thread::scope(|scope| {
            let other = scope.spawn(|| other(&|| audit(&shared)));
            transfer(&shared, 100, &mut turns, fixed);
            other.join().expect("no panic");
        });
        Arc::into_inner(shared).expect("the last").into_inner().expect("not poisoned")
    };
    println!("balance of {}: {}", left.owner, left.balance);
}
