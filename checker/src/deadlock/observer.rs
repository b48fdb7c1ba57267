//! Observation of lock orders: events in, potential deadlocks out.

use super::cycles::{self, Edge, Request};
use super::{Deadlocks, HeldLock};
use crate::event::{Event, EventNumber, LockId, Op, RegionId, ThreadId};
use crate::must_order::{MustOrder, orders};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Limit of acquisitions while other locks are held that are stored, the same of one thread once.
const MAX_EDGES: usize = 1 << 16;

/// Observes the order in which threads acquire locks. Takes any events: an event that does not fit is left out.
///
/// Memory: the state of threads and locks, and 65,536 different edges between locks.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    now: EventNumber,
    order: MustOrder,
    threads: FxHashMap<ThreadId, Thread>,
    /// Number of the lock that each id stands for now.
    lives: FxHashMap<LockId, u32>,
    next_life: u32,
    edges: Vec<Edge>,
    known: FxHashSet<Key>,
    is_incomplete: bool,
}

/// Identity of an edge: thread and segment, the request, and the holds with their places.
type Key = (ThreadId, u32, Request, Box<[(u32, HeldLock)]>);

#[derive(Clone, Debug, Default)]
struct Thread {
    /// Number of events so far that order it with others.
    segment: u32,
    open: Vec<RegionId>,
    held: Vec<(u32, HeldLock, u32)>,
}

impl Observer {
    /// Takes the next event.
    pub fn event(&mut self, event: &Event) {
        let now = self.now;
        self.now += 1;
        if orders(event.op) {
            self.order.event(event, now);
            self.threads.entry(event.thread).or_default().segment += 1;
        }
        match event.op {
            Op::Acquire(lock) => self.acquire(event, lock, false),
            Op::AcquireShared(lock) => self.acquire(event, lock, true),
            Op::Release(lock) => self.release(event.thread, lock, false),
            Op::ReleaseShared(lock) => self.release(event.thread, lock, true),
            Op::Begin(region) => {
                self.threads.entry(event.thread).or_default().open.push(region);
            }
            Op::End(named) => {
                let open = &mut self.threads.entry(event.thread).or_default().open;
                let is_it = |open: &RegionId| named.is_none_or(|named| named == *open);
                let index = open.iter().rposition(is_it);
                open.truncate(index.unwrap_or(open.len()));
            }
            Op::Reset(lock) => {
                self.lives.remove(&lock);
                for thread in self.threads.values_mut() {
                    thread.held.retain(|(_, held, _)| held.lock != lock);
                }
            }
            Op::Join(ended) => drop(self.threads.remove(&ended)),
            Op::Exit => drop(self.threads.remove(&event.thread)),
            _ => {}
        }
    }

    /// Notes that events were lost: regions and locks held are forgotten.
    pub fn gap(&mut self) {
        for thread in self.threads.values_mut() {
            thread.open.clear();
            thread.held.clear();
        }
    }

    /// Returns the potential deadlocks so far.
    #[must_use]
    pub fn deadlocks(&self) -> Deadlocks {
        let mut found = cycles::deadlocks(&self.edges);
        found.is_incomplete |= self.is_incomplete;
        found
    }

    fn acquire(&mut self, event: &Event, lock: LockId, is_shared: bool) {
        let next = &mut self.next_life;
        let life = *self.lives.entry(lock).or_insert_with(|| {
            *next += 1;
            *next
        });
        let thread = self.threads.entry(event.thread).or_default();
        let is_it = |(held, hold, _): &&mut (u32, HeldLock, u32)| {
            *held == life && hold.is_shared == is_shared
        };
        if let Some((_, _, depth)) = thread.held.iter_mut().find(is_it) {
            *depth += 1;
            return;
        }
        let hold = HeldLock { lock, is_shared, location: event.location };
        if !thread.held.is_empty() {
            let holds: Vec<_> = thread.held.iter().map(|&(life, hold, _)| (life, hold)).collect();
            let region = thread.open.last().copied();
            let request = Request { life, lock, is_shared, location: event.location, region };
            let key = (event.thread, thread.segment, request, holds.clone().into_boxed_slice());
            if self.edges.len() >= MAX_EDGES {
                self.is_incomplete |= !self.known.contains(&key);
            } else if self.known.insert(key) {
                let known = Arc::clone(self.order.known(event.thread));
                let (thread, event) = (event.thread, self.now - 1);
                self.edges.push(Edge { thread, event, request, holds, known });
            }
        }
        thread.held.push((life, hold, 1));
    }

    fn release(&mut self, thread: ThreadId, lock: LockId, is_shared: bool) {
        let Some(thread) = self.threads.get_mut(&thread) else { return };
        let is_it =
            |(_, hold, _): &(u32, HeldLock, u32)| hold.lock == lock && hold.is_shared == is_shared;
        if let Some(index) = thread.held.iter().rposition(is_it) {
            thread.held[index].2 -= 1;
            if thread.held[index].2 == 0 {
                thread.held.remove(index);
            }
        }
    }
}
