//! All interleavings of some threads and the reader, with stores that become visible at once or late.
//!
//! Each scenario has a bound of preemptions, which the environment variable `LOOM_MAX_PREEMPTIONS` replaces.

use core::{mem::offset_of, time::Duration};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use abi::{FRAMES, Kind};
use loom::model::Builder;

use super::{
    history::History,
    machine::Machine,
    message,
    mistakes::RingMistake,
    program::{
        Op::{self, Await, Interrupted, Post},
        RingProgram, RingWorld, SITE, Sizes, Stage,
    },
    reader::Reader,
};
use crate::{
    arena::Segment,
    encoding::RecordSite,
    layout::{Clock, Mode, SLOT_FRAMES, ThreadBlock},
    memory::WORD,
    merge::{Merge, Patience},
    ring::Ring,
    sites::SiteTable,
    tracer::{Note, Notes},
};

/// Threads that record events while the reader merges them.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub sizes: Sizes,
    pub mode: Mode,
    pub clock: Clock,
    pub threads: &'static [&'static [Op]],
    /// Number of batches while the threads run.
    pub batches: usize,
    pub preemptions: usize,
}

/// Delays of the memory model, in processor steps.
#[derive(Clone, Copy)]
struct Delays {
    /// Steps after which stores become visible.
    store: u64,
    /// Steps by which the clock may be read late.
    clock: u64,
}

const DELAYS: [Delays; 3] = [
    Delays { store: 0, clock: 0 },
    Delays { store: 3, clock: 30 },
    Delays { store: 100, clock: 30 },
];

/// Number of flags.
const FLAGS: u64 = 2;

const ONE_SLOT: Sizes = Sizes { capacity: 4, frames: SLOT_FRAMES };
const TWO_SLOTS: Sizes = Sizes { capacity: 4, frames: FRAMES };
const TINY: Sizes = Sizes { capacity: 2, frames: SLOT_FRAMES };

/// A record follows from another thread's.
pub const FOLLOWS: Scenario = Scenario {
    sizes: ONE_SLOT,
    mode: Mode::Lossless,
    clock: Clock::Tsc,
    threads: &[&[Post(0)], &[Await(0), Post(1)]],
    batches: 3,
    preemptions: 2,
};

/// A record follows from a signal handler's, which has interrupted another record.
pub const fn interrupted(ops: &'static [&'static [Op]]) -> Scenario {
    Scenario { threads: ops, ..FOLLOWS }
}

/// [`interrupted`] after the order was read.
pub const INTERRUPTED_ORDERED: Scenario =
    interrupted(&[&[Interrupted(Stage::Ordered, &[Post(0)])], &[Await(0)]]);

/// [`interrupted`] after the slot was reserved.
pub const INTERRUPTED_RESERVED: Scenario =
    interrupted(&[&[Interrupted(Stage::Reserved, &[Post(0)])], &[Await(0)]]);

/// [`interrupted`] before the slot is published.
pub const INTERRUPTED_WRITTEN: Scenario =
    interrupted(&[&[Interrupted(Stage::Written, &[Post(0)])], &[Await(0)]]);

/// Records of two slots.
pub const CONTINUED: Scenario = Scenario { sizes: TWO_SLOTS, ..FOLLOWS };

/// A ring is used several times over.
pub const LAPS: Scenario = Scenario {
    sizes: TINY,
    threads: &[&[Post(0), Post(0), Post(0), Post(0)]],
    batches: 5,
    preemptions: 3,
    ..FOLLOWS
};

/// Events are lost when a ring is full, also in a signal handler.
pub const LOSES: Scenario = Scenario {
    sizes: TINY,
    mode: Mode::Drop,
    threads: &[&[Post(0), Post(0), Interrupted(Stage::Reserved, &[Post(1)]), Post(0), Post(0)]],
    batches: 3,
    ..FOLLOWS
};

/// A signal handler fills the ring of the thread that it has interrupted.
pub const FILLED_BY_HANDLER: Scenario = Scenario {
    sizes: TINY,
    threads: &[&[Interrupted(Stage::Reserved, &[Post(0), Post(1)]), Post(0)], &[Await(0)]],
    batches: 3,
    ..FOLLOWS
};

impl Scenario {
    /// The threads with a counter in place of the time stamp counter.
    pub const fn counted(self) -> Self {
        Self { clock: Clock::Counter, ..self }
    }

    /// Executes all interleavings, with a mistake if one is given, and returns their number, or the message of the
    /// first one whose stream lacks a property.
    pub fn check(self, mistake: Option<RingMistake>) -> Result<usize, String> {
        DELAYS.into_iter().map(|delays| self.check_with(delays, mistake)).sum()
    }

    fn check_with(self, delays: Delays, mistake: Option<RingMistake>) -> Result<usize, String> {
        // The model checker's state is that of its thread, and does not survive a panic.
        let checked = thread::spawn(move || {
            let mut model = Builder::new();
            model.max_branches = 10_000;
            model.preemption_bound.get_or_insert(self.preemptions);
            let executed = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&executed);
            model.check(move || {
                counter.fetch_add(1, Relaxed);
                self.run(delays, mistake);
            });
            executed.load(Relaxed)
        });
        checked.join().map_err(|panic| message(&*panic))
    }

    fn run(self, delays: Delays, mistake: Option<RingMistake>) {
        let Self { sizes, mode, .. } = self;
        let threads = self.threads.len();
        let words = (sizes.flag(threads, 0).0 / WORD + FLAGS) as usize;
        let machine = Machine::new(words, threads + 1, delays.store);
        let history = History::default();
        let world =
            Arc::new(RingWorld { machine, history, sizes, threads, clock: self.clock, mistake });
        let notes = Notes::default();
        let mut reader = Reader { world: Arc::clone(&world), cpu: threads, late: delays.clock };
        for thread in 0..threads {
            let segment = self.start(thread, &world);
            let ring = Box::new(Ring::new(segment, mode));
            notes.add(Note::Started { tid: thread as u32, process: 0, ring });
        }
        let programs: Vec<_> = (0..threads)
            .map(|thread| {
                let program = RingProgram { world: Arc::clone(&world), thread };
                loom::thread::spawn(move || program.run(self.threads[thread]))
            })
            .collect();
        let mut sites = SiteTable::default();
        sites.add(SITE, RecordSite { kind: Kind::Init, point: 0 });
        let patience = Patience { plain: Duration::ZERO, nested: Duration::MAX };
        let mut merge = Merge::new(reader.clone(), patience, false);
        let mut stream = Vec::new();
        for _ in 0..self.batches {
            merge.batch(&mut reader, &sites, &notes, &mut stream, usize::MAX);
        }
        for program in programs {
            program.join().unwrap();
        }
        for thread in 0..threads {
            notes.add(Note::Ended { tid: thread as u32 });
        }
        // Later by the clock than all records, however late they read it.
        while merge.batch(&mut reader, &sites, &notes, &mut stream, usize::MAX).records != 0 {}
        world.history.check(&stream, sizes.frames, merge.losses());
    }

    /// Writes the block of a thread. Returns its place.
    fn start(self, thread: usize, world: &RingWorld) -> Segment {
        let Sizes { capacity, .. } = self.sizes;
        let block = self.sizes.block(thread);
        let mut state = world.machine.state();
        for (field, value) in [
            (offset_of!(ThreadBlock, limit), capacity),
            (offset_of!(ThreadBlock, mode), self.mode as u64),
        ] {
            state.store(thread, block.plus(field as u64), value, 0);
        }
        Segment { block, capacity, first: 0 }
    }
}

#[test]
fn no_interleaving_breaks_the_stream() {
    for scenario in [
        FOLLOWS,
        INTERRUPTED_ORDERED,
        INTERRUPTED_RESERVED,
        INTERRUPTED_WRITTEN,
        CONTINUED,
        LAPS,
        LOSES,
        FILLED_BY_HANDLER,
        FOLLOWS.counted(),
        INTERRUPTED_RESERVED.counted(),
        INTERRUPTED_WRITTEN.counted(),
    ] {
        let executed = scenario.check(None).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
        println!("{executed} interleavings of {:?}", scenario.threads);
    }
}
