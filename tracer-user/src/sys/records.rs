//! Reading the BPF programs' records out of bytes.

use std::mem::size_of;

use tracer_ebpf::{
    CopyRecord, Header, Kind, OwnedRecord, PairRecord, RegionRecord, RegistersRecord, SITE_BITS,
    SyncRecord, ThreadRecord, TrapRecord, WatchpointRecord,
};

/// Record, decoded by its kind.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of `tracer_ebpf`")]
pub enum Record {
    Region(Kind, RegionRecord),
    Sync(Kind, SyncRecord),
    Pair(Kind, PairRecord),
    Thread(Kind, ThreadRecord),
    Access(WatchpointRecord),
    Owned(OwnedRecord),
    Registers(RegistersRecord),
    Trap(TrapRecord),
}

impl Record {
    /// Decodes the record at the start of `bytes`; `None` when they are no record of this ABI. Its site is that of its
    /// process's plan.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = Kind::from_u16(u16::from_ne_bytes(*bytes.first_chunk()?))?;
        let mut record = Self::of_kind(kind, bytes)?;
        let header = record.header_mut();
        header.plan = header.site >> SITE_BITS;
        header.site &= (1 << SITE_BITS) - 1;
        Some(record)
    }

    fn of_kind(kind: Kind, bytes: &[u8]) -> Option<Self> {
        Some(match kind {
            Kind::Begin | Kind::End | Kind::EndInnermost | Kind::Jump => {
                Self::Region(kind, read(bytes)?)
            }
            Kind::Acquire
            | Kind::AcquireShared
            | Kind::Release
            | Kind::LockReset
            | Kind::Signal
            | Kind::Wait
            | Kind::ConditionWake
            | Kind::Arrive
            | Kind::Depart
            | Kind::JoinStart
            | Kind::Create
            | Kind::Enter
            | Kind::Join => Self::Sync(kind, read(bytes)?),
            Kind::ConditionWait
            | Kind::Init
            | Kind::InstructionAccess
            | Kind::Alloc
            | Kind::Free => Self::Pair(kind, read(bytes)?),
            Kind::Fork
            | Kind::Exit
            | Kind::ChildProcess
            | Kind::Exec
            | Kind::Libraries
            | Kind::Start => Self::Thread(kind, read(bytes)?),
            Kind::WatchpointHit => Self::Access(read(bytes)?),
            Kind::Owned => Self::Owned(read(bytes)?),
            Kind::Shared => Self::Registers(read(bytes)?),
            Kind::Trap => Self::Trap(read(bytes)?),
            _ => return None,
        })
    }

    fn header_mut(&mut self) -> &mut Header {
        match self {
            Self::Region(_, record) => &mut record.header,
            Self::Sync(_, record) => &mut record.header,
            Self::Pair(_, record) => &mut record.call.header,
            Self::Thread(_, record) => &mut record.header,
            Self::Access(record) => &mut record.header,
            Self::Owned(record) => &mut record.header,
            Self::Registers(record) => &mut record.header,
            Self::Trap(record) => &mut record.header,
        }
    }

    /// Returns the header that all records have.
    #[must_use]
    pub const fn header(&self) -> &Header {
        match self {
            Self::Region(_, record) => &record.header,
            Self::Sync(_, record) => &record.header,
            Self::Pair(_, record) => &record.call.header,
            Self::Thread(_, record) => &record.header,
            Self::Access(record) => &record.header,
            Self::Owned(record) => &record.header,
            Self::Registers(record) => &record.header,
            Self::Trap(record) => &record.header,
        }
    }
}

/// The records of the ABI: integers only, so that any bytes are a valid value.
///
/// # Safety
///
/// Every bit pattern of the type's size is a valid value of it.
unsafe trait Plain: Copy {}
// SAFETY: `repr(C)` structures of integers, without padding (asserted by their sizes in `tracer_ebpf`).
unsafe impl Plain for RegionRecord {}
// SAFETY: as above.
unsafe impl Plain for SyncRecord {}
// SAFETY: as above.
unsafe impl Plain for PairRecord {}
// SAFETY: as above.
unsafe impl Plain for ThreadRecord {}
// SAFETY: as above.
unsafe impl Plain for WatchpointRecord {}
// SAFETY: as above.
unsafe impl Plain for OwnedRecord {}
// SAFETY: as above.
unsafe impl Plain for RegistersRecord {}
// SAFETY: as above.
unsafe impl Plain for TrapRecord {}
// SAFETY: as above.
unsafe impl Plain for CopyRecord {}

/// Decodes a record of a child process that is not followed; `None` when the bytes are too few.
#[must_use]
pub fn decode_copy(bytes: &[u8]) -> Option<CopyRecord> {
    read(bytes)
}

fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: the slice has the size of `T`, and any bytes are a `T`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_unknown_records_are_refused() {
        assert!(Record::decode(&[]).is_none());
        assert!(Record::decode(&[0xff; 88]).is_none());
        let mut bytes = [0; 40];
        bytes[0] = Kind::Begin as u8;
        assert!(matches!(Record::decode(&bytes), Some(Record::Region(Kind::Begin, _))));
        assert!(Record::decode(&bytes[..39]).is_none());
    }
}
