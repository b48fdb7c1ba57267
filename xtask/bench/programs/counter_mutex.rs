//! A counter in a `Mutex` with a method that gets and one that sets: the sum of both is not atomic.
//!
//! Regions: add
//! Pattern: lost update
//! Evidence: data
//! Reference: Qin et al.: Memory and Thread Safety in Real-World Rust Programs (PLDI 2020), section 6.2

#[path = "support/turn.rs"]
mod turn;

use std::sync::{Arc, Mutex};
use std::thread;

use turn::Turn;

struct Counter {
    value: Mutex<u64>,
}

impl Counter {
    fn get(&self) -> u64 {
        *self.value.lock().unwrap()
    }

    fn set(&self, value: u64) {
        *self.value.lock().unwrap() = value;
    }

    fn add(&self, amount: u64, between: impl Fn()) {
        let value = self.get();
        between();
        self.set(value + amount);
    }
}

fn main() {
    let counter = Arc::new(Counter { value: Mutex::new(0) });
    let turns = Arc::new((Turn::new(), Turn::new()));
    let (of_first, its_turns) = (counter.clone(), turns.clone());
    let first = thread::spawn(move || {
        for _ in 0..20 {
            of_first.add(1, || ());
        }
        of_first.add(100, || {
            its_turns.0.give();
            its_turns.1.wait();
        });
    });
    let (of_second, its_turns) = (counter.clone(), turns);
    let second = thread::spawn(move || {
        its_turns.0.wait();
        of_second.add(5, || ());
        its_turns.1.give();
    });
    first.join().unwrap();
    second.join().unwrap();
    turn::outcome(counter.get() != 125);
}
