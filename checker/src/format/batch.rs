//! What readers give and writers take: events in batches, and the gaps between them. No reading and no writing.

use super::names::Names;
use crate::event::{Event, EventNumber};

/// Events of a batch at most. Small enough for a cache, large enough for what is done once a batch not to matter.
pub(super) const BATCH: usize = 4096;

/// A part of a trace.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// Events in their order; never none.
    Events(Batch<'a>),
    /// Events were lost here.
    Gap(Gap),
}

/// Events that follow one another.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The number of the first, counted from 0 over the whole trace.
    pub first: EventNumber,
    /// The events.
    pub events: &'a [Event],
    /// Values that were observed at some of them, by event number.
    pub values: &'a [ObservedValue],
    /// What the ids of the events so far stand for.
    pub names: &'a Names,
}

/// A place in a trace where events were lost, or could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// How many, where known.
    pub lost: Option<u64>,
}

/// The value of a variable around an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedValue {
    /// The access.
    pub event: EventNumber,
    /// Before it, if an earlier access was seen.
    pub before: Option<u64>,
    /// After it.
    pub after: u64,
    /// How many of the value's bytes count, from the lowest: 1 to 8.
    pub length: u8,
    /// Whether the access wrote.
    pub written: bool,
}
