//! Functions that take a lock, and wait: where an assertion has failed, once in a run, when the process ends; or for a
//! condition, in line.

use std::{
    collections::VecDeque,
    process,
    sync::{Condvar, LazyLock, Mutex},
    thread,
};

static TABLE: LazyLock<Mutex<Vec<u64>>> = LazyLock::new(|| Mutex::new(vec![0; 16]));
static QUEUE: Mutex<VecDeque<u64>> = Mutex::new(VecDeque::new());
static FILLED: Condvar = Condvar::new();

#[inline(never)]
fn asserting(place: usize) -> u64 {
    let mut queue = QUEUE.lock().unwrap();
    assert_eq!(queue.len() % 1, place % 1, "never");
    queue.push_back(1);
    queue[place]
}

#[inline(never)]
fn lazily(place: usize) {
    let mut table = TABLE.lock().unwrap();
    table[place] += 1;
}

#[inline(never)]
fn exiting(place: u64) {
    let mut queue = QUEUE.lock().unwrap();
    if queue.len() as u64 == place {
        eprintln!("too much");
        process::exit(1);
    }
    queue.push_back(place);
}

#[inline(never)]
fn parking(state: &parking_lot::Mutex<u64>, changed: &parking_lot::Condvar) -> u64 {
    let mut state = state.lock();
    while *state == 0 {
        changed.wait(&mut state);
    }
    *state
}

#[inline(never)]
fn waiting() -> u64 {
    let mut queue = QUEUE.lock().unwrap();
    loop {
        if let Some(first) = queue.pop_front() {
            return first;
        }
        queue = FILLED.wait(queue).unwrap();
    }
}

fn main() {
    let waiter = thread::spawn(|| waiting() + waiting());
    lazily(3);
    exiting(77);
    exiting(78);
    FILLED.notify_all();
    parking(&parking_lot::Mutex::new(1), &parking_lot::Condvar::new());
    println!("{}", waiter.join().unwrap() + asserting(0));
}
