//! A map of several shards, each under its own lock, whose `get` gives a copy and whose `insert` replaces, as DashMap's
//! do. A caller adds to an entry with both.
//!
//! Regions: count_word
//! Pattern: lost update, torn, stale read
//! Evidence: data
//! Reference: Shacham et al. (OOPSLA 2011): get and put of a concurrent map, composed

#[path = "support/turn.rs"]
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::thread;

use turn::Turn;

const SHARDS: usize = 8;

struct ShardedMap {
    shards: [RwLock<HashMap<String, u64>>; SHARDS],
}

impl ShardedMap {
    fn new() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::default()) }
    }

    fn shard(&self, key: &str) -> &RwLock<HashMap<String, u64>> {
        let sum: usize = key.bytes().map(usize::from).sum();
        &self.shards[sum % SHARDS]
    }

    fn get(&self, key: &str) -> Option<u64> {
        self.shard(key).read().unwrap().get(key).copied()
    }

    fn insert(&self, key: &str, value: u64) {
        self.shard(key).write().unwrap().insert(key.to_owned(), value);
    }
}

fn count_word(map: &ShardedMap, word: &str, between: impl Fn()) {
    let count = map.get(word).unwrap_or(0);
    between();
    map.insert(word, count + 1);
}

fn main() {
    let map = Arc::new(ShardedMap::new());
    let turns = Arc::new((Turn::new(), Turn::new()));
    let (of_first, its_turns) = (map.clone(), turns.clone());
    let first = thread::spawn(move || {
        for word in ["some", "words", "of", "a", "text"].iter().cycle().take(20) {
            count_word(&of_first, word, || ());
        }
        count_word(&of_first, "word", || {
            its_turns.0.give();
            its_turns.1.wait();
        });
    });
    let (of_second, its_turns) = (map.clone(), turns);
    let second = thread::spawn(move || {
        its_turns.0.wait();
        count_word(&of_second, "word", || ());
        its_turns.1.give();
    });
    first.join().unwrap();
    second.join().unwrap();
    turn::outcome(map.get("word") == Some(1));
}
