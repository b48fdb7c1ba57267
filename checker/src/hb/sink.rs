//! The interface by which the state of a variable passes on the dependencies of an access.

use crate::hb::stamp::EventStamp;

/// Receiver of the dependencies of an event.
pub(crate) trait Sink {
    /// Returns whether a dependency on that event can be relevant.
    fn is_relevant(&self, source: &EventStamp) -> bool;
    /// Handles a relevant dependency.
    fn depends_on(&mut self, source: &EventStamp);
}
