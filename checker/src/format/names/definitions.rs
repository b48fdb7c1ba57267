//! Descriptions of ids: the types that `Names` returns, and that a recorder defines. The tables that hold
//! them are elsewhere.

use crate::event::{EventNumber, LocationId};
use crate::format::intern::Strings;
use std::fmt;

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Name, if known.
    pub name: Option<String>,
    /// Thread id of the operating system, if known.
    pub tid: Option<u32>,
}

/// An atomic region of the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Name given by the user; empty for the region of a text trace's `begin` without a name.
    pub name: String,
    /// Location of its begin.
    pub location: Option<LocationId>,
}

/// The spaces of ids of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Variables, [`VarId`](crate::event::VarId).
    Variable,
    /// Locks, [`LockId`](crate::event::LockId).
    Lock,
    /// Other synchronisation objects, [`SyncId`](crate::event::SyncId).
    Sync,
}

/// All spaces of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum IdSpace {
    Thread,
    Region,
    Variable,
    Lock,
    Sync,
    Location,
}

impl IdSpace {
    /// All spaces; the index of each is its code in a binary trace.
    pub(in crate::format) const ALL: [Self; 6] =
        [Self::Thread, Self::Region, Self::Variable, Self::Lock, Self::Sync, Self::Location];

    pub(in crate::format) const fn code(self) -> u8 {
        self as u8
    }

    pub(in crate::format) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl From<Space> for IdSpace {
    fn from(space: Space) -> Self {
        match space {
            Space::Variable => Self::Variable,
            Space::Lock => Self::Lock,
            Space::Sync => Self::Sync,
        }
    }
}

/// Place of a trace in a recording that was written as several traces, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the recording, which no other recording has.
    pub recording: u64,
    /// Number of the segment in it, from 0.
    pub number: u32,
    /// Number of the segment's first event in the recording.
    pub first_event: EventNumber,
}

/// Kind of an object that events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum ObjectKind {
    Variable,
    /// A lock of unknown kind.
    Lock,
    Mutex,
    RwLock,
    Spinlock,
    /// A synchronisation object of unknown kind.
    Sync,
    Condvar,
    Semaphore,
    Barrier,
    Once,
    Futex,
    Latch,
    /// The object on which a thread parks until another one unparks it.
    Parker,
    Channel,
    /// A word that a lock of unknown functions is made of.
    LockWord,
    /// A thread, in findings. No object of a trace is one.
    Thread,
}

impl ObjectKind {
    /// All kinds in traces; the index of each is its code in a binary trace.
    const ALL: [Self; 15] = [
        Self::Variable,
        Self::Lock,
        Self::Mutex,
        Self::RwLock,
        Self::Spinlock,
        Self::Sync,
        Self::Condvar,
        Self::Semaphore,
        Self::Barrier,
        Self::Once,
        Self::Futex,
        Self::Latch,
        Self::Parker,
        Self::Channel,
        Self::LockWord,
    ];

    /// Returns the code for an object of a space.
    pub(in crate::format) fn code(self, space: Space) -> u8 {
        if self == Self::Thread { Self::unknown(space) as u8 } else { self as u8 }
    }

    pub(in crate::format) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the kind of an object that is otherwise unknown.
    #[must_use]
    pub const fn unknown(space: Space) -> Self {
        match space {
            Space::Variable => Self::Variable,
            Space::Lock => Self::Lock,
            Space::Sync => Self::Sync,
        }
    }

    /// Returns true for locks.
    #[must_use]
    pub const fn is_lock(self) -> bool {
        matches!(self, Self::Lock | Self::Mutex | Self::RwLock | Self::Spinlock)
    }
}

impl fmt::Display for ObjectKind {
    /// Writes the usual name, such as `read-write lock`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Variable => "variable",
            Self::Lock => "lock",
            Self::Mutex => "mutex",
            Self::RwLock => "read-write lock",
            Self::Spinlock => "spinlock",
            Self::Sync => "synchronisation object",
            Self::Condvar => "condition variable",
            Self::Semaphore => "semaphore",
            Self::Barrier => "barrier",
            Self::Once => "once flag",
            Self::Futex => "futex",
            Self::Latch => "latch",
            Self::Parker => "parked thread",
            Self::Channel => "channel",
            Self::LockWord => "lock word",
            Self::Thread => "thread",
        })
    }
}

/// A variable, a lock, or another synchronisation object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Kind.
    pub kind: ObjectKind,
    /// Name in the program, if known.
    pub name: Option<String>,
    /// Process address.
    pub address: Option<u64>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Location of its first use or creation.
    pub location: Option<LocationId>,
}

impl Object {
    /// Creates an object that is unknown except for its kind.
    #[must_use]
    pub const fn new(kind: ObjectKind) -> Self {
        Self { kind, name: None, address: None, size: None, location: None }
    }
}

/// Description of an object without its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::format) struct ObjectExtra {
    kind: Option<ObjectKind>,
    address: Option<u64>,
    size: Option<u64>,
    location: Option<LocationId>,
}

impl ObjectExtra {
    pub(in crate::format) fn from_object(object: &Object, space: Space) -> Self {
        Self {
            kind: Some(object.kind).filter(|&kind| kind != ObjectKind::unknown(space)),
            address: object.address,
            size: object.size,
            location: object.location,
        }
    }

    pub(in crate::format) fn object(self, space: Space, name: Option<String>) -> Object {
        let Self { kind, address, size, location } = self;
        let kind = kind.unwrap_or(ObjectKind::unknown(space));
        Object { kind, name, address, size, location }
    }
}

/// Index of a module among the modules of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// A file that code was loaded from: the program or a shared library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Path as the process saw it.
    pub path: String,
    /// Build id; empty if unknown.
    pub build_id: Vec<u8>,
    /// Difference, modulo 2⁶⁴, of a process address and the link-time address.
    pub load_bias: u64,
}

/// The address of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAddress {
    /// Module that it was loaded from, if known.
    pub module: Option<ModuleId>,
    /// Link-time address in the module; without a module the process address.
    pub address: u64,
}

/// Kind of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocationKind {
    /// A label of a text trace, or unknown.
    #[default]
    Other,
    /// A probe point: the instruction itself.
    Probe,
    /// A call: the stack is made of return addresses.
    Call,
    /// A memory access: the accessing instruction, then return addresses.
    Access,
}

impl LocationKind {
    /// All kinds; the index of each is its code in a binary trace.
    const ALL: [Self; 4] = [Self::Other, Self::Probe, Self::Call, Self::Access];

    pub(in crate::format) fn code(self) -> u8 {
        self as u8
    }

    pub(in crate::format) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A code location as it was recorded, without its frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Free text.
    pub label: Option<String>,
    /// Kind.
    pub kind: LocationKind,
    /// Addresses, innermost first.
    pub stack: Vec<CodeAddress>,
}

/// A frame of a location: inlined calls give several, the innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The function, demangled.
    pub function: Option<&'a str>,
    /// The source file.
    pub file: Option<&'a str>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The file that the code was loaded from.
    pub module: Option<&'a str>,
    /// Set if it was inlined into the frame that follows.
    pub is_inlined: bool,
    /// Set if it is a wrapper that the user did not write.
    pub is_wrapper: bool,
    /// Set in the first frame of a location whose code is a library's.
    pub is_library: bool,
    /// Line of the function's name in its definition, from 1. At most 65,534 lines before `line`; others are not
    /// recorded.
    pub declared: Option<u32>,
}

/// Value for "no string" in the place of a string's id.
pub(in crate::format) const NO_STRING: u32 = u32::MAX;

/// A frame whose strings are ids; 0 stands for no line, no column and no line of the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) struct StoredFrame {
    pub(in crate::format) function: u32,
    pub(in crate::format) file: u32,
    pub(in crate::format) module: u32,
    pub(in crate::format) line: u32,
    pub(in crate::format) column: u32,
    pub(in crate::format) is_inlined: bool,
    pub(in crate::format) is_wrapper: bool,
    pub(in crate::format) is_library: bool,
    pub(in crate::format) declared: u32,
}

impl StoredFrame {
    pub(super) fn is_known(&self, strings: &Strings) -> bool {
        let known = |id: u32| id == NO_STRING || strings.get(id).is_some();
        known(self.function) && known(self.file) && known(self.module)
    }

    pub(super) fn resolve<'a>(&self, strings: &'a Strings) -> Frame<'a> {
        Frame {
            function: strings.get(self.function),
            file: strings.get(self.file),
            line: Some(self.line).filter(|&line| line > 0),
            column: Some(self.column).filter(|&column| column > 0),
            module: strings.get(self.module),
            is_inlined: self.is_inlined,
            is_wrapper: self.is_wrapper,
            is_library: self.is_library,
            declared: Some(self.declared).filter(|&line| line > 0),
        }
    }
}

/// Description of a location without its label.
#[derive(Debug, Default)]
pub(super) struct StoredLocation {
    pub(super) kind: LocationKind,
    pub(super) stack: Vec<CodeAddress>,
    pub(super) frames: Vec<StoredFrame>,
}

/// The process that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: Option<u32>,
    /// Arguments, the program first.
    pub argv: Vec<String>,
    /// Exit status, if it exited.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it, if one did.
    pub signal: Option<i32>,
}

/// Events of one class that were lost in recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The class, such as `lock`.
    pub class: String,
    /// Total number.
    pub count: u64,
}

/// A further property of a recording: keys and values are defined by the recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Key, which may occur more than once.
    pub key: String,
    /// Value of the property.
    pub value: String,
}

/// Lines of a source file that stand together, for machines that do not have the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceExcerpt {
    /// The file, as frames name it.
    pub file: String,
    /// Number of the first line, from 1.
    pub first_line: u32,
    /// The lines, without their ends.
    pub lines: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_round_trip() {
        for kind in ObjectKind::ALL {
            assert_eq!(ObjectKind::from_code(kind.code(Space::Sync)), Some(kind));
        }
        assert_eq!(ObjectKind::from_code(15), None);
        for kind in LocationKind::ALL {
            assert_eq!(LocationKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(LocationKind::from_code(4), None);
        for space in IdSpace::ALL {
            assert_eq!(IdSpace::from_code(space.code()), Some(space));
        }
        assert_eq!(IdSpace::from_code(6), None);
    }
}
