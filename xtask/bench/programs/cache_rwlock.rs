//! A cache under a read-write lock: it is looked up under the read guard and filled under the write guard, without
//! another look. The entry of the other thread is replaced.
//!
//! Regions: get_or_insert
//! Pattern: stale read, lost update, torn, overwritten
//! Evidence: data
//! Reference: Qin et al. (PLDI 2020), section 6.2: two critical sections that should be one

#[path = "support/turn.rs"]
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::thread;

use turn::Turn;

#[derive(Default)]
struct Cache {
    entries: RwLock<HashMap<u32, u64>>,
}

impl Cache {
    fn get_or_insert(&self, key: u32, value: u64, between: impl Fn()) -> bool {
        if self.entries.read().unwrap().contains_key(&key) {
            return false;
        }
        between();
        self.entries.write().unwrap().insert(key, value).is_some()
    }
}

fn main() {
    let cache = Arc::new(Cache::default());
    let turns = Arc::new((Turn::new(), Turn::new()));
    let (of_first, its_turns) = (cache.clone(), turns.clone());
    let first = thread::spawn(move || {
        for key in 0..20 {
            of_first.get_or_insert(key, 1, || ());
            of_first.get_or_insert(key, 2, || ());
        }
        of_first.get_or_insert(100, 1, || {
            its_turns.0.give();
            its_turns.1.wait();
        })
    });
    let (of_second, its_turns) = (cache, turns);
    let second = thread::spawn(move || {
        its_turns.0.wait();
        of_second.get_or_insert(100, 2, || ());
        its_turns.1.give();
    });
    let replaced = first.join().unwrap();
    second.join().unwrap();
    turn::outcome(replaced);
}
