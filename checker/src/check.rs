//! The interface that all checkers share: the trait and its options. Each algorithm has a file.

use crate::error::EventError;
use crate::event::{Event, EventNumber, LocationId, SyncId, ThreadId, VarId};
use crate::finding::{Counts, Findings, Property};
use crate::hb::Timestamp;

/// An algorithm that consumes the events of one trace in order and reports its findings.
pub trait Checker {
    /// Consumes the next event.
    ///
    /// # Errors
    /// If the event contradicts those before it. The event is left out, though its number is used up; the
    /// caller may stop or continue. A lenient checker counts it in `Counts::ignored_events` instead, and
    /// fails only for a reserved id or more than 2⁴⁸ events.
    fn event(&mut self, event: &Event) -> Result<(), EventError>;

    /// Consumes several events. Faster than one by one, because their objects are prefetched together.
    ///
    /// # Errors
    /// As [`event`](Self::event), at the first event that does not fit; those after it are not consumed.
    fn events(&mut self, events: &[Event]) -> Result<(), EventError> {
        events.iter().try_for_each(|event| self.event(event))
    }

    /// Notes that events were lost here. Active regions are abandoned and report nothing more; locks held
    /// are forgotten, so that an end or a release without its beginning is left out from now on, strict or
    /// not. The order of events remains: losing events only removes dependencies
    /// (`docs/semantics.md#lost-events`).
    fn gap(&mut self);

    /// Returns the counts so far.
    fn counts(&self) -> Counts;

    /// Returns the number of violations that were stored so far, to be shown: it grows whenever a violation is stored,
    /// even if it replaces another. A source that captures values of accesses retains the latest ones then.
    fn stored_violations(&self) -> u64 {
        self.counts().distinct_witnesses
    }

    /// Ends the trace and returns the findings. The checker is at the start of another trace then.
    fn finish(&mut self) -> Findings;
}

/// A checker of a source that defers operations of a thread on memory that no other thread uses, and inserts the last
/// of them when another thread comes (`docs/semantics.md#deferred-accesses`).
///
/// An inserted access or signal is no event, has no number, and counts in no [`Counts`].
pub trait DeferredChecker: Checker {
    /// Returns the current point in a thread's program order: after its last event and before its next. `None` before
    /// its first event and after its last.
    fn timestamp(&self, thread: ThreadId) -> Option<Timestamp>;

    /// Returns the begin of the oldest active region, or the number of the next event if no region is active. A
    /// [`Timestamp`] of an earlier event can be dropped: an access inserted there is in no dependency that could
    /// violate a region.
    fn oldest_active(&self) -> EventNumber;

    /// Returns the findings so far, as [`finish`](Checker::finish) would; the trace goes on. All stored findings are
    /// copied.
    fn findings(&self) -> Findings;

    /// Inserts a read or write of a variable that was deferred. A commuting update is never deferred.
    ///
    /// Preconditions:
    /// - the access repeats an event: its thread wrote the variable before, or for a read read or wrote it, and no
    ///   other thread has accessed the variable since;
    /// - it is the last write of its thread to the variable, or the last read after that; the write is inserted
    ///   first;
    /// - `timestamp` is of its thread, and of the point at which it happened, or of an earlier one without a
    ///   dependency of the thread and without a begin of a region in between.
    ///
    /// Postcondition: violations, their regions and witnesses are the same, and found at the same events, as if all
    /// deferred accesses had come as events where they happened. An inserted access depends on nothing that the
    /// repeated event does not depend on, and dependencies on it only come later.
    fn insert_deferred_access(
        &mut self,
        timestamp: &Timestamp,
        variable: VarId,
        writes: bool,
        location: LocationId,
    );

    /// Inserts a signal to a synchronisation object that was deferred.
    ///
    /// Preconditions: it is the last signal of its thread to the object, made at `timestamp`, and no other thread has
    /// waited on the object since.
    ///
    /// Postcondition: later waits depend on the signal. The knowledge of its thread is not passed on: a waiting
    /// thread is ordered after the signal only, and not after the events before it.
    fn insert_deferred_signal(
        &mut self,
        timestamp: &Timestamp,
        object: SyncId,
        location: LocationId,
    );
}

/// Selection of the region executions to be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Regions {
    /// The outermost executions.
    #[default]
    Outermost,
    /// Every level of a nest.
    All,
}

/// Selection of the dependencies that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Relation {
    /// All dependencies; violations that hold in the data relation too are marked as `Evidence::Data`.
    #[default]
    Full,
    /// Dependencies on variables only.
    Data,
}

/// Options of a checker. The default is for recorded traces; [`Options::live`] is for running programs. Methods set
/// the others:
///
/// ```
/// use checker::{Options, Regions};
///
/// let options = Options::default().regions(Regions::All).witnesses(10);
/// assert_eq!((options.witnesses, options.lenient), (10, false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Regions to check.
    pub regions: Regions,
    /// Dependencies that count.
    pub relation: Relation,
    /// Ignore and count events that do not fit instead of failing.
    pub lenient: bool,
    /// List every instance (24 bytes each) besides the distinct witnesses.
    pub instances: bool,
    /// Decide whether the trace is serializable, and find a cycle when it is not and no violation shows it.
    pub serializability: bool,
    /// Find the locks that a violating transaction released and reacquired.
    pub released_locks: bool,
    /// Limit of distinct witnesses that are stored; instances of further ones are only counted. Together they have at
    /// most [`Options::LENGTH_OF_WITNESSES`] times as many dependencies, so that memory and reports are bounded where
    /// cycles go through thousands of threads.
    pub witnesses: usize,
    /// Limit of cuts that are stored, at every level of nested regions; violations of further ones are only counted.
    /// As many again are stored of regions that are followed, whose cuts have no violations.
    /// With 0 no region within another is looked at unless `regions` asks for it.
    pub cuts: usize,
    /// Property that is checked over all interleavings.
    pub property: Property,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            regions: Regions::Outermost,
            relation: Relation::Full,
            lenient: false,
            instances: false,
            serializability: true,
            released_locks: true,
            witnesses: 100_000,
            cuts: 10_000,
            property: Property::Conflict,
        }
    }
}

impl Options {
    /// Number of dependencies of a witness for which there is room, on average.
    pub const LENGTH_OF_WITNESSES: usize = 16;

    /// Options for a running program: events that do not fit are ignored, and fewer witnesses are stored, as the
    /// program may run for long.
    #[must_use]
    pub fn live() -> Self {
        Self::default().lenient(true).witnesses(10_000)
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty,)*) => {
        impl Options {
            $(
                #[doc = concat!("Sets the field `", stringify!($name), "`.")]
                #[must_use]
                pub const fn $name(mut self, $name: $type) -> Self {
                    self.$name = $name;
                    self
                }
            )*
        }
    };
}

setters! {
    regions: Regions,
    relation: Relation,
    lenient: bool,
    instances: bool,
    serializability: bool,
    released_locks: bool,
    witnesses: usize,
    cuts: usize,
    property: Property,
}

/// Capabilities of an algorithm: the options that it honours beyond `lenient` and `relation`, which all do,
/// and its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Set if [`Regions::All`] is honoured: every level of nested regions can be checked.
    pub nested: bool,
    /// Set if [`Options::instances`] is honoured: instances of violations can be listed.
    pub instances: bool,
    /// Set if violations have a witness.
    pub witnesses: bool,
    /// Set if all interleavings are checked, and [`Options::property`] is honoured; [`Options::relation`] is not.
    pub interleavings: bool,
}
