//! A lock of the program's own, with a guard. With `split` as the argument `transfer` drops the guard between its read
//! and its write, and the audit comes in between; with `whole` it holds the lock, and nothing is to be found. The
//! threads take turns through pipes.

use std::{
    cell::UnsafeCell,
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

struct Latch<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag keeps all but one thread out.
unsafe impl<T: Send> Sync for Latch<T> {}

struct Held<'a, T> {
    latch: &'a Latch<T>,
}

impl<T> Latch<T> {
    fn enter(&self) -> Held<'_, T> {
        while self.busy.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
        Held { latch: self }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the flag is set.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the flag is set.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.latch.busy.store(false, Ordering::Release);
    }
}

struct Turns {
    mine: PipeReader,
    theirs: PipeWriter,
}

impl Turns {
    fn give(&self) {
        (&self.theirs).write_all(b"!").expect("write to a pipe");
    }

    fn wait(&self) {
        (&self.mine).read_exact(&mut [0]).expect("read from a pipe");
    }
}

static ACCOUNT: Latch<i64> =
    Latch { busy: AtomicBool::new(false), value: UnsafeCell::new(1000) };

fn transfer(account: &Latch<i64>, amount: i64, turns: &Turns) {
    let seen = *account.enter();
    turns.give();
    turns.wait();
    *account.enter() = seen - amount;
}

fn transfer_whole(account: &Latch<i64>, amount: i64) {
    let mut balance = account.enter();
    let seen = *balance;
    *balance = seen - amount;
}

fn audit(account: &Latch<i64>) {
    *account.enter() -= 5;
}

fn main() {
    let is_split = std::env::args().nth(1).is_none_or(|how| how == "split");
    let (to_first, from_second) = pipe().expect("a pipe");
    let (to_second, from_first) = pipe().expect("a pipe");
    let first = Turns { mine: to_first, theirs: from_first };
    let second = Turns { mine: to_second, theirs: from_second };
    let teller = thread::spawn(move || {
        if is_split {
            transfer(&ACCOUNT, 100, &first);
        } else {
            transfer_whole(&ACCOUNT, 100);
            first.give();
            first.wait();
        }
    });
    let auditor = thread::spawn(move || {
        second.wait();
        audit(&ACCOUNT);
        second.give();
    });
    teller.join().expect("no panic");
    auditor.join().expect("no panic");
    println!("balance: {}", *ACCOUNT.enter());
}
