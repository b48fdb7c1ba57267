//! Two threads take one lock a thousand times each, and nothing else is done with it.
//!
//! The first argument is the lock: `mutex`, `read`, `write`, `try`, `try-read`, `try-write`, or one of these with
//! `parking-` before it; `read` and `write` are those of a reader-writer lock. With `apart` as the second argument
//! one thread follows the other, so that nobody ever waits for the lock; with `together` they run at the same time.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, RwLock};
use std::thread;

const TIMES: u64 = 1000;

static MUTEX: Mutex<u64> = Mutex::new(0);
static RWLOCK: RwLock<u64> = RwLock::new(0);
static PARKING_MUTEX: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
static PARKING_RWLOCK: parking_lot::RwLock<u64> = parking_lot::RwLock::new(0);

fn step(lock: &str) {
    match lock {
        "mutex" => *MUTEX.lock().expect("no panic") += 1,
        "write" => *RWLOCK.write().expect("no panic") += 1,
        "read" => drop(black_box(*RWLOCK.read().expect("no panic"))),
        "try" => loop {
            if let Ok(mut value) = MUTEX.try_lock() {
                *value += 1;
                break;
            }
        },
        "try-write" => loop {
            if let Ok(mut value) = RWLOCK.try_write() {
                *value += 1;
                break;
            }
        },
        "try-read" => loop {
            if let Ok(value) = RWLOCK.try_read() {
                black_box(*value);
                break;
            }
        },
        "parking-mutex" => *PARKING_MUTEX.lock() += 1,
        "parking-write" => *PARKING_RWLOCK.write() += 1,
        "parking-read" => drop(black_box(*PARKING_RWLOCK.read())),
        "parking-try" => loop {
            if let Some(mut value) = PARKING_MUTEX.try_lock() {
                *value += 1;
                break;
            }
        },
        "parking-try-write" => loop {
            if let Some(mut value) = PARKING_RWLOCK.try_write() {
                *value += 1;
                break;
            }
        },
        "parking-try-read" => loop {
            if let Some(value) = PARKING_RWLOCK.try_read() {
                black_box(*value);
                break;
            }
        },
        other => panic!("no lock is called `{other}`"),
    }
}

fn steps(lock: &str) {
    for _ in 0..TIMES {
        step(lock);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, lock, how] = &arguments[..] else { panic!("usage: counted LOCK apart|together") };
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            if how == "together" {
                start.wait();
            }
            steps(lock);
        });
        if how == "apart" {
            first.join().expect("the first thread's end");
        } else {
            start.wait();
        }
        steps(lock);
    });
    let sum = *MUTEX.lock().expect("no panic")
        + *RWLOCK.read().expect("no panic")
        + *PARKING_MUTEX.lock()
        + *PARKING_RWLOCK.read();
    println!("{sum}");
}
