//! Two threads take a number each, and print what they took. `broken`, `split`, `readers`: both may take the same.
//! `locked`, `atomic`: they cannot. `spins`: one waits in a loop for the other.
use std::{
    env, hint,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

static NEXT: Mutex<usize> = Mutex::new(1);
static SHARED: RwLock<usize> = RwLock::new(1);
static HEAD: AtomicUsize = AtomicUsize::new(1);

#[inline(never)]
fn take_broken() -> usize {
    let taken = *NEXT.lock().unwrap(); // @read
    *NEXT.lock().unwrap() = taken + 1; // @write
    taken
}

#[inline(never)]
fn take_locked() -> usize {
    let mut next = NEXT.lock().unwrap();
    let taken = *next;
    *next += 1;
    taken
}

#[inline(never)]
fn take_readers() -> usize {
    let taken = *SHARED.read().unwrap();
    *SHARED.write().unwrap() = taken + 1;
    taken
}

#[inline(never)]
fn take_atomic() -> usize {
    HEAD.fetch_add(1, Ordering::SeqCst)
}

#[inline(never)]
fn take_split() -> usize {
    let taken = HEAD.load(Ordering::SeqCst); // @load
    HEAD.store(taken + 1, Ordering::SeqCst); // @store
    taken
}

/// Counts, so that no two of its rounds are the same.
fn wait_for_second() -> usize {
    let mut rounds = 0_u64;
    while HEAD.load(Ordering::SeqCst) == 1 {
        hint::black_box(&mut rounds);
        rounds += 1;
        hint::spin_loop();
    }
    1
}

fn main() {
    let mode = env::args().nth(1).unwrap_or_default();
    let (first, second): (fn() -> usize, fn() -> usize) = match mode.as_str() {
        "locked" => (take_locked, take_locked),
        "readers" => (take_readers, take_readers),
        "atomic" => (take_atomic, take_atomic),
        "split" => (take_split, take_split),
        "spins" => (wait_for_second, take_atomic),
        _ => (take_broken, take_broken),
    };
    let (first, second) = (thread::spawn(first), thread::spawn(second));
    println!("{} {}", first.join().unwrap(), second.join().unwrap());
}
