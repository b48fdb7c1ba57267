//! A lock of the program's own, with a guard. With `split` as the argument `transfer` drops the guard between its read
//! and its write, and the audit comes in between; with `whole` it holds the lock, and nothing is to be found. A second
//! argument `try` takes the lock by a function that tries once. The threads take turns through pipes.

use std::{
    cell::UnsafeCell,
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

struct Latch<T, const TRIES: bool> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag keeps all but one thread out.
unsafe impl<T: Send, const TRIES: bool> Sync for Latch<T, TRIES> {}

struct Held<'a, T, const TRIES: bool> {
    latch: &'a Latch<T, TRIES>,
}

impl<T, const TRIES: bool> Latch<T, TRIES> {
    const fn new(value: T) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn try_enter(&self) -> Option<Held<'_, T, TRIES>> {
        let free = self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok().then(|| Held { latch: self })
    }

    fn enter(&self) -> Held<'_, T, TRIES> {
        if TRIES {
            loop {
                if let Some(held) = self.try_enter() {
                    return held;
                }
                std::hint::spin_loop();
            }
        }
        while self.busy.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
        Held { latch: self }
    }
}

impl<T, const TRIES: bool> Deref for Held<'_, T, TRIES> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the flag is set.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T, const TRIES: bool> DerefMut for Held<'_, T, TRIES> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the flag is set.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T, const TRIES: bool> Drop for Held<'_, T, TRIES> {
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

static ACCOUNT: Latch<i64, false> = Latch::new(1000);
static TRIED: Latch<i64, true> = Latch::new(1000);

fn transfer<const TRIES: bool>(account: &Latch<i64, TRIES>, amount: i64, turns: &Turns) {
    let seen = *account.enter();
    turns.give();
    turns.wait();
    *account.enter() = seen - amount;
}

fn transfer_whole<const TRIES: bool>(account: &Latch<i64, TRIES>, amount: i64) {
    let mut balance = account.enter();
    let seen = *balance;
    *balance = seen - amount;
}

fn audit<const TRIES: bool>(account: &Latch<i64, TRIES>) {
    *account.enter() -= 5;
}

fn main() {
    let argument = |number| std::env::args().nth(number).unwrap_or_default();
    match argument(2).as_str() {
        "try" => run(&TRIED, argument(1) != "whole"),
        _ => run(&ACCOUNT, argument(1) != "whole"),
    }
}

fn run<const TRIES: bool>(account: &'static Latch<i64, TRIES>, is_split: bool) {
    let (to_first, from_second) = pipe().expect("a pipe");
    let (to_second, from_first) = pipe().expect("a pipe");
    let first = Turns { mine: to_first, theirs: from_first };
    let second = Turns { mine: to_second, theirs: from_second };
    let teller = thread::spawn(move || {
        if is_split {
            transfer(account, 100, &first);
        } else {
            transfer_whole(account, 100);
            first.give();
            first.wait();
        }
    });
    let auditor = thread::spawn(move || {
        second.wait();
        audit(account);
        second.give();
    });
    teller.join().expect("no panic");
    auditor.join().expect("no panic");
    println!("balance: {}", *account.enter());
}
