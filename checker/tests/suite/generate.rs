//! Random traces. Well-formed ones come from a list of choices, of which invalid ones are left out, so that
//! shrinking the list shrinks the trace.

use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Barriers and other synchronisation objects do not share ids.
const BARRIER: u32 = 2;

#[derive(Default)]
struct ThreadState {
    open: Vec<RegionId>,
    inside: bool,
    acted: bool,
    forked: bool,
    ended: bool,
    joined: bool,
}

/// A machine that only lets well-formed events through.
#[derive(Default)]
struct Machine {
    /// Depth of nested regions.
    depth: usize,
    threads: Vec<ThreadState>,
    /// Holders of each lock, exclusive and shared, with depths.
    held: BTreeMap<(u32, u32, bool), u32>,
}

impl Machine {
    fn allows(&self, thread: u32, op: Op) -> bool {
        let state = &self.threads[thread as usize];
        if state.ended || state.joined {
            return false;
        }
        let others = |lock: LockId, shared: bool| {
            self.held.keys().any(|&(l, t, s)| l == lock.0 && s == shared && t != thread)
        };
        let mine = |lock: LockId, shared: bool| self.held.contains_key(&(lock.0, thread, shared));
        match op {
            Op::Begin(_) => state.open.len() < self.depth,
            Op::End(Some(region)) => state.open.last() == Some(&region),
            Op::End(None) => !state.open.is_empty(),
            Op::Acquire(lock) => !others(lock, false) && !others(lock, true) && !mine(lock, true),
            Op::AcquireShared(lock) => !others(lock, false) && !mine(lock, false),
            Op::Release(lock) => mine(lock, false),
            Op::ReleaseShared(lock) => mine(lock, true),
            Op::Fork(child) => {
                let state = &self.threads[child.index()];
                child.0 != thread && !state.acted && !state.forked && !state.ended && !state.joined
            }
            Op::Join(child) => child.0 != thread && !self.threads[child.index()].joined,
            Op::Arrive(_) => !state.inside,
            Op::Depart(_) => state.inside,
            _ => true,
        }
    }

    /// Replaces an operation that closes something by one that closes something of the thread's, if there
    /// is any.
    fn fit(&self, thread: u32, op: Op) -> Op {
        let held = |shared: bool, like: LockId| {
            let mine = |&&(_, t, s): &&(u32, u32, bool)| t == thread && s == shared;
            let count = self.held.keys().filter(mine).count().max(1);
            let hold = self.held.keys().filter(mine).nth(like.index() % count);
            hold.map_or(like, |&(lock, _, _)| LockId(lock))
        };
        match op {
            Op::Release(lock) => Op::Release(held(false, lock)),
            Op::ReleaseShared(lock) => Op::ReleaseShared(held(true, lock)),
            Op::End(Some(_)) => Op::End(self.threads[thread as usize].open.last().copied()),
            _ => op,
        }
    }

    fn apply(&mut self, thread: u32, op: Op) {
        let state = &mut self.threads[thread as usize];
        state.acted = true;
        match op {
            Op::Begin(region) => state.open.push(region),
            Op::End(_) => drop(state.open.pop()),
            Op::Acquire(lock) => *self.held.entry((lock.0, thread, false)).or_default() += 1,
            Op::AcquireShared(lock) => *self.held.entry((lock.0, thread, true)).or_default() += 1,
            Op::Release(lock) => self.release(lock.0, thread, false),
            Op::ReleaseShared(lock) => self.release(lock.0, thread, true),
            Op::Fork(child) => self.threads[child.index()].forked = true,
            Op::Join(child) => self.threads[child.index()].joined = true,
            Op::Exit => state.ended = true,
            Op::Reset(lock) => self.held.retain(|&(held, _, _), _| held != lock.0),
            Op::Arrive(_) => state.inside = true,
            Op::Depart(_) => state.inside = false,
            _ => {}
        }
    }

    /// Returns the thread in a seat; another one if the thread there has ended.
    fn seated(&mut self, seats: &mut [u32], seat: usize) -> u32 {
        let state = &self.threads[seats[seat] as usize];
        if state.ended || state.joined {
            seats[seat] = self.threads.len() as u32;
            self.threads.push(ThreadState::default());
        }
        seats[seat]
    }

    fn release(&mut self, lock: u32, thread: u32, is_shared: bool) {
        let hold = (lock, thread, is_shared);
        let depth = self.held.get_mut(&hold).expect("allowed");
        *depth -= 1;
        if *depth == 0 {
            self.held.remove(&hold);
        }
    }
}

/// Number of objects of each sort.
#[derive(Clone, Copy, Debug)]
struct Objects {
    threads: u32,
    variables: u32,
    locks: u32,
}

/// Returns the operation of a kind; `object` selects the object.
fn op(kind: usize, object: u32, objects: Objects) -> Op {
    let variable = VarId(object % objects.variables);
    let lock = LockId(object % objects.locks);
    let threads = objects.threads;
    match kind {
        0 => Op::Begin(RegionId(object % 3)),
        1 => Op::End(None),
        2 => Op::End(Some(RegionId(object % 3))),
        3 => Op::Read(variable),
        4 => Op::Write(variable),
        5 => Op::Update(variable),
        6 => Op::Acquire(lock),
        7 => Op::Release(lock),
        8 => Op::AcquireShared(lock),
        9 => Op::ReleaseShared(lock),
        10 => Op::Signal(SyncId(object % BARRIER)),
        11 => Op::Wait(SyncId(object % BARRIER)),
        12 => Op::Arrive(SyncId(BARRIER)),
        13 => Op::Depart(SyncId(BARRIER)),
        14 => Op::Fork(ThreadId(object % threads)),
        15 => Op::Join(ThreadId(object % threads)),
        16 => Op::Alloc(variable),
        17 => Op::Free(variable),
        18 => Op::Reset(lock),
        19 => {
            let to = VarId(object / objects.variables % objects.variables);
            Op::SplitVariable { from: variable, to }
        }
        20 => Op::CommutingUpdate(variable),
        _ => Op::Exit,
    }
}

const KINDS: usize = 22;
const SPLIT: usize = 19;
const COMMUTING_UPDATE: usize = 20;
const EXIT: usize = 21;

/// Generates the weight of each kind, and the length of the trace; most traces are without some kinds.
fn weights(max_events: usize) -> impl Strategy<Value = ([u8; KINDS], usize)> {
    // A few regions that touch several variables: the likeliest to form cycles that no single event path follows.
    // A long trace nearly always has a cycle that an event path does follow.
    let mut plain = [0; KINDS];
    plain[..5].copy_from_slice(&[4, 2, 0, 5, 5]);
    let mut counters = [0; KINDS];
    counters[..5].copy_from_slice(&[4, 2, 0, 6, 1]);
    counters[COMMUTING_UPDATE] = 8;
    (counters[SPLIT], counters[EXIT]) = (1, 1);
    prop_oneof![
        2 => (mixed_weights(), Just(max_events)),
        1 => (Just(plain), 8..=max_events / 3),
        1 => (Just(counters), 8..=max_events),
    ]
}

fn mixed_weights() -> impl Strategy<Value = [u8; KINDS]> {
    let weight = |most: u8| prop_oneof![1 => Just(0), 3 => 1..=most];
    let regions = (1..=8_u8, 1..=4_u8, 0..=2_u8);
    let accesses = (weight(16), weight(16), weight(4), weight(12));
    let syncs = (weight(12), weight(6), weight(6), weight(4));
    let rare = (0..=2_u8, 0..=1_u8);
    (regions, accesses, syncs, rare).prop_map(|(regions, accesses, syncs, (thread, memory))| {
        let (begin, end, named_end) = regions;
        let (read, write, update, commuting) = accesses;
        let (lock, shared, signal, barrier) = syncs;
        [
            begin, end, named_end, read, write, update, lock, lock, shared, shared, signal, signal,
            barrier, barrier, thread, thread, memory, memory, memory, memory, commuting, thread,
        ]
    })
}

/// Returns the kind at a place of the line on which each kind is as long as its weight.
fn kind(weights: &[u8], place: prop::sample::Index) -> usize {
    let mut place = place.index(weights.iter().map(|&weight| usize::from(weight)).sum());
    for (kind, &weight) in weights.iter().enumerate() {
        match place.checked_sub(weight.into()) {
            Some(rest) => place = rest,
            None => return kind,
        }
    }
    0
}

/// Generates a well-formed trace. Each event has a location of its own.
///
/// The `crowd` is a number of further threads that each open a region at the start and do nothing else.
pub fn well_formed(max_events: usize) -> impl Strategy<Value = Vec<Event>> {
    let crowd = prop_oneof![14 => Just(0_u32), 1 => 60..70_u32, 1 => Just(130_u32)];
    let objects = (2..=8_u32, 1..=6_u32, 1..=3_u32);
    let objects =
        objects.prop_map(|(threads, variables, locks)| Objects { threads, variables, locks });
    let choice = (0..8_u32, any::<prop::sample::Index>(), any::<u8>());
    let choices = prop::collection::vec(choice, 0..max_events);
    let shape = (objects, 1..=4_usize, crowd, weights(max_events));
    (shape, choices).prop_map(|((objects, depth, crowd, (weights, length)), mut choices)| {
        choices.truncate(length);
        let threads = objects.threads;
        let mut machine = Machine { depth, ..Machine::default() };
        machine.threads.resize_with((threads + crowd) as usize, ThreadState::default);
        let mut seats: Vec<u32> = (0..threads + crowd).collect();
        let idle = (threads..threads + crowd).map(|t| (t, Op::Begin(RegionId(0))));
        let ops = idle.chain(choices.into_iter().map(|(thread, place, object)| {
            (thread % threads, op(kind(&weights, place), object.into(), objects))
        }));
        let mut events: Vec<Event> = Vec::new();
        for (seat, op) in ops {
            let thread = machine.seated(&mut seats, seat as usize);
            // The operations on threads name seats: a fork wants a thread that can still act.
            let op = match op {
                Op::Fork(child) => Op::Fork(ThreadId(machine.seated(&mut seats, child.index()))),
                Op::Join(child) => Op::Join(ThreadId(seats[child.index()])),
                op => machine.fit(thread, op),
            };
            if machine.allows(thread, op) {
                machine.apply(thread, op);
                let location = LocationId(events.len() as u32);
                events.push(Event { thread: ThreadId(thread), op, location });
            }
        }
        events
    })
}

/// Generates events that need not fit together.
pub fn chaos(max_events: usize) -> impl Strategy<Value = Vec<Event>> {
    let choice = (0..6_u32, 0..KINDS, any::<u8>(), 0..4_u32);
    prop::collection::vec(choice, 0..max_events).prop_map(|choices| {
        let event = |(thread, kind, object, location): (u32, usize, u8, u32)| Event {
            thread: ThreadId(thread),
            op: op(kind, object.into(), Objects { threads: 6, variables: 2, locks: 2 }),
            location: LocationId(location),
        };
        choices.into_iter().map(event).collect()
    })
}

/// Generates many threads of a few events each, four at a time. Each event has a location of its own.
pub fn short_lived(max_events: usize) -> impl Strategy<Value = Vec<Event>> {
    let choice = (0..4_usize, 0..7_u32, 0..4_u32);
    prop::collection::vec(choice, 0..max_events).prop_map(|choices| {
        let mut seats = [0, 1, 2, 3];
        let mut next = 4;
        let mut events: Vec<Event> = Vec::new();
        for (seat, kind, object) in choices {
            let thread = ThreadId(seats[seat]);
            let op = match kind {
                0 => Op::Begin(RegionId(object)),
                1 | 2 => Op::Read(VarId(object)),
                3 => Op::Write(VarId(object)),
                4 => Op::Signal(SyncId(object)),
                5 => Op::CommutingUpdate(VarId(object)),
                _ => Op::Exit,
            };
            if op == Op::Exit {
                seats[seat] = next;
                next += 1;
            }
            events.push(Event { thread, op, location: LocationId(events.len() as u32) });
        }
        events
    })
}

/// Generates four threads that are nearly always in a region. Each write is to a variable of its own, and
/// each read or commuting update is of any of them: the only order between two transactions is that one has
/// read from the other, at once or much later, so that a cycle can be long. Each event has a location of its
/// own.
pub fn long_ways(max_events: usize) -> impl Strategy<Value = Vec<Event>> {
    let choice = (0..4_u32, 0..10_u32, any::<prop::sample::Index>());
    let choices = prop::collection::vec(choice, 0..max_events);
    choices.prop_map(|choices| {
        let mut inside = [false; 4];
        let mut written = 0;
        let mut events: Vec<Event> = Vec::new();
        for (thread, kind, which) in choices {
            let inside = &mut inside[thread as usize];
            let op = match kind {
                _ if !*inside => Op::Begin(RegionId(thread)),
                0 | 1 => Op::End(None),
                2..6 if written > 0 => Op::Read(VarId(which.index(written) as u32)),
                6 if written > 0 => Op::CommutingUpdate(VarId(which.index(written) as u32)),
                _ => {
                    written += 1;
                    Op::Write(VarId(written as u32 - 1))
                }
            };
            *inside = op != Op::End(None);
            let location = LocationId(events.len() as u32);
            events.push(Event { thread: ThreadId(thread), op, location });
        }
        events
    })
}
