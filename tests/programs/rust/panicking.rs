//! `panicking [stay]`: a function that is left by a panic, which its caller catches; what follows takes the lock in
//! deeper frames than the function had. In between the other thread takes the lock, as in `leaving.c`. With `stay` the
//! function takes the lock again before it panics, and is not atomic.
//!
//! `panicking many` panics and catches 10,000 times.

use std::io::{Read, Write, pipe};
use std::panic::{catch_unwind, panic_any};
use std::thread;

/// A mutex of the C library, whose calls are seen without knowing Rust's own locks.
static mut LOCK: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;

fn lock() {
    // SAFETY: the mutex is a valid static one.
    assert_eq!(unsafe { libc::pthread_mutex_lock(&raw mut LOCK) }, 0);
}

fn unlock() {
    // SAFETY: this thread has taken it.
    assert_eq!(unsafe { libc::pthread_mutex_unlock(&raw mut LOCK) }, 0);
}

#[inline(never)]
fn step(meet: impl FnOnce(), stay: bool) {
    lock();
    unlock();
    meet();
    if stay {
        lock();
        unlock();
    }
    panic_any("left");
}

#[inline(never)]
fn after(room: &mut [u8; 512]) {
    lock();
    room[0] += 1;
    unlock();
}

#[inline(never)]
fn other() {
    lock();
    unlock();
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let how = std::env::args().nth(1).unwrap_or_default();
    if how == "many" {
        let caught = (0..10_000).filter(|_| catch_unwind(|| step(|| {}, false)).is_err()).count();
        println!("caught {caught}");
        return;
    }
    let stay = how == "stay";
    let (mut other_waits, mut go_other) = pipe().expect("a pipe");
    let (mut step_waits, mut go_step) = pipe().expect("a pipe");
    let second = thread::spawn(move || {
        other_waits.read_exact(&mut [0]).expect("a turn");
        other();
        go_step.write_all(b"!").expect("a turn");
    });
    let first = thread::spawn(move || {
        let left = catch_unwind(std::panic::AssertUnwindSafe(|| {
            step(
                || {
                    go_other.write_all(b"!").expect("a turn");
                    step_waits.read_exact(&mut [0]).expect("a turn");
                },
                stay,
            );
        }));
        assert!(left.is_err());
        after(&mut [0; 512]);
    });
    first.join().expect("the thread ends");
    second.join().expect("the thread ends");
    println!("done");
}
