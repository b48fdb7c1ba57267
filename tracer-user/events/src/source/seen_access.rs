//! Accesses as records report them, before it is known whether they count.

use std::cmp::Ordering;

use abi::{ACCESS_GROUPS, AccessDescriptor, AccessRecord, FRAMES};
use checker::event::{Op, ThreadId, VarId};
use plan::memory::site::AccessPlace;
use x86::commuting::CommutingUpdate;

use super::hit_decoder::Caller;
use crate::{
    extent::Extent,
    watchpoint_access::{Access, AccessKind},
};

/// Epoch of accesses that are reported as they are made: the thread's current one.
pub(super) const CURRENT_EPOCH: u64 = u64::MAX;

/// Access that a record reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenAccess {
    pub(super) source: AccessSource,
    pub(super) thread: ThreadId,
    /// Epoch of the thread in which it was made, or [`CURRENT_EPOCH`].
    pub(super) epoch: u64,
    pub(super) extent: Extent,
    pub(super) effect: AccessEffect,
    /// The instruction, then the return addresses of its stack.
    pub(super) frames: [u64; FRAMES],
    /// The instruction's update, if the access may commute with others of its kind.
    pub(super) commuting: Option<CommutingUpdate>,
}

/// Record that reports an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum AccessSource {
    /// Record of the instruction's probe.
    Probe { place: AccessPlace, value: Option<ProbedValue>, is_on_own_stack: bool },
    /// Hit of a watchpoint on a range that the user or the program has named.
    NamedRange { watch: usize, value: u64 },
    /// Hit of a sampling watchpoint; `access` is its decoded instruction.
    Sample { watch: usize, access: Option<Access>, caller: Caller },
    /// Last access of a kind by a thread to a word that it owned, reported when the thread `acting` arrives there.
    Deferred { place: AccessPlace, sp: u64, is_on_own_stack: bool, acting: u32 },
}

/// Value that a probe has read at the place of an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbedValue {
    pub(super) value: u64,
    /// Length in bytes.
    pub(super) length: u8,
    pub(super) moment: Moment,
}

/// Moment at which a probe read a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// Before the access.
    Before,
    /// After it.
    After,
    /// Not known: the thread may have written to the same place in between.
    Other,
}

/// Effect of an access on memory, as flags of [`AccessDescriptor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccessEffect(u8);

/// Makes an operation on a variable.
pub(super) type Operation = fn(VarId) -> Op;

impl SeenAccess {
    /// Returns the address of the instruction.
    pub(super) const fn instruction(&self) -> u64 {
        self.frames[0]
    }

    /// Returns whether the access is reported after the epoch in which it was made.
    pub(super) const fn is_deferred(&self) -> bool {
        matches!(self.source, AccessSource::Deferred { .. })
    }

    /// Returns the group whose switch the probe of the access has.
    pub(super) const fn group(&self) -> Option<usize> {
        match self.source {
            AccessSource::Probe { place, .. } | AccessSource::Deferred { place, .. } => {
                Some(place.group % ACCESS_GROUPS as usize)
            }
            AccessSource::NamedRange { .. } | AccessSource::Sample { .. } => None,
        }
    }

    /// Returns whether it was made by code of a library by which threads synchronise: then it is not to data.
    pub(super) const fn is_of_library(&self) -> bool {
        match self.source {
            AccessSource::Probe { place, .. } | AccessSource::Deferred { place, .. } => {
                place.is_library
            }
            AccessSource::NamedRange { .. } | AccessSource::Sample { .. } => false,
        }
    }

    /// Returns the number of the watched range that was hit.
    pub(super) const fn watch(&self) -> Option<usize> {
        match self.source {
            AccessSource::NamedRange { watch, .. } | AccessSource::Sample { watch, .. } => {
                Some(watch)
            }
            AccessSource::Probe { .. } | AccessSource::Deferred { .. } => None,
        }
    }
}

impl ProbedValue {
    /// Returns the value that a record has, if the kernel side could read it.
    pub(super) fn of(record: &AccessRecord, place: AccessPlace) -> Option<Self> {
        if record.flags & AccessRecord::HAS_VALUE == 0 {
            return None;
        }
        let length = u8::try_from(record.size).ok().filter(|&length| length <= 8)?;
        let moment = match record.frames[0].cmp(&place.instruction.0) {
            _ if !place.sees_value => Moment::Other,
            Ordering::Greater => Moment::After,
            _ => Moment::Before,
        };
        Some(Self { value: record.value, length, moment })
    }
}

impl AccessEffect {
    pub(super) const READ: Self = Self(AccessDescriptor::READ);
    pub(super) const WRITE: Self = Self(AccessDescriptor::WRITE);
    const READ_THEN_WRITE: Self = Self(AccessDescriptor::READ | AccessDescriptor::WRITE);
    const UPDATE: Self = Self(Self::READ_THEN_WRITE.0 | AccessDescriptor::ATOMIC);

    /// Returns the effect that an [`AccessRecord`] reports.
    pub(super) const fn of(record: &AccessRecord) -> Self {
        Self(record.flags as u8 & Self::UPDATE.0)
    }

    pub(super) const fn reads(self) -> bool {
        self.0 & AccessDescriptor::READ != 0
    }

    pub(super) const fn writes(self) -> bool {
        self.0 & AccessDescriptor::WRITE != 0
    }

    /// Returns the operations that the access consists of. An atomic access `is_store` if the value that it reads is
    /// not used.
    pub(super) fn operations(self, is_store: impl FnOnce() -> bool) -> [Option<Operation>; 2] {
        match self {
            Self::READ => [Some(Op::Read), None],
            Self::WRITE => [Some(Op::Write), None],
            Self::READ_THEN_WRITE => [Some(Op::Read), Some(Op::Write)],
            _ if is_store() => [Some(Op::Write), None],
            _ => [Some(Op::Update), None],
        }
    }
}

impl From<AccessKind> for AccessEffect {
    fn from(kind: AccessKind) -> Self {
        match kind {
            AccessKind::Read => Self::READ,
            AccessKind::Write => Self::WRITE,
            AccessKind::ReadThenWrite => Self::READ_THEN_WRITE,
            AccessKind::Update => Self::UPDATE,
        }
    }
}
