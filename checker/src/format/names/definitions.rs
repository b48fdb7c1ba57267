//! What can be said of an id: the types that names are asked for, and that a recorder defines. The tables that hold
//! them live elsewhere.

use crate::event::LocationId;
use crate::format::intern::Strings;

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its name, where known.
    pub name: Option<String>,
    /// The operating system's id, where known.
    pub tid: Option<u32>,
}

/// An atomic region of the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// What the user calls it; empty for the region of a text trace's `begin` without a name.
    pub name: String,
    /// Where it begins.
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

/// What kind of thing an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum ObjectKind {
    Variable,
    /// A lock of a kind that is not known.
    Lock,
    Mutex,
    RwLock,
    Spinlock,
    /// A synchronisation object of a kind that is not known.
    Sync,
    Condvar,
    Semaphore,
    Barrier,
    Once,
    Futex,
    Latch,
    /// What a thread waits by until another one lets it go on.
    Parker,
    Channel,
}

impl ObjectKind {
    /// All kinds; the place of each is its code in a binary trace.
    const ALL: [Self; 14] = [
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
    ];

    pub(in crate::format) fn code(self) -> u8 {
        self as u8
    }

    pub(in crate::format) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The kind of an object of which nothing more is known.
    #[must_use]
    pub const fn unknown(space: Space) -> Self {
        match space {
            Space::Variable => Self::Variable,
            Space::Lock => Self::Lock,
            Space::Sync => Self::Sync,
        }
    }
}

/// A variable, a lock, or another synchronisation object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name in the program, where known.
    pub name: Option<String>,
    /// Its process address.
    pub address: Option<u64>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Where it was first used or created.
    pub location: Option<LocationId>,
}

impl Object {
    /// An object of which nothing is known but its kind.
    #[must_use]
    pub const fn new(kind: ObjectKind) -> Self {
        Self { kind, name: None, address: None, size: None, location: None }
    }
}

/// All that is known of an object but its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::format) struct ObjectExtra {
    kind: Option<ObjectKind>,
    address: Option<u64>,
    size: Option<u64>,
    location: Option<LocationId>,
}

impl ObjectExtra {
    pub(in crate::format) fn of(object: &Object, space: Space) -> Self {
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

/// A module's place among the modules of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// A file that code was loaded from: the program or a shared library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path as the process saw it.
    pub path: String,
    /// Its build id; empty when it has none.
    pub build_id: Vec<u8>,
    /// What is added, modulo 2⁶⁴, to a link-time address to get the process address.
    pub load_bias: u64,
}

/// The address of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAddress {
    /// Where it was loaded from, if that is known.
    pub module: Option<ModuleId>,
    /// The link-time address in the module; without a module the process address.
    pub address: u64,
}

/// What kind of place a location is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocationKind {
    /// A label of a text trace, or not known.
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
    /// All kinds; the place of each is its code in a binary trace.
    const ALL: [Self; 4] = [Self::Other, Self::Probe, Self::Call, Self::Access];

    pub(in crate::format) fn code(self) -> u8 {
        self as u8
    }

    pub(in crate::format) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A code location as it was recorded; its frames are asked for apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Free text.
    pub label: Option<String>,
    /// What kind of place it is.
    pub kind: LocationKind,
    /// The addresses, innermost first.
    pub stack: Vec<CodeAddress>,
}

/// One frame of a location: inlined calls give several, the innermost first.
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
    /// Whether it was inlined into the frame that follows.
    pub is_inlined: bool,
    /// Whether it is a wrapper that the user did not write.
    pub is_wrapper: bool,
}

/// In the place of a string's id: there is none.
pub(in crate::format) const NO_STRING: u32 = u32::MAX;

/// A frame whose strings are ids; 0 is no line and no column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) struct StoredFrame {
    pub(in crate::format) function: u32,
    pub(in crate::format) file: u32,
    pub(in crate::format) module: u32,
    pub(in crate::format) line: u32,
    pub(in crate::format) column: u32,
    pub(in crate::format) is_inlined: bool,
    pub(in crate::format) is_wrapper: bool,
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
        }
    }
}

/// All that is known of a location but its label.
#[derive(Debug, Default)]
pub(super) struct StoredLocation {
    pub(super) kind: LocationKind,
    pub(super) stack: Vec<CodeAddress>,
    pub(super) frames: Vec<StoredFrame>,
}

/// The process that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: Option<u32>,
    /// Its arguments, the program first.
    pub argv: Vec<String>,
    /// Its exit status, if it exited.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it, if one did.
    pub signal: Option<i32>,
}

/// Events of one class that were lost in recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The class, such as `lock`.
    pub class: String,
    /// How many in all.
    pub count: u64,
}

/// Anything else about a recording: keys and values are the recorder's affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// What it is. A key may occur more than once.
    pub key: String,
    /// What it says.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_round_trip() {
        for kind in ObjectKind::ALL {
            assert_eq!(ObjectKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(ObjectKind::from_code(14), None);
        for kind in LocationKind::ALL {
            assert_eq!(LocationKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(LocationKind::from_code(4), None);
    }
}
