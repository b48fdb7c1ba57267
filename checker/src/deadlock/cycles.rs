//! Cycles of acquisitions that can happen at a time.

use super::{Acquisition, Deadlock, Deadlocks, HeldLock};
use crate::event::{EventNumber, LocationId, LockId, RegionId, ThreadId};
use crate::must_order::{Known, precedes};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Limit of the threads of a deadlock.
const MAX_LENGTH: usize = 8;

/// Limit of steps of the search.
const MAX_STEPS: u64 = 1 << 24;

/// Limit of different deadlocks.
const MAX_FOUND: usize = 1000;

/// Acquisition that may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    /// Number of the lock, which no other one has had.
    pub(super) life: u32,
    pub(super) lock: LockId,
    pub(super) is_shared: bool,
    pub(super) location: LocationId,
    pub(super) region: Option<RegionId>,
}

/// A request while locks are held: edges of the graph of locks, one from each of these.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) thread: ThreadId,
    /// Event of the request: the last one for which the order holds that `known` says.
    pub(super) event: EventNumber,
    pub(super) request: Request,
    /// Locks held, by their numbers.
    pub(super) holds: Vec<(u32, HeldLock)>,
    pub(super) known: Arc<Known>,
}

struct Search<'a> {
    edges: &'a [Edge],
    /// Edges that hold a lock.
    holding: FxHashMap<u32, Vec<u32>>,
    steps: u64,
    /// Path of edges, each but the first with the index of its hold that the one before waits for.
    path: Vec<(u32, usize)>,
    found: FxHashMap<Box<[LocationId]>, usize>,
    deadlocks: Deadlocks,
}

/// Returns the cycles, shortest first.
pub(super) fn deadlocks(edges: &[Edge]) -> Deadlocks {
    let mut holding: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (number, edge) in (0..).zip(edges) {
        for &(life, _) in &edge.holds {
            holding.entry(life).or_default().push(number);
        }
    }
    let mut search = Search {
        edges,
        holding,
        steps: 0,
        path: Vec::new(),
        found: FxHashMap::default(),
        deadlocks: Deadlocks::default(),
    };
    for first in 0..edges.len() as u32 {
        search.path.push((first, 0));
        search.extend();
        search.path.pop();
    }
    let mut deadlocks = search.deadlocks;
    deadlocks.found.sort_by_key(|deadlock| {
        let first = deadlock.acquisitions.iter().map(|acquisition| acquisition.event).min();
        (deadlock.acquisitions.len(), first)
    });
    deadlocks
}

/// Returns whether a request has to wait while a lock is held so.
fn waits(request: &Request, (life, hold): &(u32, HeldLock)) -> bool {
    request.life == *life && !(request.is_shared && hold.is_shared)
}

/// Returns whether both threads can be at their requests at a time.
fn can_coincide(one: &Edge, other: &Edge) -> bool {
    let are_guarded = one.holds.iter().any(|(life, hold)| {
        let excludes =
            |(other, with): &(u32, HeldLock)| life == other && !(hold.is_shared && with.is_shared);
        other.holds.iter().any(excludes)
    });
    one.thread != other.thread
        && !are_guarded
        && !precedes(&one.known, other.thread, other.event)
        && !precedes(&other.known, one.thread, one.event)
}

impl Search<'_> {
    /// Extends the path by edges that hold the lock that its last one waits for. The first edge of a cycle is the
    /// earliest one, so that each is found once.
    fn extend(&mut self) {
        let Some(&(last, _)) = self.path.last() else { return };
        let edges = self.edges;
        let request = &edges[last as usize].request;
        let holding = self.holding.get(&request.life).cloned().unwrap_or_default();
        for next in holding {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                self.deadlocks.is_incomplete = true;
                return;
            }
            let edge = &edges[next as usize];
            let Some(hold) = edge.holds.iter().position(|hold| waits(request, hold)) else {
                continue;
            };
            if next == self.path[0].0 && self.path.len() > 1 {
                self.path[0].1 = hold;
                self.note();
            } else if next > self.path[0].0
                && self.path.iter().all(|&(other, _)| can_coincide(&edges[other as usize], edge))
            {
                if self.path.len() == MAX_LENGTH {
                    self.deadlocks.is_incomplete = true;
                    continue;
                }
                self.path.push((next, hold));
                self.extend();
                self.path.pop();
            }
        }
    }

    /// Notes the path as a cycle.
    fn note(&mut self) {
        let mut places: Vec<[LocationId; 2]> = (self.path.iter())
            .map(|&(edge, hold)| {
                let edge = &self.edges[edge as usize];
                [edge.request.location, edge.holds[hold].1.location]
            })
            .collect();
        let least = (0..places.len()).min_by_key(|&index| places[index]).unwrap_or(0);
        places.rotate_left(least);
        let key: Box<[LocationId]> = places.into_iter().flatten().collect();
        if let Some(&known) = self.found.get(&key) {
            self.deadlocks.found[known].occurrences += 1;
            return;
        }
        if self.deadlocks.found.len() >= MAX_FOUND {
            self.deadlocks.is_incomplete = true;
            return;
        }
        let acquisitions = self.path.iter().map(|&(edge, hold)| {
            let Edge { thread, event, request, holds, .. } = &self.edges[edge as usize];
            let others = holds.iter().enumerate().filter(|(index, _)| *index != hold);
            Acquisition {
                thread: *thread,
                region: request.region,
                lock: request.lock,
                is_shared: request.is_shared,
                event: *event,
                location: request.location,
                holds: holds[hold].1,
                others: others.map(|(_, (_, held))| *held).collect(),
            }
        });
        let acquisitions = acquisitions.collect();
        self.found.insert(key, self.deadlocks.found.len());
        self.deadlocks.found.push(Deadlock { acquisitions, occurrences: 1 });
    }
}
