//! All interleavings of a few accesses, with all orders in which their writes may be seen.
//!
//! Each scenario has a bound of preemptions, which the environment variable `LOOM_MAX_PREEMPTIONS` replaces. With 2,
//! three threads at one word have 190,000 interleavings.

use std::{
    any::Any,
    string::String,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread, vec,
    vec::Vec,
};

use loom::model::Builder;

use super::{
    weak_memory::WeakMemory,
    world::{self, Mistake, Step, World},
};

/// Accesses of some threads at once, to words of a table with some slots.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    slots: usize,
    /// Accesses of the first thread before the others start.
    before: &'static [Step],
    threads: &'static [&'static [Step]],
    /// Number of preemptions.
    preemptions: usize,
}

const READ: Step = Step::Read(0, 0xff);
const WRITE: Step = Step::Write(0, 0xff);
const OTHER_WORD: Step = Step::Write(1, 0xff);

/// A thread comes while the owner is at work.
pub const COMES: Scenario = Scenario {
    slots: 1,
    before: &[WRITE, WRITE],
    threads: &[&[WRITE, READ], &[WRITE]],
    preemptions: 3,
};

/// Two threads read and write in turns.
pub const TURNS: Scenario = Scenario {
    slots: 1,
    before: &[],
    threads: &[&[READ, READ, WRITE], &[WRITE, WRITE]],
    preemptions: 2,
};

/// An access to several words, one of which has an owner.
pub const SEVERAL: Scenario = Scenario {
    slots: 2,
    before: &[WRITE],
    threads: &[&[WRITE, WRITE], &[Step::Several(0)]],
    preemptions: 3,
};

/// An access to several words, one of which another thread is claiming.
pub const SEVERAL_UNOWNED: Scenario = Scenario { before: &[], ..SEVERAL };

/// An access to several words, one of which comes from one thread to another meanwhile.
pub const SEVERAL_CLAIMED: Scenario = Scenario {
    threads: &[&[WRITE, WRITE], &[Step::Several(0)], &[WRITE]],
    preemptions: 1,
    ..SEVERAL_UNOWNED
};

/// Two words in one slot.
pub const TWO_WORDS: Scenario = Scenario {
    slots: 1,
    before: &[WRITE],
    threads: &[&[WRITE], &[OTHER_WORD, OTHER_WORD, OTHER_WORD]],
    preemptions: 2,
};

/// Three threads at one word.
pub const THREE: Scenario = Scenario {
    slots: 1,
    before: &[WRITE, WRITE],
    threads: &[&[WRITE], &[WRITE], &[WRITE]],
    preemptions: 1,
};

impl Scenario {
    /// Executes all interleavings, with a mistake if one is given, and returns their number, or the message of the
    /// first one whose history lacks a property.
    pub fn check(self, mistake: Option<Mistake>) -> Result<usize, String> {
        // The model checker's state belongs to its thread, and does not survive a panic.
        let checked = thread::spawn(move || {
            let mut model = Builder::new();
            model.max_branches = 10_000;
            model.preemption_bound.get_or_insert(self.preemptions);
            let executed = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&executed);
            model.check(move || {
                counter.fetch_add(1, Relaxed);
                self.run(mistake);
            });
            executed.load(Relaxed)
        });
        checked.join().map_err(|panic| message(&*panic))
    }

    fn run(self, mistake: Option<Mistake>) {
        let world = loom::sync::Arc::new(World::<WeakMemory>::new(self.slots, mistake));
        let mut states: Vec<_> = (1..).map(world::thread).take(self.threads.len()).collect();
        for &step in self.before {
            world.step(&mut states[0], step);
        }
        let mut threads = vec![];
        for (mut state, &steps) in states.into_iter().zip(self.threads) {
            let world = loom::sync::Arc::clone(&world);
            threads.push(loom::thread::spawn(move || {
                for &step in steps {
                    world.step(&mut state, step);
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        world.flush();
        world.history().check();
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|&text| text.into());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[test]
fn no_interleaving_loses_an_access_in_silence() {
    for scenario in [COMES, TURNS, SEVERAL, SEVERAL_UNOWNED, SEVERAL_CLAIMED, TWO_WORDS, THREE] {
        scenario.check(None).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
    }
}
