//! Data passed from readers to writers: events in batches, the gaps between them, and counts. No reading and no
//! writing.

use super::names::Names;
use crate::event::{Event, EventNumber};

/// Limit of events in a batch. Small enough for a cache, large enough that the work for each batch is
/// negligible.
pub(super) const BATCH: usize = 4096;

/// Part of a trace.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// Events in their order; never empty.
    Events(Batch<'a>),
    /// Events were lost here.
    Gap(Gap),
}

/// Consecutive events.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Number of the first, counted from 0 over the whole trace.
    pub first: EventNumber,
    /// The events.
    pub events: &'a [Event],
    /// Observed values of some of them, by event number.
    pub values: &'a [ObservedValue],
    /// Names of the ids in the events so far.
    pub names: &'a Names,
}

/// A place in a trace where events were lost, or could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Number of lost events, if known.
    pub lost: Option<u64>,
}

/// Value of a variable before and after an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedValue {
    /// The access.
    pub event: EventNumber,
    /// Value before it, if an earlier access was seen.
    pub before: Option<u64>,
    /// Value after it.
    pub after: u64,
    /// Number of the value's bytes that count, from the lowest: 1 to 8.
    pub length: u8,
    /// Set if the access wrote.
    pub written: bool,
}

/// Result of advancing a reader.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A batch is ready.
    Events,
    Gap(Gap),
    End,
}

/// Counts of the trace read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Number of events lost in gaps, as far as known.
    pub lost: u64,
    /// Number of lines that are no events and were skipped.
    pub skipped_lines: u64,
    /// First of them, counted from 1.
    pub first_skipped_line: Option<u64>,
    /// End of the last whole block of a binary trace that ends before its footer, as after a crash; in
    /// bytes from the start of the (decompressed) file. Known at the end.
    pub truncated: Option<u64>,
}
