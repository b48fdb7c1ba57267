//! Kinds of records with the record of each, and the classes in which lost ones are counted.

use core::mem::{offset_of, size_of};

use super::records::{
    AccessRecord, BlockRecord, CallRecord, ChildProcessRecord, ExitRecord, ForkRecord,
    InlinedRecord, JumpRecord, OwnedRecord, PairRecord, RegionRecord, RegistersRecord,
    ReturnRecord, StopRecord, SwitchRecord, TrapRecord, WatchpointRecord,
};
#[cfg(feature = "decode")]
use super::{CopyRecord, Header};

/// Defines the kinds, the sizes of their records, and the decoder from one table: for each record its size in bytes,
/// and its kinds. A record that is of one kind alone has the kind's name.
macro_rules! kinds {
    (
        shared {$(
            $(#[$family_doc:meta])*
            $family:ident($family_record:ident, $family_size:literal) {
                $($(#[$doc:meta])* $kind:ident,)*
            }
        )*}
        own {$(
            $(#[$own_doc:meta])*
            $own:ident($own_record:ident, $own_size:literal),
        )*}
    ) => {
        /// Kind of a record: the event that it reports. The numbers are part of the ABI.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum Kind {
            $($($(#[$doc])* $kind = Index::$kind as u32 + 1,)*)*
            $($(#[$own_doc])* $own = Index::$own as u32 + 1,)*
        }

        /// Places of the kinds in the table.
        enum Index {
            $($($kind,)*)*
            $($own,)*
        }

        impl Kind {
            /// All kinds, by their numbers, which begin at 1.
            pub const ALL: &[Self] = &[$($(Self::$kind,)*)* $(Self::$own,)*];

            /// Returns the size of the kind's records, in bytes.
            #[must_use]
            pub const fn record_size(self) -> usize {
                match self {
                    $($(Self::$kind => $family_size,)*)*
                    $(Self::$own => $own_size,)*
                }
            }
        }

        const _: () = {
            $(
                assert!(size_of::<$family_record>() == $family_size);
                assert!(offset_of!($family_record, header) == 0);
            )*
            $(
                assert!(size_of::<$own_record>() == $own_size);
                assert!(offset_of!($own_record, header) == 0);
            )*
        };

        /// Record, decoded by its kind. With this representation the headers of all have one place.
        #[cfg(feature = "decode")]
        #[repr(u32)]
        #[derive(Clone, Copy, Debug)]
        pub enum Record {
            $($(#[$family_doc])* $family(Kind, $family_record),)*
            $($(#[$own_doc])* $own($own_record),)*
        }

        #[cfg(feature = "decode")]
        impl Record {
            /// Decodes the record at the start of `bytes`; `None` when they are no record of this ABI.
            #[must_use]
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let kind = Kind::from_number(u32::from_ne_bytes(*bytes.first_chunk()?))?;
                Some(match kind {
                    $($(Kind::$kind => Self::$family(kind, read(bytes)?),)*)*
                    $(Kind::$own => Self::$own(read(bytes)?),)*
                })
            }

            /// Returns the kind of the record.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$family(kind, _) => *kind,)*
                    $(Self::$own(_) => Kind::$own,)*
                }
            }

            /// Returns the header that all records have.
            #[must_use]
            pub const fn header(&self) -> &Header {
                match self {
                    $(Self::$family(_, record) => &record.header,)*
                    $(Self::$own(record) => &record.header,)*
                }
            }

            /// Returns the header that all records have, to be changed.
            pub const fn header_mut(&mut self) -> &mut Header {
                match self {
                    $(Self::$family(_, record) => &mut record.header,)*
                    $(Self::$own(record) => &mut record.header,)*
                }
            }

            /// Returns the epoch of the acting thread from this record on; 0 if it has no accesses, or the record
            /// begins none.
            #[must_use]
            pub const fn begun_epoch(&self) -> u64 {
                match self {
                    $(Self::$family(_, record) => record.begun_epoch(),)*
                    $(Self::$own(record) => record.begun_epoch(),)*
                }
            }
        }
    };
}

#[cfg(feature = "decode")]
impl Record {
    /// Returns whether a probe has made the record, so that it has a site of a plan.
    #[must_use]
    #[inline]
    pub const fn is_of_probe(&self) -> bool {
        !matches!(
            self,
            Self::Fork(_)
                | Self::Exit(_)
                | Self::ChildProcess(_)
                | Self::Stop(..)
                | Self::Watchpoint(_)
                | Self::Owned(_)
                | Self::Trap(_)
                | Self::Switch(_)
        )
    }

    /// Splits records into runs: each is one record, or records of probes of one plan in one process, between which no
    /// event was lost.
    pub fn runs(records: &[Self]) -> impl Iterator<Item = &[Self]> {
        records.chunk_by(|one, next| {
            let (a, b) = (one.header(), next.header());
            (a.process, a.lost) == (b.process, b.lost)
                && a.site.plan().0 == b.site.plan().0
                && one.is_of_probe()
                && next.is_of_probe()
        })
    }
}

kinds! {
    shared {
        /// Region begin or end.
        Region(RegionRecord, 40) {
            /// A region was entered.
            Begin,
            /// A region was left.
            End,
            /// The innermost region was left, whatever its name.
            EndInnermost,
        }
        /// Call that counts at its entry.
        Call(CallRecord, 96) {
            /// A lock is about to be released; the argument is its address.
            Release,
            /// A lock's memory starts or ends its life; the argument is its address.
            LockReset,
            /// A condition variable is about to be signalled, a semaphore to be posted, or a once routine has run; the
            /// argument is the object's address.
            Signal,
            /// A thread arrives at a barrier; the argument is its address.
            Arrive,
            /// A thread is about to be joined; the argument is its `pthread_t`.
            JoinStart,
            /// A thread is about to be created: the place in the code that the next [`Kind::Fork`] of the acting thread
            /// comes from. The argument has no meaning.
            Create,
            /// A function is entered whose steps are recorded: the place in the code that the next of these steps comes
            /// from. The argument has no meaning.
            Enter,
        }
        /// Call that counts at its return.
        Return(ReturnRecord, 96) {
            /// A lock was acquired; the argument is its address.
            Acquire,
            /// A reader-writer lock was acquired shared; the argument is its address.
            AcquireShared,
            /// A wait for a semaphore or a once flag has succeeded; the argument is the object's address.
            Wait,
            /// A wait for a condition has returned, with success or not; the argument is the address of the condition
            /// variable.
            ConditionWake,
            /// A thread departs from a barrier; the argument is its address.
            Depart,
            /// A thread was joined; the argument is its `pthread_t`.
            Join,
        }
        /// Call that counts at its entry, with another argument.
        Pair(PairRecord, 104) {
            /// A thread is about to wait for a condition; the arguments are the addresses of the condition variable and
            /// of its mutex.
            ConditionWait,
            /// An object's memory starts its life with a number; the arguments are the object's address and the number:
            /// a semaphore's value, or the number of threads that a barrier waits for.
            Init,
        }
        /// Block of memory.
        Block(BlockRecord, 104) {
            /// Memory was allocated or mapped.
            Alloc,
            /// A reallocation has failed: the old block, of which a [`Kind::Free`] was recorded, lives on.
            ReallocFailure,
            /// Memory is about to be freed or unmapped; without a size the whole block that begins there.
            Free,
        }
        /// Stop of a process.
        Stop(StopRecord, 32) {
            /// The process has replaced its program.
            Exec,
            /// The dynamic linker has loaded or unloaded libraries.
            Libraries,
            /// A followed child process stands before its first instruction.
            Start,
        }
    }
    own {
        /// The thread leaves functions without returning from them.
        Jump(JumpRecord, 40),
        /// A synchronisation object was used by an instruction in line; the site has the operation.
        Inlined(InlinedRecord, 96),
        /// A probed instruction accesses memory.
        Access(AccessRecord, 112),
        /// Deferred accesses of a word's owner: the last ones since its previous record of the word. The acting thread
        /// is another one that accesses the word, or one that needs its slot.
        Owned(OwnedRecord, 80),
        /// A watched variable was accessed.
        Watchpoint(WatchpointRecord, 120),
        /// A variable was named as shared.
        Shared(RegistersRecord, 168),
        /// A thread was created; recorded before its first instruction.
        Fork(ForkRecord, 40),
        /// A thread ends.
        Exit(ExitRecord, 56),
        /// A child process was created.
        ChildProcess(ChildProcessRecord, 56),
        /// `SIGTRAP` is delivered to the acting thread.
        Trap(TrapRecord, 80),
        /// Access probes of a group rest, or record again. No probe makes it.
        Switch(SwitchRecord, 28),
    }
}

impl Kind {
    /// Returns the kind with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

#[cfg(feature = "decode")]
fn read<T: zerocopy::FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(record, _)| record)
}

#[cfg(feature = "decode")]
impl CopyRecord {
    /// Decodes the record at the start of `bytes`; `None` when they are too few.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        read(bytes)
    }
}

/// Class of events, for the counters of lost ones.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Region begins and ends.
    Region = 0,
    /// Locks and all other synchronisation.
    Sync = 1,
    /// Threads.
    Thread = 2,
    /// Memory accesses.
    Access = 3,
    /// Memory that is allocated and freed.
    Memory = 4,
}

impl Class {
    /// Name of the class in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Sync => "lock",
            Self::Thread => "thread",
            Self::Access => "access",
            Self::Memory => "memory",
        }
    }
}

/// All classes, by their numbers.
pub const CLASSES: [Class; 5] =
    [Class::Region, Class::Sync, Class::Thread, Class::Access, Class::Memory];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_the_round_trip() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u32), Some(kind));
        }
        assert!(Kind::from_number(0).is_none());
        assert!(Kind::from_number(Kind::ALL.len() as u32 + 1).is_none());
        assert!(Kind::from_number(u32::MAX).is_none());
    }

    #[test]
    fn kinds_fit_in_a_cookie() {
        assert!(Kind::ALL.iter().all(|&kind| kind as u32 <= 0xff));
    }

    #[cfg(feature = "decode")]
    #[test]
    fn every_kind_has_a_decoder() {
        for &kind in Kind::ALL {
            let mut bytes = [0xff; 256];
            bytes[..4].copy_from_slice(&(kind as u32).to_ne_bytes());
            let size = kind.record_size();
            let record = Record::decode(&bytes[..size]).unwrap_or_else(|| panic!("{kind:?}"));
            assert_eq!(record.kind(), kind);
            assert_eq!((record.header().kind, record.header().tid), (kind as u32, u32::MAX));
            assert!(Record::decode(&bytes[..size - 1]).is_none(), "a short {kind:?}");
        }
    }

    #[cfg(feature = "decode")]
    #[test]
    fn unknown_records_are_refused() {
        assert!(Record::decode(&[]).is_none());
        assert!(Record::decode(&[0; 88]).is_none());
        assert!(Record::decode(&[0xff; 88]).is_none());
    }

    #[cfg(feature = "decode")]
    #[test]
    fn runs_are_of_probes_of_one_plan_without_a_loss() {
        use crate::{PlanNumber, SiteId};

        let region = |process, plan, lost| {
            let site = SiteId::new(PlanNumber(plan), 3);
            let header = Header { process, site, lost, ..Header::default() };
            Record::Region(Kind::Begin, RegionRecord { header, ..RegionRecord::default() })
        };
        let exit = Record::Exit(ExitRecord::default());
        let records = [
            [region(1, 0, 0), region(1, 0, 0), region(2, 0, 0), region(2, 1, 0)],
            [region(2, 1, 7), region(2, 1, 7), exit, exit],
        ];
        let lengths: [usize; 7] = [2, 1, 1, 2, 1, 1, 0];
        let mut runs = Record::runs(records.as_flattened()).map(<[Record]>::len);
        assert_eq!(lengths.map(|_| runs.next().unwrap_or(0)), lengths);
        assert!(Record::runs(&[]).next().is_none());
    }
}
