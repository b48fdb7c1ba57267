//! What all checkers have in common: the trait and the options. Algorithms live in files of their own.

use crate::error::EventError;
use crate::event::Event;
use crate::finding::{Counts, Findings};

/// An algorithm that consumes the events of one trace in order and reports what it found.
pub trait Checker {
    /// Consumes the next event.
    ///
    /// # Errors
    /// When the event does not fit what came before it. The event is left out, though its number is used up; the
    /// caller may stop or go on. A lenient checker never fails, but for a reserved id or more than 2⁴⁸ events, and
    /// counts what it left out instead.
    fn event(&mut self, event: &Event) -> Result<(), EventError>;

    /// Consumes several events; faster than one by one, because their objects are brought into the cache together.
    ///
    /// # Errors
    /// As `event`, at the first event that does not fit; those after it are not consumed.
    fn events(&mut self, events: &[Event]) -> Result<(), EventError> {
        events.iter().try_for_each(|event| self.event(event))
    }

    /// Events were lost here. Regions under way are abandoned and report nothing more; locks held are forgotten,
    /// so that an end or a release without its beginning is left out from now on, strict or not. The order of
    /// events is kept: losing events only removes dependencies (`docs/semantics.md#lost-events`).
    fn gap(&mut self);

    /// The counts so far.
    fn counts(&self) -> Counts;

    /// Ends the trace.
    fn finish(self: Box<Self>) -> Findings;
}

/// Which executions of regions are transactions to be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regions {
    /// The outermost ones.
    #[default]
    Outermost,
    /// Every level of a nest.
    All,
}

/// Which dependencies count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relation {
    /// All of them; violations that hold in the data relation too are told apart.
    #[default]
    Full,
    /// Those of variables alone.
    Data,
}

/// What a checker is asked for. The default is for recorded traces; `Options::live` is for running programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which regions are checked.
    pub regions: Regions,
    /// Which dependencies count.
    pub relation: Relation,
    /// Leave out events that do not fit instead of failing.
    pub lenient: bool,
    /// List every instance (24 bytes each) besides the distinct witnesses.
    pub instances: bool,
    /// Decide whether the trace is serializable, and find a cycle when it is not and no violation shows it.
    pub serializability: bool,
    /// Find the locks that a violating transaction let go of and took again.
    pub released_locks: bool,
    /// How many distinct witnesses are kept; instances of further ones are only counted.
    pub witnesses: usize,
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
        }
    }
}

impl Options {
    /// For a running program: events that do not fit are left out.
    #[must_use]
    pub fn live() -> Self {
        Self { lenient: true, ..Self::default() }
    }
}
