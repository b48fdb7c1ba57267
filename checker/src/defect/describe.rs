//! The questions of defects to the caller: names, roles and values, which findings do not contain.

use super::dependence::{Dependence, Steps};
use super::fact::{Origin, RegionRole};
use crate::event::{EventNumber, LocationId, RegionId};
use crate::finding::Object;
use crate::format::ObjectKind;

/// Names and facts that findings do not contain. All text must be the same in another run of the same program:
/// without addresses, thread numbers and process ids.
pub trait Describe {
    /// Describes a region.
    fn region(&mut self, region: RegionId) -> RegionInfo;
    /// Describes a code location.
    fn place(&mut self, location: LocationId) -> PlaceInfo;
    /// Describes a code location in an execution of a region, by the line of the program there: where a library is at
    /// work, the line that called it.
    fn place_in(&mut self, _region: RegionId, location: LocationId) -> PlaceInfo {
        self.place(location)
    }
    /// Describes the class of an object.
    fn subject(&mut self, object: Object) -> SubjectInfo;
    /// Returns whether the write of that event changed the value of the variable; `None` if that is not known.
    fn changed_value(&mut self, _event: EventNumber) -> Option<bool> {
        None
    }
    /// Returns whether one event read the value that another event read or wrote; `None` if either value is unknown.
    fn same_value(&mut self, _first: EventNumber, _second: EventNumber) -> Option<bool> {
        None
    }
    /// Returns how a later step of a region depends on the value that an earlier one has read, by the program's code.
    fn dependence(&mut self, _steps: Steps) -> Dependence {
        Dependence::default()
    }
    /// Returns whether accesses to memory were captured: without them, locks are the best evidence there is.
    fn sees_data(&self) -> bool {
        true
    }
}

/// Region, as far as classes depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// Name.
    pub name: String,
    /// Author of its code.
    pub origin: Origin,
    /// Role in the program.
    pub role: RegionRole,
}

/// Code location, as far as classes and fingerprints depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceInfo {
    /// Source file.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Text of the source line without indentation; without one, a label such as `deposit+0x1c`.
    pub text: String,
    /// Function that a user would name.
    pub function: Option<String>,
    /// Author of the code.
    pub origin: Origin,
    /// Set if the innermost function there is one of a language's library, also where it was inlined.
    pub in_library: bool,
    /// Number of the line among the lines of the same text in its function, from 0. Without it, lines of the same text
    /// are numbered in the order of the known lines.
    pub ordinal: u32,
}

/// Class of an object: a variable or field, without the address of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectInfo {
    /// Name, such as `account.balance`, `Queue.head` or `block of 64 bytes from malloc at queue.c:31, byte 8`.
    pub name: String,
    /// Object of a library, such as a vector or a map, that the variable is a part of: any number that its other parts
    /// have as well. Only the library knows the parts, which are one variable.
    pub container: Option<u64>,
    /// Set if the variable stands for the set of a condition variable's waiters.
    pub is_set_of_waiters: bool,
    /// Set if the variable is the word of a lock: only compare-and-swap, exchange and the stores that follow touched
    /// it.
    pub is_lock_word: bool,
}

impl SubjectInfo {
    /// Describes an object of that kind.
    #[must_use]
    pub fn of(object: Object, kind: ObjectKind, name: String) -> Self {
        let is_variable = matches!(object, Object::Variable(_));
        Self {
            name,
            container: None,
            is_set_of_waiters: is_variable && kind == ObjectKind::Condvar,
            is_lock_word: kind == ObjectKind::LockWord,
        }
    }
}
