//! The floor: a pass that only reads every event and accesses the state of its object.

use checker::event::{Event, Op};

/// A cache line, the minimum for the state of an object. (Davida's states of variables take two.)
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct State {
    last: u64,
}

/// States of all objects.
#[derive(Default)]
pub struct Null {
    number: u64,
    variables: Vec<State>,
    locks: Vec<State>,
    threads: Vec<State>,
}

impl Null {
    pub fn events(&mut self, events: &[Event]) {
        for event in events {
            self.number += 1;
            let (table, index) = match event.op {
                Op::Read(x)
                | Op::Write(x)
                | Op::Update(x)
                | Op::CommutingUpdate(x)
                | Op::Alloc(x)
                | Op::Free(x) => (&mut self.variables, x.index()),
                Op::SplitVariable { to, .. } => (&mut self.variables, to.index()),
                Op::Acquire(lock)
                | Op::Release(lock)
                | Op::AcquireShared(lock)
                | Op::ReleaseShared(lock)
                | Op::Reset(lock) => (&mut self.locks, lock.index()),
                _ => (&mut self.threads, event.thread.index()),
            };
            if index >= table.len() {
                table.resize(index + 1, State::default());
            }
            table[index].last ^= self.number;
        }
    }

    /// Returns a sum over all states, so that no part of the pass can be optimised away.
    pub fn sum(&self) -> u64 {
        let tables = [&self.variables, &self.locks, &self.threads];
        tables.into_iter().flatten().map(|state| state.last).fold(0, |sum, last| sum ^ last)
    }
}
