//! Recordings as streams of events for comparison: the events of each thread, and the order in which threads meet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use checker::event::{Event, LocationId, Op, ThreadId};
use checker::format::{Item, Names, ObservedValue, ReadOptions, TraceReader};

/// Part of the name of a lock that Rust's standard library takes where threads start and end, in an order that no
/// program can force.
const OF_THE_RUNTIME: &str = "stack_overflow::thread_info::LOCK";

/// Number of a thread, in the order in which their parents have made them.
type Thread = usize;

/// Event of a thread, with names in place of numbers that another recording has differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Operation, as its name.
    pub operation: &'static str,
    /// Object, as its space and its number in the recording.
    object: Option<(char, u32)>,
    /// Name and size of the object or region, or the number of the thread.
    pub what: String,
    /// Function and line.
    pub place: String,
    /// Value before and after, if they are known.
    pub value: Option<(Option<u64>, u64)>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.operation, self.what, self.place)
    }
}

/// Numbers of variables, another one after the memory of each was freed: ids are used again then, and have the name and
/// size of the last variable.
#[derive(Default)]
struct Lives {
    numbers: BTreeMap<u32, u32>,
    next: u32,
    freed: BTreeSet<u32>,
}

impl Lives {
    fn number(&mut self, step: &mut Step) {
        let Some(('v', id)) = step.object else { return };
        let number = *self.numbers.entry(id).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        if step.operation == "free" {
            self.numbers.remove(&id);
            self.freed.insert(number);
        }
        step.object = Some(('v', number));
    }

    /// Removes the name of a variable that was freed.
    fn forget_name(&self, step: &mut Step) {
        if step.object.is_some_and(|(space, number)| space == 'v' && self.freed.contains(&number)) {
            "freed variable".clone_into(&mut step.what);
        }
    }
}

/// Recording of a run.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Events of each thread, in its order.
    pub threads: Vec<Vec<Step>>,
    /// All events in their order, as the thread and the number of its event.
    order: Vec<(Thread, usize)>,
}

impl Stream {
    /// Reads a recording.
    ///
    /// # Panics
    /// When it is none, or has a gap.
    #[must_use]
    pub fn from_file(path: &Path) -> Self {
        let trace = std::fs::read(path).expect("the recording");
        let reader = TraceReader::from_bytes(&trace, ReadOptions::new("t.avt"));
        let mut reader = reader.expect("a recording");
        let mut stream = Self::default();
        let mut threads = BTreeMap::new();
        let mut lives = Lives::default();
        let mut steps = Vec::new();
        let mut before = 0_u64;
        while let Some(item) = reader.next_item().expect("a whole recording") {
            let Item::Events(batch) = item else { panic!("a gap in {}", path.display()) };
            let values: BTreeMap<_, _> =
                batch.values.iter().map(|&value| (value.event, value)).collect();
            for (number, event) in (before..).zip(batch.events) {
                // Knowledge about memory, and no action of a thread.
                if matches!(event.op, Op::SplitVariable { .. } | Op::Rest(_) | Op::Resume(_)) {
                    continue;
                }
                let thread = stream.thread(&mut threads, event.thread);
                if let Op::Fork(child) = event.op {
                    stream.thread(&mut threads, child);
                }
                let mut step = step(batch.names, &threads, event, values.get(&number));
                if step.what.contains(OF_THE_RUNTIME) {
                    continue;
                }
                lives.number(&mut step);
                steps.push((thread, step));
            }
            before += batch.events.len() as u64;
        }
        steps.iter_mut().for_each(|(_, step)| lives.forget_name(step));
        forget_unshared(&mut steps);
        for (thread, step) in steps {
            stream.order.push((thread, stream.threads[thread].len()));
            stream.threads[thread].push(step);
        }
        stream.sort_reads();
        stream
    }

    /// Sorts what a thread reads at one place, with nothing else in between: a back end reports the reads of a straight
    /// line where its probes are.
    fn sort_reads(&mut self) {
        let mut sorted: Vec<Vec<usize>> = Vec::new();
        for steps in &mut self.threads {
            let mut numbers: Vec<usize> = (0..steps.len()).collect();
            let together = |&one: &usize, &next: &usize| {
                let (one, next) = (&steps[one], &steps[next]);
                [one, next].iter().all(|step| step.operation == "read") && one.place == next.place
            };
            for reads in numbers.chunk_by_mut(together) {
                reads.sort_by_key(|&number| &steps[number].what);
            }
            *steps = numbers.iter().map(|&number| steps[number].clone()).collect();
            let mut places = vec![0; numbers.len()];
            for (place, number) in numbers.into_iter().enumerate() {
                places[number] = place;
            }
            sorted.push(places);
        }
        for (thread, number) in &mut self.order {
            *number = sorted[*thread][*number];
        }
    }

    fn thread(&mut self, numbers: &mut BTreeMap<ThreadId, Thread>, id: ThreadId) -> Thread {
        *numbers.entry(id).or_insert_with(|| {
            self.threads.push(Vec::new());
            self.threads.len() - 1
        })
    }

    /// Returns how another recording differs: first what threads do, then the order in which they meet on an object.
    /// Nothing if it has the same events, in an order that nothing can distinguish from this one.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.threads.len() != other.threads.len() {
            found.push(format!("{} threads, not {}", other.threads.len(), self.threads.len()));
        }
        // Objects of this recording and of the other, which are the same.
        let (mut there, mut here) = (BTreeMap::new(), BTreeMap::new());
        for (thread, (own, others)) in self.threads.iter().zip(&other.threads).enumerate() {
            let same = common(own, others);
            let mut at = (0, 0);
            for (mine, theirs) in same.into_iter().chain([(own.len(), others.len())]) {
                let missing = own[at.0..mine].iter().map(|step| format!("{thread}: - {step}"));
                let added = others[at.1..theirs].iter().map(|step| format!("{thread}: + {step}"));
                found.extend(missing.chain(added));
                at = (mine + 1, theirs + 1);
                let (Some(one), Some(two)) = (own.get(mine), others.get(theirs)) else { continue };
                if let (Some(before), Some(after)) = (one.value, two.value)
                    && before != after
                {
                    found.push(format!("{thread}: {one}: {before:?}, not {after:?}"));
                }
                if let (Some(mine), Some(theirs)) = (one.object, two.object) {
                    let is_same = *there.entry(mine).or_insert(theirs) == theirs
                        && *here.entry(theirs).or_insert(mine) == mine;
                    if !is_same {
                        found.push(format!("{thread}: {one}: another object"));
                    }
                }
            }
        }
        if found.is_empty() {
            let (own, others) = (self.meetings(), other.meetings());
            for (object, meetings) in own {
                let theirs = object_of(&there, object).and_then(|object| others.get(&object));
                if theirs != Some(&meetings) {
                    found.push(format!("order on {object:?}: {meetings:?}, not {theirs:?}"));
                }
            }
        }
        found
    }

    /// Returns for each object the events on it, as far as their order counts: what is in one list may have happened
    /// in any order, and everything in it before the next list. Objects are locks, variables and threads.
    fn meetings(&self) -> BTreeMap<(char, u32), Vec<Unordered>> {
        let mut objects: BTreeMap<_, Vec<(bool, Unordered)>> = BTreeMap::new();
        for &(thread, number) in &self.order {
            let step = &self.threads[thread][number];
            let Some(object) = step.object else { continue };
            let commutes = matches!(step.operation, "read" | "add" | "acquire shared");
            let meetings = objects.entry(object).or_default();
            match meetings.last_mut() {
                Some((last, events)) if *last && commutes => events.push((thread, number)),
                _ => meetings.push((commutes, vec![(thread, number)])),
            }
        }
        let sorted = |(_, mut events): (bool, Vec<_>)| {
            events.sort_unstable();
            events
        };
        let all = objects.into_iter();
        all.map(|(object, lists)| (object, lists.into_iter().map(sorted).collect())).collect()
    }
}

/// Removes the accesses to variables without a name that one thread alone accesses: the inline back end takes numbers
/// on a stack that look like pointers for addresses of shared memory.
fn forget_unshared(steps: &mut Vec<(Thread, Step)>) {
    let mut users: BTreeMap<(char, u32), BTreeSet<Thread>> = BTreeMap::new();
    for (thread, step) in &*steps {
        if let Some(object) = step.object {
            users.entry(object).or_default().insert(*thread);
        }
    }
    steps.retain(|(_, step)| {
        let unnamed = step.object.filter(|_| step.what.starts_with("Variable  of "));
        unnamed.is_none_or(|object| users[&object].len() > 1)
    });
}

/// Events in any order: their threads, and their numbers there.
type Unordered = Vec<(Thread, usize)>;

fn object_of(
    others: &BTreeMap<(char, u32), (char, u32)>,
    object: (char, u32),
) -> Option<(char, u32)> {
    others.get(&object).copied()
}

/// Returns the longest common part of two lists of steps, as the numbers of each of its steps in both.
fn common(one: &[Step], two: &[Step]) -> Vec<(usize, usize)> {
    let is_same = |first: &Step, second: &Step| {
        (first.operation, &first.what, &first.place)
            == (second.operation, &second.what, &second.place)
    };
    // Length of the longest common part from here on, by both numbers.
    let mut lengths = vec![vec![0_u32; two.len() + 1]; one.len() + 1];
    for first in (0..one.len()).rev() {
        for second in (0..two.len()).rev() {
            lengths[first][second] = if is_same(&one[first], &two[second]) {
                lengths[first + 1][second + 1] + 1
            } else {
                lengths[first + 1][second].max(lengths[first][second + 1])
            };
        }
    }
    let (mut found, mut first, mut second) = (Vec::new(), 0, 0);
    while first < one.len() && second < two.len() {
        if is_same(&one[first], &two[second]) {
            found.push((first, second));
            (first, second) = (first + 1, second + 1);
        } else if lengths[first + 1][second] >= lengths[first][second + 1] {
            first += 1;
        } else {
            second += 1;
        }
    }
    found
}

fn step(
    names: &Names,
    threads: &BTreeMap<ThreadId, Thread>,
    event: &Event,
    value: Option<&ObservedValue>,
) -> Step {
    let number = |thread: &ThreadId| threads.get(thread).map_or_else(String::new, usize::to_string);
    let region = |id| names.region_label(id).into_owned();
    let (operation, object, what) = match event.op {
        Op::Begin(id) => ("begin", None, region(id)),
        Op::End(id) => ("end", None, id.map(region).unwrap_or_default()),
        Op::Follow(id) => ("follow", None, id.map(region).unwrap_or_default()),
        Op::Read(id) => ("read", Some(('v', id.0)), variable(names, id)),
        Op::Write(id) => ("write", Some(('v', id.0)), variable(names, id)),
        Op::Update(id) => ("update", Some(('v', id.0)), variable(names, id)),
        Op::CommutingUpdate(id) => ("add", Some(('v', id.0)), variable(names, id)),
        Op::Alloc(id) => ("alloc", Some(('v', id.0)), variable(names, id)),
        Op::Free(id) => ("free", Some(('v', id.0)), variable(names, id)),
        Op::Acquire(id) => ("acquire", Some(('l', id.0)), lock(names, id)),
        Op::Release(id) => ("release", Some(('l', id.0)), lock(names, id)),
        Op::AcquireShared(id) => ("acquire shared", Some(('l', id.0)), lock(names, id)),
        Op::ReleaseShared(id) => ("release shared", Some(('l', id.0)), lock(names, id)),
        Op::Reset(id) => ("reset", Some(('l', id.0)), lock(names, id)),
        Op::Signal(id) => ("signal", Some(('s', id.0)), sync(names, id)),
        Op::Wait(id) => ("wait", Some(('s', id.0)), sync(names, id)),
        Op::Arrive(id) => ("arrive", Some(('s', id.0)), sync(names, id)),
        Op::Depart(id) => ("depart", Some(('s', id.0)), sync(names, id)),
        Op::Fork(thread) => ("fork", Some(('t', thread.0)), number(&thread)),
        Op::Join(thread) => ("join", Some(('t', thread.0)), number(&thread)),
        Op::Exit => ("exit", Some(('t', event.thread.0)), number(&event.thread)),
        other => panic!("{other:?} is no operation of a thread"),
    };
    let value = value.map(|value| (value.before, value.after));
    Step { operation, object, what, place: place(names, event.location), value }
}

fn variable(names: &Names, id: checker::event::VarId) -> String {
    described(names.variable(id))
}

fn lock(names: &Names, id: checker::event::LockId) -> String {
    described(names.lock(id))
}

fn sync(names: &Names, id: checker::event::SyncId) -> String {
    described(names.sync(id))
}

/// Kind, name and size of an object. An address counts as no name.
fn described(object: Option<checker::format::Object>) -> String {
    let Some(object) = object else { return "?".to_owned() };
    let name = object.name.filter(|name| !name.contains("0x")).unwrap_or_default();
    let size = object.size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
    format!("{:?} {name}{size}", object.kind)
}

/// Functions and lines of a place, the innermost first.
fn place(names: &Names, location: LocationId) -> String {
    let frames = names.frames(location).take(1).map(|frame| {
        let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}", frame.function.unwrap_or("?"))
    });
    frames.collect::<Vec<_>>().join(" < ")
}
