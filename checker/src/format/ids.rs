//! Translation of the ids in events from one trace to another. The tables of ids are elsewhere.

use super::names::{IdSpace, NO_LOCATION, location_number};
use crate::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};

/// Returns an event with other ids. Locations that need no definition are the same in all traces.
///
/// # Errors
/// Those of `map`.
pub(super) fn translate<E>(
    event: &Event,
    mut map: impl FnMut(IdSpace, u32) -> Result<u32, E>,
) -> Result<Event, E> {
    let thread = ThreadId(map(IdSpace::Thread, event.thread.0)?);
    let location = translate_location(event.location, &mut map)?;
    let mut region = |id: RegionId| map(IdSpace::Region, id.0).map(RegionId);
    let op = match event.op {
        Op::Begin(id) => Op::Begin(region(id)?),
        Op::End(id) => Op::End(id.map(region).transpose()?),
        Op::Follow(id) => Op::Follow(id.map(region).transpose()?),
        Op::Rest(id) => Op::Rest(region(id)?),
        Op::Resume(id) => Op::Resume(region(id)?),
        Op::Read(id) => Op::Read(VarId(map(IdSpace::Variable, id.0)?)),
        Op::Write(id) => Op::Write(VarId(map(IdSpace::Variable, id.0)?)),
        Op::Update(id) => Op::Update(VarId(map(IdSpace::Variable, id.0)?)),
        Op::CommutingUpdate(id) => Op::CommutingUpdate(VarId(map(IdSpace::Variable, id.0)?)),
        Op::Alloc(id) => Op::Alloc(VarId(map(IdSpace::Variable, id.0)?)),
        Op::Free(id) => Op::Free(VarId(map(IdSpace::Variable, id.0)?)),
        Op::SplitVariable { from, to } => Op::SplitVariable {
            from: VarId(map(IdSpace::Variable, from.0)?),
            to: VarId(map(IdSpace::Variable, to.0)?),
        },
        Op::Acquire(id) => Op::Acquire(LockId(map(IdSpace::Lock, id.0)?)),
        Op::Release(id) => Op::Release(LockId(map(IdSpace::Lock, id.0)?)),
        Op::AcquireShared(id) => Op::AcquireShared(LockId(map(IdSpace::Lock, id.0)?)),
        Op::ReleaseShared(id) => Op::ReleaseShared(LockId(map(IdSpace::Lock, id.0)?)),
        Op::Reset(id) => Op::Reset(LockId(map(IdSpace::Lock, id.0)?)),
        Op::Fork(id) => Op::Fork(ThreadId(map(IdSpace::Thread, id.0)?)),
        Op::Join(id) => Op::Join(ThreadId(map(IdSpace::Thread, id.0)?)),
        Op::Signal(id) => Op::Signal(SyncId(map(IdSpace::Sync, id.0)?)),
        Op::Wait(id) => Op::Wait(SyncId(map(IdSpace::Sync, id.0)?)),
        Op::Arrive(id) => Op::Arrive(SyncId(map(IdSpace::Sync, id.0)?)),
        Op::Depart(id) => Op::Depart(SyncId(map(IdSpace::Sync, id.0)?)),
        Op::Exit => Op::Exit,
    };
    Ok(Event { thread, op, location })
}

/// Returns a location with another id, if it needs a definition.
///
/// # Errors
/// Those of `map`.
pub(super) fn translate_location<E>(
    location: LocationId,
    map: impl FnOnce(IdSpace, u32) -> Result<u32, E>,
) -> Result<LocationId, E> {
    if location == NO_LOCATION || location_number(location).is_some() {
        return Ok(location);
    }
    map(IdSpace::Location, location.0).map(LocationId)
}
