//! Event records as four numbers, their meaning, and their form of sixteen bytes. Blocks, definitions and the packed
//! form are elsewhere.

use super::layout::{EVENT, UNKNOWN, op};
use crate::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::format::batch::Gap;
use crate::format::names::NO_LOCATION;

/// An event or a gap as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) op: u8,
    pub(super) thread: u32,
    pub(super) object: u32,
    pub(super) location: u32,
}

impl Record {
    /// Decodes the form that is not packed.
    pub(super) fn from_bytes(bytes: &[u8; EVENT]) -> Self {
        let word = u128::from_le_bytes(*bytes);
        Self {
            op: word as u8,
            thread: (word >> 32) as u32,
            object: (word >> 64) as u32,
            location: (word >> 96) as u32,
        }
    }

    /// Encodes the record in the form that is not packed, in which no id is too large.
    pub(super) fn to_bytes(self) -> [u8; EVENT] {
        let Self { op, thread, object, location } = self;
        let low = u64::from(thread) << 32 | u64::from(op);
        let high = u64::from(location) << 32 | u64::from(object);
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }
}

fn record(op: u8, thread: u32, object: u32, location: u32) -> Record {
    Record { op, thread, object, location }
}

pub(super) fn encode(event: &Event) -> Record {
    if let Op::SplitVariable { from, to } = event.op {
        return record(op::SPLIT, event.thread.0, from.0, to.0);
    }
    let (op, object) = match event.op {
        Op::Begin(id) => (op::BEGIN, id.0),
        Op::End(None) => (op::END, 0),
        Op::End(Some(id)) => (op::END_NAMED, id.0),
        Op::Read(id) => (op::READ, id.0),
        Op::Write(id) => (op::WRITE, id.0),
        Op::Update(id) => (op::UPDATE, id.0),
        Op::CommutingUpdate(id) => (op::COMMUTING_UPDATE, id.0),
        Op::Acquire(id) => (op::ACQUIRE, id.0),
        Op::Release(id) => (op::RELEASE, id.0),
        Op::AcquireShared(id) => (op::ACQUIRE_SHARED, id.0),
        Op::ReleaseShared(id) => (op::RELEASE_SHARED, id.0),
        Op::Fork(id) => (op::FORK, id.0),
        Op::Join(id) => (op::JOIN, id.0),
        Op::Signal(id) => (op::SIGNAL, id.0),
        Op::Wait(id) => (op::WAIT, id.0),
        Op::Arrive(id) => (op::ARRIVE, id.0),
        Op::Depart(id) => (op::DEPART, id.0),
        Op::Alloc(id) => (op::ALLOC, id.0),
        Op::Free(id) => (op::FREE, id.0),
        Op::Reset(id) => (op::RESET, id.0),
        Op::SplitVariable { from, .. } => (op::SPLIT, from.0),
        Op::Follow(Some(id)) => (op::FOLLOW, id.0),
        Op::Follow(None) => (op::FOLLOW_NONE, 0),
        Op::Rest(id) => (op::REST, id.0),
        Op::Resume(id) => (op::RESUME, id.0),
        Op::Exit => (op::EXIT, 0),
    };
    record(op, event.thread.0, object, event.location.0)
}

pub(super) fn encode_gap(gap: Gap) -> Record {
    let lost = gap.lost.unwrap_or(UNKNOWN);
    record(op::GAP, 0, lost as u32, (lost >> 32) as u32)
}

/// Decodes the event in a record whose ids were checked; `None` for codes that are no operation.
#[inline]
pub(super) fn decode(record: Record) -> Option<Event> {
    let Record { op, thread, object, location } = record;
    let op = match op {
        op::BEGIN => Op::Begin(RegionId(object)),
        op::END => Op::End(None),
        op::END_NAMED => Op::End(Some(RegionId(object))),
        op::READ => Op::Read(VarId(object)),
        op::WRITE => Op::Write(VarId(object)),
        op::UPDATE => Op::Update(VarId(object)),
        op::COMMUTING_UPDATE => Op::CommutingUpdate(VarId(object)),
        op::ACQUIRE => Op::Acquire(LockId(object)),
        op::RELEASE => Op::Release(LockId(object)),
        op::ACQUIRE_SHARED => Op::AcquireShared(LockId(object)),
        op::RELEASE_SHARED => Op::ReleaseShared(LockId(object)),
        op::FORK => Op::Fork(ThreadId(object)),
        op::JOIN => Op::Join(ThreadId(object)),
        op::SIGNAL => Op::Signal(SyncId(object)),
        op::WAIT => Op::Wait(SyncId(object)),
        op::ARRIVE => Op::Arrive(SyncId(object)),
        op::DEPART => Op::Depart(SyncId(object)),
        op::ALLOC => Op::Alloc(VarId(object)),
        op::FREE => Op::Free(VarId(object)),
        op::END_OF_LIFE => Op::Alloc(VarId(object)),
        op::RESET => Op::Reset(LockId(object)),
        op::SPLIT => {
            let op = Op::SplitVariable { from: VarId(object), to: VarId(location) };
            return Some(Event { thread: ThreadId(thread), op, location: NO_LOCATION });
        }
        op::FOLLOW => Op::Follow(Some(RegionId(object))),
        op::FOLLOW_NONE => Op::Follow(None),
        op::REST => Op::Rest(RegionId(object)),
        op::RESUME => Op::Resume(RegionId(object)),
        op::EXIT => Op::Exit,
        _ => return None,
    };
    Some(Event { thread: ThreadId(thread), op, location: LocationId(location) })
}

/// Returns the ids in the record of a split: its thread and both variables.
pub(super) fn split_ids(record: Record) -> Option<(u32, [u32; 2])> {
    let Record { op, thread, object: from, location: to } = record;
    (op == op::SPLIT).then_some((thread, [from, to]))
}

pub(super) fn decode_gap(record: Record) -> Gap {
    let Record { object: low, location: high, .. } = record;
    let lost = u64::from(high) << 32 | u64::from(low);
    Gap { lost: Some(lost).filter(|&lost| lost != UNKNOWN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_round_trip() {
        let ops = [
            Op::Begin(RegionId(1)),
            Op::End(None),
            Op::End(Some(RegionId(2))),
            Op::Read(VarId(3)),
            Op::Write(VarId(4)),
            Op::Update(VarId(5)),
            Op::Acquire(LockId(6)),
            Op::Release(LockId(7)),
            Op::AcquireShared(LockId(8)),
            Op::ReleaseShared(LockId(9)),
            Op::Fork(ThreadId(10)),
            Op::Join(ThreadId(11)),
            Op::Signal(SyncId(12)),
            Op::Wait(SyncId(13)),
            Op::Arrive(SyncId(14)),
            Op::Depart(SyncId(15)),
            Op::Alloc(VarId(16)),
            Op::Reset(LockId(17)),
            Op::Exit,
        ];
        for (code, op) in (1..).filter(|&code| code != op::END_OF_LIFE).zip(ops) {
            let event = Event { thread: ThreadId(77), op, location: LocationId(u32::MAX) };
            let record = encode(&event);
            assert_eq!(record.op, code);
            assert_eq!(decode(record), Some(event));
        }
        let op = Op::CommutingUpdate(VarId(18));
        let event = Event { thread: ThreadId(77), op, location: LocationId(4) };
        let record_of_it = encode(&event);
        assert_eq!((record_of_it.op, decode(record_of_it)), (22, Some(event)));
        let others = [
            (23, Op::Follow(Some(RegionId(19)))),
            (24, Op::Follow(None)),
            (25, Op::Rest(RegionId(20))),
            (26, Op::Resume(RegionId(21))),
            (27, Op::Free(VarId(u32::MAX - 1))),
        ];
        for (code, op) in others {
            let event = Event { thread: ThreadId(7), op, location: LocationId(4) };
            let record = encode(&event);
            assert_eq!((record.op, decode(record)), (code, Some(event)));
        }
        let op = Op::Alloc(VarId(16));
        let earlier = record(op::END_OF_LIFE, 77, 16, 4);
        let event = Event { thread: ThreadId(77), op, location: LocationId(4) };
        assert_eq!(decode(earlier), Some(event));
        let op = Op::SplitVariable { from: VarId(3), to: VarId(u32::MAX - 1) };
        let split = Event { thread: ThreadId(77), op, location: NO_LOCATION };
        let record_of_it = encode(&split);
        assert_eq!((record_of_it.op, decode(record_of_it)), (21, Some(split)));
        for code in [0, 28, op::GAP] {
            assert_eq!(decode(record(code, 0, 0, 0)), None);
        }
        for lost in [None, Some(0), Some(u64::MAX - 1)] {
            assert_eq!(decode_gap(encode_gap(Gap { lost })), Gap { lost });
        }
    }

    #[test]
    fn records_have_a_form_that_is_not_packed() {
        let mut bytes = [0; EVENT];
        for (at, byte) in [(0, 5), (4, 7), (9, 1), (12, 0xff), (15, 0x80)] {
            bytes[at] = byte;
        }
        assert_eq!(Record::from_bytes(&bytes), record(op::WRITE, 7, 256, 0x8000_00ff));
        assert_eq!(Record::from_bytes(&bytes).to_bytes(), bytes);
    }
}
