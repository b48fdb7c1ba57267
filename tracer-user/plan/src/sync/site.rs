//! Sites of synchronisation: functions that are called, and fast paths of locks that were inlined.

use std::sync::Arc;

use abi::Kind;
use serde::{Deserialize, Serialize};
use symbolize::ProcessAddr;

use super::{functions::CallSpec, slow_paths::FastPath};

/// Site of synchronisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncSite {
    /// A function that synchronises.
    Call {
        /// Row of the table of functions.
        spec: CallSpec,
        /// The address after its last instruction; that of its first one where it is not known.
        end: ProcessAddr,
        /// The object, where the function does not get it as an argument.
        object: Option<ProcessAddr>,
        /// Extent of the object; `None` for that of its kind.
        extent: Option<ObjectExtent>,
    },
    /// A fast path of a lock that was inlined.
    Inlined(InlinedPlace),
}

/// Extent of an object whose kind does not determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectExtent {
    /// Distance in bytes of the object from the argument.
    pub plus: u64,
    /// Number of bytes that are the object's own.
    pub bytes: u64,
}

impl SyncSite {
    /// Returns whether a lock is acquired here.
    #[must_use]
    pub const fn acquires_lock(&self) -> bool {
        match self {
            Self::Call { spec, .. } => spec.role.takes_lock(),
            Self::Inlined(place) => place.fast.acquires(),
        }
    }

    /// Returns the instruction that accesses the lock, of a fast path.
    #[must_use]
    pub const fn lock_instruction(&self) -> Option<ProcessAddr> {
        match self {
            Self::Call { .. } => None,
            Self::Inlined(place) => Some(place.at),
        }
    }
}

/// Place of the fast path of a lock that was inlined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlinedPlace {
    /// Whose lock it is.
    pub spec: CallSpec,
    /// Kind of the records of calls that do the same.
    pub kind: Kind,
    /// Effect of the fast path.
    pub fast: FastPath,
    /// The instruction that does it.
    pub at: ProcessAddr,
    /// Number to add to the address of the recorded object.
    pub plus: u64,
    /// Set if that is an address in the process.
    pub plus_is_address: bool,
    /// Number of bytes that are the object's own; 0 for those of its kind.
    pub bytes: u64,
    /// Set if the record counts only where `rax` is 1.
    pub if_one: bool,
    /// The recorded frames after the first.
    pub callers: RecordedCallers,
}

/// Frames that records have after the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordedCallers {
    /// The chain of frame pointers.
    Chain,
    /// A caller.
    One,
    /// A caller, if the frame is in this sorted list of return addresses.
    OneOf(#[serde(with = "shared_list")] Arc<[ProcessAddr]>),
}

/// Lists that sites share; each that is stored is on its own when it is read.
mod shared_list {
    use super::{Arc, Deserialize, ProcessAddr, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(list: &Arc<[ProcessAddr]>, to: S) -> Result<S::Ok, S::Error> {
        list[..].serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[ProcessAddr]>, D::Error> {
        Vec::deserialize(from).map(Arc::from)
    }
}

impl InlinedPlace {
    /// Creates a place whose record has the address of the object, and counts always.
    #[must_use]
    pub const fn new(spec: CallSpec, kind: Kind, fast: FastPath, at: ProcessAddr) -> Self {
        Self {
            spec,
            kind,
            fast,
            at,
            plus: 0,
            plus_is_address: false,
            bytes: 0,
            if_one: false,
            callers: RecordedCallers::Chain,
        }
    }
}
