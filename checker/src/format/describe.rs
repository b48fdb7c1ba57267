//! Description of an event that does not fit, in the names of its trace.

use super::names::Names;
use crate::error::{EventError, EventErrorKind};

/// Describes in words why an event does not fit, with the names of the trace.
#[must_use]
pub fn describe(error: &EventError, names: &Names) -> String {
    let thread = names.thread_label(error.thread);
    match error.kind {
        EventErrorKind::EndWithoutBegin => {
            format!("end of a region, but thread {thread} has none open")
        }
        EventErrorKind::RegionNotOpen(region) => {
            let region = names.region_label(region);
            format!("end of region {region}, which thread {thread} has not open")
        }
        EventErrorKind::RegionNotInnermost { named, inner } => {
            let (named, inner) = (names.region_label(named), names.region_label(inner));
            format!("end of region {named} while region {inner} is open inside it")
        }
        EventErrorKind::ReleaseNotHeld(lock) => {
            let lock = names.lock_label(lock);
            format!("release of lock {lock}, which thread {thread} does not hold")
        }
        EventErrorKind::SharedReleaseNotHeld(lock) => {
            let lock = names.lock_label(lock);
            format!("shared release of lock {lock}, which thread {thread} does not hold shared")
        }
        EventErrorKind::ThreadJoined => {
            format!("an event of thread {thread}, which was joined before")
        }
        EventErrorKind::ThreadEnded => format!("an event of thread {thread}, which has ended"),
        EventErrorKind::ForkedTwice(child) => {
            format!("fork of thread {}, which was forked before", names.thread_label(child))
        }
        EventErrorKind::ForkAfterAction(child) => {
            format!("fork of thread {}, which has acted before", names.thread_label(child))
        }
        EventErrorKind::ForkOfSelf => format!("thread {thread} forks itself"),
        EventErrorKind::JoinedTwice(child) => {
            format!("join of thread {}, which was joined before", names.thread_label(child))
        }
        EventErrorKind::JoinOfSelf => format!("thread {thread} joins itself"),
        EventErrorKind::DepartWithoutArrive(sync) => {
            let sync = names.sync_label(sync);
            format!("thread {thread} departs from {sync} without having arrived")
        }
        EventErrorKind::ReservedId | EventErrorKind::TooManyEvents => error.kind.to_string(),
    }
}
