//! First of two runs: the imprecise analysis alone, which names the code that a second run has to look at (sections
//! 3.1 and 5.1 of the paper). It replays no logs and has no verdict.
//!
//! The paper hands the second run the static sites of transactions in imprecise components. Here these are the regions
//! in which their events were, of all levels, so that the second run has the transactions of the first; and the
//! locations, for what is in no region. The innermost region of each location and the one around it are distinguished
//! from those further out: the outermost one may be the body of a thread, and what it calls most of the program.

use super::DoubleChecker;
use crate::check::{Checker, Options};
use crate::event::{Event, LocationId, Op, RegionId, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// Regions and locations of transactions in imprecise components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    /// Components: sets of transactions in which each may depend on each other one.
    pub components: u64,
    /// Number of regions that ran, in components or not.
    pub regions_run: u64,
    /// Regions, with the number of locations that are in each and in one region within it at most. 0 of those further
    /// out.
    pub regions: BTreeMap<RegionId, u64>,
    /// Locations of accesses and of synchronisation.
    pub locations: BTreeSet<LocationId>,
}

/// Collects [`Suspects`] from the events of a run.
///
/// Every transaction of a cycle of the trace is among them, as far as the trace has the events of the cycle. Time and
/// memory are those of [`DoubleChecker`] without its replays.
///
/// ```
/// use checker::FirstPass;
/// use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
///
/// let (x, mut pass) = (VarId(0), FirstPass::default());
/// let begin = (0, Op::Begin(RegionId(0)));
/// let steps = [begin, (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x)), (0, Op::End(None))];
/// for (line, (thread, op)) in (0..).zip(steps) {
///     pass.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) });
/// }
/// let found = pass.finish();
/// assert_eq!(found.regions.keys().collect::<Vec<_>>(), [&RegionId(0)]);
/// assert_eq!((found.components, found.regions_run), (1, 1));
/// ```
pub struct FirstPass {
    checker: DoubleChecker,
    /// Regions that have begun.
    run: FxHashSet<RegionId>,
    /// Open regions of each thread.
    stacks: FxHashMap<ThreadId, Vec<RegionId>>,
    /// Regions around each location, and whether each is one of the two innermost.
    around: FxHashMap<LocationId, FxHashMap<RegionId, bool>>,
    /// Location of the last event since a region began or ended: most are at the same as one before.
    last: FxHashMap<ThreadId, LocationId>,
}

impl Default for FirstPass {
    fn default() -> Self {
        let mut checker = DoubleChecker::new(Options::live());
        checker.state.suspects = Some(Suspects::default());
        Self {
            checker,
            run: FxHashSet::default(),
            stacks: FxHashMap::default(),
            around: FxHashMap::default(),
            last: FxHashMap::default(),
        }
    }
}

impl FirstPass {
    /// Takes in an event. An event that does not fit the earlier ones is left out.
    pub fn event(&mut self, event: &Event) {
        let Event { thread, op, location } = *event;
        match op {
            Op::Begin(region) => {
                self.run.insert(region);
                self.stacks.entry(thread).or_default().push(region);
                self.last.remove(&thread);
            }
            Op::End(name) => {
                let stack = self.stacks.entry(thread).or_default();
                let at = stack.iter().rposition(|&open| name.is_none_or(|name| name == open));
                stack.truncate(at.unwrap_or(stack.len()));
                self.last.remove(&thread);
            }
            Op::Exit => {
                self.stacks.remove(&thread);
            }
            Op::Rest(_) | Op::Resume(_) => {}
            _ => self.note(thread, location),
        }
        // A lenient checker counts events that do not fit.
        let _ = self.checker.event(event);
    }

    fn note(&mut self, thread: ThreadId, location: LocationId) {
        if self.last.insert(thread, location) == Some(location) {
            return;
        }
        let stack = self.stacks.get(&thread).map(Vec::as_slice).unwrap_or_default();
        let around = self.around.entry(location).or_default();
        for (depth, &region) in stack.iter().rev().enumerate() {
            *around.entry(region).or_default() |= depth < 2;
        }
    }

    /// Takes in that events were lost: no region is open any more.
    pub fn gap(&mut self) {
        self.stacks.clear();
        self.last.clear();
        self.checker.gap();
    }

    /// Returns the findings, and starts anew.
    #[must_use]
    pub fn finish(&mut self) -> Suspects {
        let Self { mut checker, run, around, .. } = std::mem::take(self);
        checker.finish_replay();
        let mut found = checker.state.suspects.take().unwrap_or_default();
        found.regions_run = run.len() as u64;
        let regions = found.locations.iter().filter_map(|at| around.get(at)).flatten();
        for (&region, &is_near) in regions {
            *found.regions.entry(region).or_default() += u64::from(is_near);
        }
        found
    }
}
