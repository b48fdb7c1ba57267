//! All interleavings of a few threads' accesses to one word.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use loom::model::Builder;

use super::{
    history::{History, Seen},
    mistakes::OwnershipMistake,
    thread::{ModelThread, Op, OwnershipWorld, Signal, WORDS, reserved},
};
use crate::model::{machine::Machine, message};

/// Threads with their programs, a signal, and a bound of preemptions.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub threads: &'static [&'static [Op]],
    pub signal: Option<Signal>,
    pub preemptions: usize,
}

/// Processor steps after which stores become visible.
const DELAYS: [u64; 2] = [0, 100];

impl Scenario {
    /// Executes all interleavings, as `model::scenario` does.
    pub fn check(self, mistake: Option<OwnershipMistake>) -> Result<usize, String> {
        DELAYS.into_iter().map(|delay| self.check_with(delay, mistake)).sum()
    }

    fn check_with(self, delay: u64, mistake: Option<OwnershipMistake>) -> Result<usize, String> {
        // The model checker's state is that of its thread, and does not survive a panic.
        let checked = thread::spawn(move || {
            let mut model = Builder::new();
            model.max_branches = 10_000;
            model.preemption_bound.get_or_insert(self.preemptions);
            let executed = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&executed);
            model.check(move || {
                counter.fetch_add(1, Relaxed);
                self.run(delay, mistake);
            });
            executed.load(Relaxed)
        });
        checked.join().map_err(|panic| message(&*panic))
    }

    fn run(self, delay: u64, mistake: Option<OwnershipMistake>) {
        let count = self.threads.len();
        let machine = Machine::new(WORDS + count + 1, count + 1, delay);
        let world = Arc::new(OwnershipWorld {
            machine,
            history: History::default(),
            mistake,
            signal: self.signal,
        });
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let thread = ModelThread::new(&world, number);
                loom::thread::spawn(move || thread.run(self.threads[number]))
            })
            .collect();
        let reader = count;
        let until = world.machine.step(reader, |state| state.clock - 1);
        let slots = |threads: usize| {
            world.machine.step(reader, |state| {
                state.barrier();
                (0..threads).map(|number| state.load(reader, reserved(number))).collect()
            })
        };
        world.history.saw(Seen { until, reserved: slots(count) });
        for thread in threads {
            thread.join().unwrap();
        }
        ModelThread::new(&world, count).flush_all();
        world.history.check(&slots(count + 1));
    }
}
