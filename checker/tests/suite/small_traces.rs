//! Random small traces whose interleavings can be enumerated: a few threads with a few accesses and sections each. They
//! come from a number, which a failure names.

use crate::random::Random;
use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use std::collections::BTreeMap;

/// Form of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub threads: usize,
    pub units: usize,
    pub accesses: usize,
    pub variables: usize,
    pub locks: usize,
    /// Sections outside of regions, and sections that are not nested or that contain regions.
    pub is_wild: bool,
    /// Forks, joins, signals and barriers.
    pub has_order: bool,
    /// Every unit is a region.
    pub is_transactional: bool,
}

/// Returns a trace; `None` if it came to a standstill.
pub fn trace(seed: u64, shape: Shape) -> Option<Vec<Event>> {
    let mut random = Random::new(seed);
    let mut programs: Vec<Vec<Op>> =
        (0..shape.threads).map(|thread| program(thread, shape, &mut random)).collect();
    if shape.has_order {
        order(&mut programs, &mut random);
    }
    schedule(&programs, &mut random)
}

fn program(thread: usize, shape: Shape, random: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for unit in 0..1 + random.below(shape.units) {
        let around =
            (shape.is_wild && shape.locks > 0 && random.one_in(4)).then(|| lock(shape, random));
        ops.extend(around.map(Op::Acquire));
        let is_region = shape.is_transactional || !random.one_in(4);
        if is_region {
            ops.push(Op::Begin(RegionId((thread * 8 + unit) as u32)));
        }
        let mut left = 1 + random.below(shape.accesses);
        let has_sections = is_region || shape.is_wild;
        let mut held: Vec<LockId> = around.into_iter().collect();
        body(shape, random, has_sections, &mut left, &mut held, &mut ops);
        if is_region {
            ops.push(Op::End(None));
        }
        ops.extend(around.map(Op::Release));
        if shape.is_wild && random.one_in(3) {
            unnest(&mut ops, random);
        }
    }
    ops
}

fn lock(shape: Shape, random: &mut Random) -> LockId {
    LockId(random.below(shape.locks) as u32)
}

fn body(
    shape: Shape,
    random: &mut Random,
    has_sections: bool,
    left: &mut usize,
    held: &mut Vec<LockId>,
    ops: &mut Vec<Op>,
) {
    while *left > 0 {
        let wanted =
            (shape.locks > 0 && has_sections && random.one_in(2)).then(|| lock(shape, random));
        match wanted.filter(|lock| !held.contains(lock)) {
            Some(lock) => {
                let is_shared = random.one_in(5);
                ops.push(if is_shared { Op::AcquireShared(lock) } else { Op::Acquire(lock) });
                held.push(lock);
                let mut inside = 1 + random.below(*left);
                *left -= inside;
                body(shape, random, has_sections, &mut inside, held, ops);
                held.pop();
                ops.push(if is_shared { Op::ReleaseShared(lock) } else { Op::Release(lock) });
            }
            None => {
                let variable = VarId(random.below(shape.variables) as u32);
                ops.push(match random.below(7) {
                    0..3 => Op::Read(variable),
                    3..6 => Op::Write(variable),
                    _ => Op::Update(variable),
                });
                *left -= 1;
            }
        }
    }
}

/// Exchanges two neighbouring releases, so that sections overlap.
fn unnest(ops: &mut [Op], random: &mut Random) {
    let is_release = |op: &Op| matches!(op, Op::Release(_) | Op::ReleaseShared(_));
    let pairs: Vec<usize> = (1..ops.len())
        .filter(|&index| is_release(&ops[index - 1]) && is_release(&ops[index]))
        .collect();
    if !pairs.is_empty() {
        let index = pairs[random.below(pairs.len())];
        ops.swap(index - 1, index);
    }
}

/// Adds a fork, a join, a signal with its wait, or a barrier.
fn order(programs: &mut [Vec<Op>], random: &mut Random) {
    let last = programs.len() - 1;
    let place = |ops: &[Op], random: &mut Random| random.below(ops.len() + 1);
    match random.below(4) {
        0 => {
            let at = place(&programs[0], random);
            programs[0].insert(at, Op::Fork(ThreadId(last as u32)));
        }
        1 => {
            let at = place(&programs[0], random);
            programs[0].insert(at, Op::Join(ThreadId(last as u32)));
        }
        2 => {
            let at = place(&programs[0], random);
            programs[0].insert(at, Op::Signal(SyncId(0)));
            let at = place(&programs[last], random);
            programs[last].insert(at, Op::Wait(SyncId(0)));
        }
        _ => {
            for thread in [0, last] {
                let at = place(&programs[thread], random);
                programs[thread].insert(at, Op::Depart(SyncId(1)));
                programs[thread].insert(at, Op::Arrive(SyncId(1)));
            }
        }
    }
}

fn schedule(programs: &[Vec<Op>], random: &mut Random) -> Option<Vec<Event>> {
    let mut next = vec![0; programs.len()];
    let mut held: BTreeMap<(u32, usize), bool> = BTreeMap::new();
    let mut events: Vec<Event> = Vec::new();
    let total: usize = programs.iter().map(Vec::len).sum();
    // Threads run for a while: otherwise most traces would show each bug by themselves.
    let mut thread = random.below(programs.len());
    let mut refused = 0;
    while events.len() < total {
        if random.one_in(4) || refused > 0 {
            thread = random.below(programs.len());
        }
        let op = programs[thread].get(next[thread]).copied();
        let is_free = |lock: LockId, is_shared: bool| {
            let keeps = |(&(other, by), &with): (&(u32, usize), &bool)| {
                other == lock.0 && by != thread && !(is_shared && with)
            };
            !held.iter().any(keeps)
        };
        let is_done = |thread: usize| next[thread] == programs[thread].len();
        let is_forked = |ops: &Vec<Op>| ops.contains(&Op::Fork(ThreadId(thread as u32)));
        let forker = programs.iter().position(is_forked);
        let is_started = next[thread] > 0
            || forker.is_none_or(|by| {
                programs[by][..next[by]].contains(&Op::Fork(ThreadId(thread as u32)))
            });
        let has = |op: Op| events.iter().filter(|event| event.op == op).count();
        let is_enabled = is_started
            && match op {
                None => false,
                Some(Op::Acquire(lock)) => is_free(lock, false),
                Some(Op::AcquireShared(lock)) => is_free(lock, true),
                Some(Op::Join(child)) => is_done(child.index()),
                Some(Op::Wait(object)) => has(Op::Signal(object)) > 0,
                Some(Op::Depart(object)) => has(Op::Arrive(object)) == 2,
                Some(_) => true,
            };
        if !is_enabled {
            refused += 1;
            if refused > 200 {
                return None;
            }
            continue;
        }
        refused = 0;
        let op = op?;
        match op {
            Op::Acquire(lock) => drop(held.insert((lock.0, thread), false)),
            Op::AcquireShared(lock) => drop(held.insert((lock.0, thread), true)),
            Op::Release(lock) | Op::ReleaseShared(lock) => drop(held.remove(&(lock.0, thread))),
            _ => {}
        }
        let location = LocationId(events.len() as u32);
        events.push(Event { thread: ThreadId(thread as u32), op, location });
        next[thread] += 1;
    }
    Some(events)
}
