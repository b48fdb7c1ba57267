//! Kinds of records, and the classes in which lost ones are counted.

/// Defines the enum, its inverse `from_u16` and the list of all variants from one table.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Kind of a record: the event that it reports. The numbers are part of the ABI.
        #[repr(u16)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the kind with this number, if there is one.
            #[must_use]
            pub const fn from_u16(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A region was entered ([`RegionRecord`](super::RegionRecord)).
    Begin = 1,
    /// A region was left ([`RegionRecord`](super::RegionRecord)).
    End = 2,
    /// The innermost region was left, whatever its name ([`RegionRecord`](super::RegionRecord)).
    EndInnermost = 3,
    /// A lock was acquired ([`SyncRecord`](super::SyncRecord), the object is its address).
    Acquire = 4,
    /// A lock is about to be released ([`SyncRecord`](super::SyncRecord)).
    Release = 5,
    /// A lock's memory starts or ends its life ([`SyncRecord`](super::SyncRecord)).
    LockReset = 6,
    /// A thread was joined ([`SyncRecord`](super::SyncRecord), the object is its `pthread_t`).
    Join = 7,
    /// A thread was created ([`ThreadRecord`](super::ThreadRecord)); recorded before its first instruction.
    Fork = 8,
    /// A thread ends ([`ThreadRecord`](super::ThreadRecord)). The detail is 1 for the last thread of its process;
    /// `pthread` is then the exit status of the process, as `wait` returns it.
    Exit = 9,
    /// A child process was created ([`ThreadRecord`](super::ThreadRecord)). The detail has
    /// [`ThreadRecord::FOLLOWED`](super::ThreadRecord::FOLLOWED) and
    /// [`ThreadRecord::STOPS`](super::ThreadRecord::STOPS).
    ChildProcess = 10,
    /// The process replaced its program ([`ThreadRecord`](super::ThreadRecord)). `child` is the number of the stop (see
    /// [`symbols::STOPPED`](super::symbols::STOPPED)), or 0 when the process could not be stopped.
    Exec = 11,
    /// A watched variable was accessed ([`WatchpointRecord`](super::WatchpointRecord)). The detail is 1 for a sampling
    /// watchpoint.
    WatchpointHit = 12,
    /// A variable was named as shared ([`RegistersRecord`](super::RegistersRecord)).
    Shared = 13,
    /// A reader-writer lock was acquired shared ([`SyncRecord`](super::SyncRecord)).
    AcquireShared = 14,
    /// A condition variable is about to be signalled, a semaphore to be posted, or a once routine has run
    /// ([`SyncRecord`](super::SyncRecord)).
    Signal = 15,
    /// A wait for a semaphore or a once flag has succeeded ([`SyncRecord`](super::SyncRecord)).
    Wait = 16,
    /// A thread is about to wait for a condition ([`PairRecord`](super::PairRecord): the condition variable and its
    /// mutex).
    ConditionWait = 17,
    /// A wait for a condition has returned, with success or not ([`SyncRecord`](super::SyncRecord), the object is the
    /// condition variable).
    ConditionWake = 18,
    /// A thread arrives at a barrier ([`SyncRecord`](super::SyncRecord)).
    Arrive = 19,
    /// A thread departs from a barrier ([`SyncRecord`](super::SyncRecord)).
    Depart = 20,
    /// An object's memory starts its life with a number: a semaphore's value, or how many threads a barrier waits for
    /// ([`PairRecord`](super::PairRecord)).
    Init = 21,
    /// A thread is about to be created ([`SyncRecord`](super::SyncRecord), the object has no meaning): the place in the
    /// code that the next [`Kind::Fork`] of the acting thread comes from.
    Create = 22,
    /// A function is entered whose steps are recorded ([`SyncRecord`](super::SyncRecord), the object has no meaning):
    /// the place in the code that the next of these steps comes from.
    Enter = 23,
    /// A thread is about to be joined ([`SyncRecord`](super::SyncRecord), the object is its `pthread_t`, without
    /// frames).
    JoinStart = 30,
    /// The thread leaves functions without returning from them ([`RegionRecord`](super::RegionRecord), with the
    /// target's stack pointer; 0 if that is unknown).
    Jump = 31,
    /// The dynamic linker has loaded or unloaded libraries ([`ThreadRecord`](super::ThreadRecord); `child` as for
    /// [`Exec`](Self::Exec)).
    Libraries = 40,
    /// A followed child process stands before its first instruction ([`ThreadRecord`](super::ThreadRecord); `child` as
    /// for [`Exec`](Self::Exec)).
    Start = 41,
    /// A probed instruction accesses memory ([`PairRecord`](super::PairRecord): the object is the first byte, the
    /// second number the length in bytes). The detail has the access's flags [`READ`](super::AccessDescriptor::READ),
    /// [`WRITE`](super::AccessDescriptor::WRITE) and [`ATOMIC`](super::AccessDescriptor::ATOMIC). The first frame is
    /// the probe point, which may be some instructions away.
    InstructionAccess = 50,
    /// Memory was allocated or mapped ([`PairRecord`](super::PairRecord): the object is its first byte, the second
    /// number its length in bytes). The detail is 1 where a reallocation has failed and the old block lives on; the
    /// second number is then 0 if the size is unknown.
    Alloc = 51,
    /// Memory is about to be freed or unmapped ([`PairRecord`](super::PairRecord): the object is its first byte; the
    /// second number is its length in bytes, 0 for the whole block that begins there).
    Free = 52,
    /// Deferred accesses of a word's owner: the last ones since its previous record of the word
    /// ([`OwnedRecord`](super::OwnedRecord)). The acting thread is another one that accesses the word, or one that
    /// needs its slot.
    Owned = 53,
    /// `SIGTRAP` is delivered to the acting thread ([`TrapRecord`](super::TrapRecord); the detail is the low half of
    /// its `si_code`).
    Trap = 60,
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
            assert_eq!(Kind::from_u16(kind as u16), Some(kind));
        }
        let known = (0..=u16::MAX).filter(|&number| Kind::from_u16(number).is_some()).count();
        assert_eq!(known, Kind::ALL.len());
        assert!(Kind::from_u16(0).is_none());
    }
}
