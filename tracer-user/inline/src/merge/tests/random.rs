//! Random threads, handlers, starts and ends: the stream is a linear extension of the threads' orders and of what
//! follows from what.

use std::collections::HashMap;

use abi::{ExitRecord, ForkRecord};
use proptest::prelude::*;

use super::*;
use crate::testing::Reserved;

/// Step of the process, or of the reader.
#[derive(Clone, Copy, Debug)]
enum MergeStep {
    /// A thread, or a signal handler in it, comes to a probe and reads the order. With `true` it has acquired the flag.
    Begin { thread: usize, acquires: bool, is_long: bool },
    /// A thread goes on with its innermost record: it reserves slots, or publishes and releases the flag.
    Go { thread: usize },
    /// A thread starts another one.
    Fork { thread: usize },
    /// A thread is killed, in the middle of its records or not.
    Kill { thread: usize },
    /// The reader makes a batch of so many records at most.
    Read { most: usize },
}

fn step() -> impl Strategy<Value = MergeStep> {
    let thread = 0..4_usize;
    prop_oneof![
        4 => (thread.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(thread, acquires, is_long)| MergeStep::Begin { thread, acquires, is_long }),
        12 => thread.clone().prop_map(|thread| MergeStep::Go { thread }),
        1 => thread.clone().prop_map(|thread| MergeStep::Fork { thread }),
        1 => thread.prop_map(|thread| MergeStep::Kill { thread }),
        2 => prop_oneof![1..5_usize, Just(usize::MAX)].prop_map(|most| MergeStep::Read { most }),
    ]
}

/// Record that is being made.
struct Pending {
    number: u64,
    order: u64,
    site: u32,
    reserved: Option<Reserved>,
}

struct RandomThread {
    tid: u32,
    mode: Mode,
    writer: usize,
    /// The innermost one last.
    pending: Vec<Pending>,
    /// Numbers of its published records by their slots.
    published: Vec<(u64, u64)>,
    /// The record of its start.
    started: Option<u64>,
    is_killed: bool,
}

struct Model {
    process: MergedProcess,
    mode: Mode,
    clock: u64,
    threads: Vec<RandomThread>,
    /// The latest release.
    flag: u64,
    follows: Vec<(u64, u64)>,
    numbers: u64,
    stream: Vec<Record>,
    lost: u64,
    unpublished: u64,
}

/// The numbers of tracer's records are in a field that the merge leaves alone.
fn number(record: &Record) -> u64 {
    match record {
        Record::Fork(record) => record.pthread,
        Record::Exit(record) => record.status as u64,
        other => number_of(other),
    }
}

impl Model {
    fn new(mode: Mode) -> Self {
        let mut process = process(0);
        let patience = Patience { plain: Duration::ZERO, nested: Duration::MAX };
        process.merge = Merge::new(process.memory.clone(), patience, true);
        let mut model = Self {
            process,
            mode,
            clock: 0,
            threads: Vec::new(),
            flag: 0,
            follows: Vec::new(),
            numbers: 0,
            stream: Vec::new(),
            lost: 0,
            unpublished: 0,
        };
        model.start(None);
        model
    }

    fn new_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn start(&mut self, started: Option<u64>) {
        let tid = self.process.writers.len() as u32 + 1;
        self.process.start(tid, self.mode);
        let writer = self.process.writers.len() - 1;
        self.threads.push(RandomThread {
            tid,
            mode: self.mode,
            writer,
            pending: Vec::new(),
            published: Vec::new(),
            started,
            is_killed: false,
        });
    }

    fn step(&mut self, step: MergeStep) {
        self.clock += 1;
        match step {
            MergeStep::Begin { thread, acquires, is_long } => self.begin(thread, acquires, is_long),
            MergeStep::Go { thread } => self.go(thread),
            MergeStep::Fork { thread } => self.fork(thread),
            MergeStep::Kill { thread } => self.kill(thread),
            MergeStep::Read { most } => self.read(most),
        }
    }

    fn alive(&self, thread: usize) -> bool {
        self.threads.get(thread).is_some_and(|thread| !thread.is_killed)
    }

    fn begin(&mut self, thread: usize, acquires: bool, is_long: bool) {
        if !self.alive(thread) || self.threads[thread].pending.len() == 3 {
            return;
        }
        let number = self.new_number();
        if acquires && self.flag != 0 {
            self.follows.push((self.flag, number));
        }
        let (order, site) = (self.clock, if is_long { LONG } else { SHORT });
        self.threads[thread].pending.push(Pending { number, order, site, reserved: None });
    }

    fn go(&mut self, thread: usize) {
        if !self.alive(thread) {
            return;
        }
        let Self { threads, process, .. } = self;
        let thread = &mut threads[thread];
        let writer = &process.writers[thread.writer];
        let Some(record) = thread.pending.last_mut() else { return };
        let Some(reserved) = record.reserved else {
            record.reserved = Some(writer.reserve(record.site));
            return;
        };
        if writer.has_room(reserved) {
            writer.publish(reserved, record.order, record.number);
            thread.published.push((reserved.first, record.number));
            self.flag = record.number;
        } else if writer.load(offset_of!(ThreadBlock, mode)) == Mode::Drop as u64 {
            writer.lose(reserved);
            self.lost += 1;
        } else {
            return;
        }
        thread.pending.pop();
    }

    fn fork(&mut self, thread: usize) {
        if !self.alive(thread) || self.threads.len() == 4 {
            return;
        }
        // In a system call: not within a probe, but in a handler that has interrupted one.
        let number = self.new_number();
        let parent = &self.threads[thread];
        self.follows.extend(parent.published.iter().map(|&(_, earlier)| (earlier, number)));
        let header = Header { kind: Kind::Fork as u32, tid: parent.tid, ..Header::default() };
        let fork = ForkRecord { header, pthread: number, ..ForkRecord::default() };
        self.process.notes.record(Record::Fork(fork), || self.clock);
        self.start(Some(number));
    }

    fn kill(&mut self, thread: usize) {
        if !self.alive(thread) {
            return;
        }
        let number = self.new_number();
        let killed = &mut self.threads[thread];
        killed.is_killed = true;
        let reserved = killed.pending.iter().filter_map(|record| record.reserved);
        self.unpublished += reserved.map(|reserved| reserved.slots).sum::<u64>();
        self.follows.extend(killed.published.iter().map(|&(_, earlier)| (earlier, number)));
        let header = Header { kind: Kind::Exit as u32, tid: killed.tid, ..Header::default() };
        let exit = ExitRecord { header, status: number as i32, ..ExitRecord::default() };
        self.process.notes.record(Record::Exit(exit), || self.clock);
        self.process.notes.add(Note::Ended { tid: killed.tid });
    }

    fn read(&mut self, most: usize) {
        let records = self.process.batch_of(self.clock, most);
        self.stream.extend(records);
    }

    /// Ends all threads, reads what is left, and compares the stream with what was done.
    fn check(mut self) -> Result<(), TestCaseError> {
        (0..self.threads.len()).for_each(|thread| self.kill(thread));
        self.clock += 1;
        loop {
            let before = self.stream.len();
            self.read(7);
            if self.stream.len() == before {
                break;
            }
        }
        let mut place = HashMap::new();
        for (at, record) in self.stream.iter().enumerate() {
            let again = place.insert(number(record), at);
            prop_assert!(again.is_none(), "{} came twice", number(record));
        }
        let mut count = 2 * self.threads.len() - 1;
        for thread in &mut self.threads {
            thread.published.sort_unstable();
            count += thread.published.len();
            let numbers = thread.published.iter().map(|&(_, number)| number);
            let places: Vec<_> = thread.started.into_iter().chain(numbers).collect();
            for two in places.windows(2) {
                let [a, b] = [two[0], two[1]].map(|number| place.get(&number).copied());
                prop_assert!(
                    a.is_some() && b.is_some(),
                    "{two:?} of {:?} are missing",
                    thread.mode
                );
                prop_assert!(a < b, "{two:?} of a thread are exchanged");
            }
        }
        prop_assert_eq!(self.stream.len(), count);
        for (first, second) in self.follows {
            if let (Some(a), Some(b)) = (place.get(&first), place.get(&second)) {
                prop_assert!(a < b, "{second} follows from {first}");
            }
        }
        let losses = self.process.merge.losses();
        prop_assert_eq!((losses.full, losses.unreadable), (self.lost, 0));
        prop_assert!(losses.unpublished + losses.begun <= self.unpublished, "{:?}", losses);
        prop_assert_eq!(self.process.merge.threads(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn the_stream_is_a_linear_extension(
        steps in proptest::collection::vec(step(), 0..400),
        drops: bool,
    ) {
        let mut model = Model::new(if drops { Mode::Drop } else { Mode::Lossless });
        steps.into_iter().for_each(|step| model.step(step));
        model.check()?;
    }
}
