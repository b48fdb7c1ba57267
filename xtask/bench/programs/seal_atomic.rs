//! An engine that proposes one block: a flag is loaded, and stored when the block is made. Two threads propose.
//!
//! Regions: generate_seal
//! Pattern: lost update, stale read
//! Evidence: data
//! Reference: Parity Ethereum's AuthorityRound, after Qin et al. (PLDI 2020), Figure 9

#[path = "support/turn.rs"]
mod turn;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::thread;

use turn::Turn;

struct AuthorityRound {
    proposed: AtomicBool,
    step: AtomicUsize,
}

impl AuthorityRound {
    fn generate_seal(&self, between: impl Fn()) -> bool {
        if self.proposed.load(Ordering::SeqCst) {
            return false;
        }
        between();
        self.proposed.store(true, Ordering::SeqCst);
        true
    }

    fn next_step(&self) {
        self.step.fetch_add(1, Ordering::SeqCst);
        self.proposed.store(false, Ordering::SeqCst);
    }
}

fn main() {
    let engine =
        Arc::new(AuthorityRound { proposed: AtomicBool::new(false), step: AtomicUsize::new(0) });
    let turns = Arc::new((Turn::new(), Turn::new()));
    let (of_first, its_turns) = (engine.clone(), turns.clone());
    let first = thread::spawn(move || {
        for _ in 0..10 {
            of_first.generate_seal(|| ());
            of_first.next_step();
        }
        of_first.generate_seal(|| {
            its_turns.0.give();
            its_turns.1.wait();
        })
    });
    let (of_second, its_turns) = (engine.clone(), turns);
    let second = thread::spawn(move || {
        its_turns.0.wait();
        let sealed = of_second.generate_seal(|| ());
        its_turns.1.give();
        sealed
    });
    let (first, second) = (first.join().unwrap(), second.join().unwrap());
    turn::outcome(first && second && engine.step.load(Ordering::SeqCst) == 10);
}
