//! Findings of checkers: violations with their witnesses, verdicts and counts, in ids only. Names and
//! source lines are added by the caller.

mod atomicity;
mod dependency;

pub use atomicity::{Atomicity, Property, Theorem, Unserializable};
pub use dependency::{Action, Edge, Object, Order, Point, Tx};

use crate::event::{EventNumber, LocationId, LockId, RegionId, VarId};

/// Relation that a violation rests on (`docs/semantics.md#evidence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Evidence {
    /// The violation holds in the data relation: its dependencies are on variables.
    Data,
    /// The violation holds only if locks and other synchronisation count.
    Sync,
}

/// A lock that the violating transaction released and reacquired before the cycle closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReleasedLock {
    pub lock: LockId,
    pub released: Point,
    pub reacquired: Point,
    /// The transaction of the witness that held the lock in between, from the event at which the cycle enters it to the
    /// one at which the cycle leaves it; `None` when no such hold is known. Without one, holding the lock throughout
    /// would not have prevented the cycle.
    pub holder: Option<Tx>,
}

/// Role of data in a violation whose evidence is synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DataSeen {
    /// Transactions of the witness without any access to a variable until their last event of the witness.
    pub without: Vec<Tx>,
    /// Variables on which transactions of the witness depend on one another, in no cycle.
    pub met: Vec<VarId>,
}

/// An atomicity violation: the first of all instances with the same static witness.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Violation {
    /// The region that was not atomic.
    pub region: RegionId,
    /// Number of instances with this static witness.
    pub occurrences: u64,
    /// Relation that the violation rests on.
    pub evidence: Evidence,
    /// `Racy` if an edge of the witness is.
    pub order: Order,
    /// Violating transaction; for a nested region with its own begin and name.
    pub transaction: Tx,
    /// Begin of the region.
    pub begin: Point,
    /// Event of the violating transaction that closed the cycle.
    pub trigger_event: EventNumber,
    /// Event of another transaction that the trigger depends on.
    pub source_event: EventNumber,
    /// Transactions of the cycle; the first and the last are the violating one. Empty for checkers without
    /// witnesses.
    pub witness: Vec<Tx>,
    /// Dependencies that link the cycle, in order. Empty for checkers without witnesses.
    pub edges: Vec<Edge>,
    /// Locks that the transaction released and reacquired within the cycle.
    pub released_locks: Vec<ReleasedLock>,
    /// Role of data if the evidence is synchronisation; empty otherwise, and for checkers without
    /// witnesses.
    pub data: DataSeen,
}

/// A violation instance: (tx, e_b, e_a) of `docs/semantics.md#violations`, by event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the names say it")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Instance {
    pub begin_event: EventNumber,
    pub trigger_event: EventNumber,
    pub source_event: EventNumber,
}

/// Relation of both ends of a gap in the control flow of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum GapKind {
    /// Both in the region's function itself, in the order of its code.
    OneActivation,
    /// At least one in a function that the region calls, and both are not of the same call.
    Callees,
    /// In different iterations of a loop.
    Iterations,
    /// Not known.
    #[default]
    Unknown,
}

/// Fact against holding a lock over a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Obstacle {
    /// The region waits for other threads in between, or does so in some of its executions.
    Wait,
    /// It lets others go on in between, which may need the lock.
    Notification,
    /// It acquires a lock in between that is held elsewhere while the other one is acquired.
    LockOrder,
}

impl Violation {
    /// Returns the region of which all transactions in between are executions, by one thread.
    pub(crate) fn region_between(&self) -> Option<RegionId> {
        self.by_one_thread().and_then(|tx| tx.region)
    }

    /// Returns whether a single thread came in between, outside of every region.
    pub(crate) fn is_by_one_thread_outside(&self) -> bool {
        self.by_one_thread().is_some_and(|tx| tx.region.is_none())
    }

    /// Returns the first transaction in between, if all are by one thread, and of one region or outside of all.
    fn by_one_thread(&self) -> Option<&Tx> {
        let between = self.witness.get(1..self.witness.len().checked_sub(1)?)?;
        let first = between.first()?;
        let is_same = |tx: &Tx| (tx.thread, tx.region) == (first.thread, first.region);
        between.iter().all(is_same).then_some(first)
    }
}

/// End of a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GapEnd {
    /// Regions open at the step within the region that was cut, outermost first: the calls that led there. `None` if
    /// that is not known any more.
    pub chain: Option<Vec<RegionId>>,
    /// Locks held at the step, by id. `None` if that is not known any more.
    pub held: Option<Vec<LockId>>,
}

/// Locks held in the middle of a cycle, by id: where other threads took it over from the region, and where they gave it
/// back. Each is `None` if it is not known any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OtherLocks {
    /// Locks held at the sink of the first dependency.
    pub entered: Option<Vec<LockId>>,
    /// Locks held at the source of the closing dependency.
    pub left: Option<Vec<LockId>>,
    /// Locks held at both events, in one hold or in holds that begin at one place; empty if the events are of different
    /// threads.
    pub throughout: Option<Vec<LockId>>,
    /// Region that the thread of the closing dependency's source follows.
    pub followed: Option<RegionId>,
}

/// A region that was cut: left at one place, and returned to at another one after other threads came in between.
/// Stands for all violations of the region across this gap (`docs/semantics.md#defects`). Each dependency that closes
/// a cycle belongs to one cut, whose region is the innermost one that it violates.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Cut {
    /// Innermost violated region.
    pub region: RegionId,
    /// Location of the source of the witness' first dependency.
    pub left: LocationId,
    /// Location of the sink of its closing dependency.
    pub returned: LocationId,
    /// Violation instances of the selected regions; a region that is only followed has no instances. The instances of
    /// all cuts, and `Counts::uncut_violations`, add up to `Counts::violations`.
    pub occurrences: u64,
    /// Executions of the region with a violation across this gap.
    pub executions: u64,
    /// Distinct witnesses beyond the two ends; saturates at [`Cut::MAX_WAYS`].
    pub ways: u64,
    /// Regions around it that a closing dependency violated as well, innermost first.
    pub outer_regions: Vec<RegionId>,
    /// Number of the clearest violation, for [`Findings::violation`]: evidence in data, then all accesses of the
    /// region seen, then one transaction of another thread, then an order by synchronisation, then the earliest.
    pub exemplar: usize,
    /// Numbers of the violations whose first instance belongs to this cut.
    pub violations: Vec<usize>,
    /// Numbers of a few violations in later executions, as clear as the exemplar, for [`Findings::violation`].
    pub further: Vec<usize>,
    /// Relation of both ends in the exemplar.
    pub kind: GapKind,
    /// Step of the exemplar at which the region was left.
    pub left_end: GapEnd,
    /// Step of the exemplar at which the region was returned to.
    pub returned_end: GapEnd,
    /// Locks held from one step to the other, by id.
    pub held_throughout: Vec<LockId>,
    /// Locks of the exemplar's `released_locks` whose release and acquisition are steps of the region's function
    /// itself.
    pub split_by_itself: Vec<LockId>,
    /// Set if the region waited for another thread within the gap of the exemplar.
    pub waited: bool,
    /// Set if the region let others go on within the gap of the exemplar: it signalled, arrived at a barrier, or
    /// started a thread.
    pub notified: bool,
    /// Place of a read in the gap of the exemplar: the region looked again at the variable of the first step, after the
    /// write of another thread.
    pub read_again: Option<LocationId>,
    /// Set if a part of the region's accesses was left out at some time within the gap of the exemplar.
    pub partly_seen: bool,
    /// Set if the critical section of the first step, or an earlier one of the same region at that place, wrote a
    /// variable that other threads had accessed.
    pub section_changes: bool,
    /// Set if the critical section of the first step of the exemplar wrote any variable. Writes of variables that no
    /// other thread has accessed since may be deferred, and do not count then.
    pub section_writes: bool,
    /// Set if that section wrote the variable of the first step, as far as its latest writes are remembered.
    pub section_updates: bool,
    /// Set if that section wrote the variable of the second step, as far as its latest writes are remembered.
    #[cfg_attr(feature = "serde", serde(default))]
    pub section_writes_second: bool,
    /// Place where the critical section of the second step of the exemplar began, if it was after the first step.
    #[cfg_attr(feature = "serde", serde(default))]
    pub second_section: Option<LocationId>,
    /// Fact against holding a lock from one step to the other, in any execution.
    pub obstacle: Option<Obstacle>,
    /// Set if an end is on a variable that threads have polled until another thread changed it; of an update, if the
    /// region itself has.
    pub polled: bool,
    /// Set if an end is an overwritten write of a variable that no thread reads in the whole run.
    pub unread: bool,
    /// Locks that the region acquired after the first step of the exemplar, up to the second one.
    pub acquired: Vec<LockId>,
    /// Write of the variable that directly follows its closing read, if one does: the two may be an update.
    pub updated_at: Option<LocationId>,
    /// First write of the region after its closing read, if one comes before any other action of the thread. Writes of
    /// variables that only this thread has used since it wrote them do not count.
    pub written_at: Option<LocationId>,
    /// Set if the second step overwrites a value of others that the region has not read after the gap.
    pub overwrites: bool,
    /// Set if the second step's critical section ended without a change to variables that others had accessed, while
    /// sections of the region from the same place do make changes in other executions.
    pub backed_off: bool,
    /// Set if it [backed off](Self::backed_off), and an execution that did so made no other change to variables
    /// that others had accessed, from the first step to its end.
    pub did_nothing: bool,
    /// Locks of other threads in the exemplar.
    pub others: OtherLocks,
}

impl Cut {
    /// Limit of the distinct ways that are counted.
    pub const MAX_WAYS: u64 = 64;
}

/// A region that was open when its thread ended, and that another thread had depended on by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpenRegion {
    /// The innermost region with that dependency.
    pub region: RegionId,
    /// Begin of the region.
    pub begin: Point,
    /// Dependency of another thread on an access of the region: the first half of a cycle.
    pub edge: Edge,
}

/// Lock that a region, the innermost one around both steps, released and took again in one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reacquired {
    /// Innermost region around both steps.
    pub region: RegionId,
    /// Lock, by its id.
    pub lock: LockId,
    /// Number of times that it was released and taken again.
    pub times: u64,
    /// Those of them in which another thread held it in between.
    pub held_between: u64,
}

/// Counts over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Counts {
    /// Events consumed.
    pub events: u64,
    /// Threads with at least one event.
    pub threads: u64,
    /// Transactions, the unary ones included.
    pub transactions: u64,
    /// Transactions of one event outside every region.
    pub unary_transactions: u64,
    /// Dependencies of the full relation.
    pub dependencies: u64,
    /// Violation instances.
    pub violations: u64,
    /// Transactions with at least one violation instance.
    pub violating_transactions: u64,
    /// Groups of instances with the same static witness.
    pub distinct_witnesses: u64,
    /// Gaps in the stream at which all active regions were abandoned.
    pub gaps: u64,
    /// Events that did not fit (an unmatched release, a second fork) and were ignored.
    pub ignored_events: u64,
    /// Violation instances whose witness is not shown, because it was found after the limit of
    /// `Options::witnesses`.
    pub unshown_violations: u64,
    /// Violation instances that belong to no cut, because they were found after the limit of `Options::cuts`.
    pub uncut_violations: u64,
}

/// The result of a checker over one trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Findings {
    /// Counts over the whole run.
    pub counts: Counts,
    /// True if the transaction graph of the events consumed has no cycle; `None` if the checker does not
    /// decide it.
    pub serializable: Option<bool>,
    /// A cycle of transactions that no violation shows: each transaction has a dependency on the next or
    /// comes before it in program order; the last equals the first.
    pub cycle: Option<Vec<Tx>>,
    /// Dependencies of that cycle, in its order. Steps of program order have none.
    pub cycle_edges: Vec<Edge>,
    /// Violations, data evidence first, then by first occurrence.
    pub violations: Vec<Violation>,
    /// All instances, if `Options::instances` is set.
    pub instances: Vec<Instance>,
    /// Cuts, in the order in which they were found first. Only [`Davida`](crate::Davida) lists them.
    pub cuts: Vec<Cut>,
    /// Violations that cuts show and that are not among `violations`: of a region nested in the one that was asked
    /// for, or a clearer instance of one that is there. They are in no count, and each has `occurrences` of 1. A list
    /// of violations for readers goes on with them: [`Findings::violation`] numbers both lists as one.
    pub exemplars: Vec<Violation>,
    /// Executions of each region, by its id, at every level of a nest. Only [`Davida`](crate::Davida) counts them.
    pub executions: Vec<u64>,
    /// Regions in which a thread ended, of those that others had depended on by data: the first ones. Where the program
    /// died, they may have been about to be violated. Only [`Davida`](crate::Davida) lists them.
    pub open_at_end: Vec<OpenRegion>,
    /// Locks that regions released and took again. Only [`Davida`](crate::Davida) counts them.
    pub reacquired: Vec<Reacquired>,
    /// Atomicity over all interleavings. Only [`CommitNode`](crate::CommitNode) checks it.
    pub atomicity: Option<Atomicity>,
}

impl Findings {
    /// Findings of a checker that only counts.
    #[must_use]
    pub fn from_counts(counts: Counts) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Returns the violation of that number; `exemplars` are numbered after `violations`.
    #[must_use]
    pub fn violation(&self, number: usize) -> Option<&Violation> {
        let listed = self.violations.len();
        self.violations.get(number).or_else(|| self.exemplars.get(number.checked_sub(listed)?))
    }
}
