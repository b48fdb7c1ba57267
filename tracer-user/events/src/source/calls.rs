//! Calls of synchronisation functions, and joins: which of them count, for which object, at which place.

use abi::{CallRecord, FRAMES, InlinedRecord, Kind, PairRecord, ReturnRecord, SiteId};
use checker::{
    event::{LocationId, Op, ThreadId},
    format::ObjectKind,
};
use symbolize::ProcessAddr;

use super::{
    call_effects::{in_line, result},
    context::Context,
    joins::{Joined, Joins},
    runtime::RuntimeCalls,
};
use crate::{
    code_map::CodeMap,
    location::Location,
    sync::{Call, Known},
};
use plan::{
    plan::SiteKind,
    sync::{
        functions::CallSpec,
        site::{RecordedCallers, SyncSite},
        slow_paths::FastPath,
    },
};

/// Location at which a thread acts, with its stack pointer there.
#[derive(Clone, Copy, Debug)]
struct StackPoint {
    location: LocationId,
    sp: u64,
}

/// Calls that a thread is in.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    /// Its call of a function of which the next step is a part.
    entered: Option<StackPoint>,
    /// Location at which it creates a thread, or last did.
    creates_at: Option<LocationId>,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    joins: Joins,
    runtime: RuntimeCalls,
    /// By thread.
    under_way: Vec<UnderWay>,
}

/// Call that counts, from the record of its entry or its return.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenCall<'a> {
    kind: Kind,
    tid: u32,
    site: SiteId,
    /// The argument that the object is.
    argument: u64,
    /// Another argument, or 0.
    other: u64,
    /// The result, at a return; else 0.
    result: i32,
    /// The stack pointer in the caller.
    sp: u64,
    frames: &'a [u64; FRAMES],
}

impl<'a> SeenCall<'a> {
    #[inline]
    pub(super) const fn entry(kind: Kind, record: &'a CallRecord) -> Self {
        let CallRecord { header, argument, sp, ref frames, .. } = *record;
        Self { kind, tid: header.tid, site: header.site, argument, other: 0, result: 0, sp, frames }
    }

    #[inline]
    pub(super) const fn pair(kind: Kind, record: &'a PairRecord) -> Self {
        let PairRecord { header, argument, other, sp, ref frames, .. } = *record;
        Self { kind, tid: header.tid, site: header.site, argument, other, result: 0, sp, frames }
    }

    #[inline]
    pub(super) const fn end(kind: Kind, record: &'a ReturnRecord) -> Self {
        let ReturnRecord { header, result, argument, sp, ref frames, .. } = *record;
        Self { kind, tid: header.tid, site: header.site, argument, other: 0, result, sp, frames }
    }
}

/// Operation on a synchronisation object, by a call or in line.
#[derive(Clone, Copy, Debug)]
struct Operation<'a> {
    kind: Kind,
    tid: u32,
    spec: &'a CallSpec,
    /// Number of bytes of the object.
    bytes: u64,
    fast: Option<FastPath>,
    /// Process address of the object.
    address: u64,
    /// The recorded argument of a call; the recorded address of an operation in line.
    argument: u64,
    other: u64,
    result: i32,
    /// The number that was in memory before, of an operation in line.
    value: Option<u16>,
    sp: u64,
    /// Code that does it: where a call returns to, or the probe point.
    code: u64,
    /// Location of its stack.
    location: LocationId,
}

impl Calls {
    /// Translates a call or its return.
    pub(super) fn call<C: CodeMap>(&mut self, call: &SeenCall<'_>, cx: &mut Context<'_, C>) {
        if call.kind == Kind::JoinStart {
            let joiner = cx.threads.id(call.tid);
            cx.at(joiner, call.sp);
            self.joins.begin(joiner, call.argument, call.sp);
            return;
        }
        let site = cx.kind(call.site).and_then(SiteKind::sync);
        let Some(site @ SyncSite::Call { spec, object, extent, .. }) = site else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let address = object.map_or(call.argument, |object| object.0);
        let address = address.wrapping_add(extent.map_or(0, |extent| extent.plus));
        let code = call.frames[0];
        if self.runtime.is_internal(spec.object, code, address, cx.code) {
            return;
        }
        let location = cx.locations.call(call.frames, cx.code);
        let fast = match extent {
            // Others of its steps may be in line.
            Some(_) if spec.role.releases() => Some(FastPath::Release),
            Some(_) => Some(FastPath::Acquire),
            None => in_line(*spec),
        };
        let is_of_mutex = spec.object == ObjectKind::Mutex
            && matches!(call.kind, Kind::Acquire | Kind::Release)
            && fast.is_none();
        if is_of_mutex && Self::mutex(call, site, address, location, cx) {
            return;
        }
        let operation = Operation {
            kind: call.kind,
            tid: call.tid,
            spec,
            bytes: cx.probed.object_bytes(call.site.number(), site),
            fast,
            address,
            argument: call.argument,
            other: call.other,
            result: result(spec.role, call.result),
            value: None,
            sp: call.sp,
            code,
            location,
        };
        self.synchronise(&operation, cx);
    }

    /// Translates a call that acquires or releases a mutex by functions alone, the most frequent operation. Returns
    /// `false`, and does nothing, if it needs [`synchronise`](Self::synchronise).
    #[inline]
    fn mutex<C: CodeMap>(
        call: &SeenCall<'_>,
        site: &SyncSite,
        address: u64,
        location: LocationId,
        cx: &mut Context<'_, C>,
    ) -> bool {
        let SeenCall { kind, sp, .. } = *call;
        let thread = cx.threads.id(call.tid);
        if cx.probed.is_inside(location, call.frames[0]) {
            return true;
        }
        let (releases, object) = (kind == Kind::Release, ObjectKind::Mutex);
        let Context { syncs, probed, regions, threads, stream, .. } = cx;
        let bytes = || probed.object_bytes(call.site.number(), site);
        let known = || Known { address, object, bytes: bytes(), first_used: location };
        let Some(op) = syncs.mutex(thread, releases, address, known) else { return false };
        if releases {
            regions.release(thread, sp, threads, stream);
            stream.emit(thread, op, location);
            regions.released(thread, threads, stream);
        } else {
            regions.at(thread, sp, threads, stream);
            stream.emit(thread, op, location);
        }
        true
    }

    /// Translates an operation by an instruction in line.
    pub(super) fn inlined<C: CodeMap>(&mut self, record: &InlinedRecord, cx: &mut Context<'_, C>) {
        let site = cx.kind(record.header.site).and_then(SiteKind::sync);
        let Some(site @ SyncSite::Inlined(place)) = site else {
            cx.omissions.foreign_records += 1;
            return;
        };
        // Numbers that count something are small, and some have two bytes.
        let value = record.eax as u16;
        if place.if_one && value != 1 {
            return;
        }
        let mut frames = record.frames;
        frames[0] = place.at.0;
        let certain = match &place.callers {
            RecordedCallers::Chain => None,
            RecordedCallers::One => Some(frames[1]),
            RecordedCallers::OneOf(known) => {
                let is_known = known.binary_search(&ProcessAddr(frames[1])).is_ok();
                Some(if is_known { frames[1] } else { 0 })
            }
        };
        let location = match certain {
            None => cx.stack(Location::Access(frames)),
            Some(caller) => cx.locations.certain(Location::Access([frames[0], caller, 0, 0, 0, 0])),
        };
        let operation = Operation {
            kind: place.kind,
            tid: record.header.tid,
            spec: &place.spec,
            bytes: cx.probed.object_bytes(record.header.site.number(), site),
            fast: Some(place.fast),
            address: record.address.wrapping_add(place.plus),
            argument: record.address,
            other: 0,
            result: 0,
            value: Some(value),
            sp: record.sp,
            code: record.frames[0],
            location,
        };
        self.synchronise(&operation, cx);
    }

    #[inline]
    fn synchronise<C: CodeMap>(&mut self, done: &Operation<'_>, cx: &mut Context<'_, C>) {
        let Operation { kind, spec, address, value, sp, location, .. } = *done;
        let thread = cx.threads.id(done.tid);
        // That a routine has run is seen in the midst of a call of a once function.
        let is_midst = (kind, spec.object) == (Kind::Signal, ObjectKind::Once);
        if !is_midst && cx.probed.is_inside(location, done.code) {
            if let Some(value) = value.filter(|_| spec.object == ObjectKind::Semaphore) {
                cx.syncs.begin_take(thread, address, value);
            }
            return;
        }
        if kind != Kind::ConditionWake {
            cx.end_waits(thread, sp);
        }
        if kind == Kind::Release {
            cx.regions.release(thread, sp, cx.threads, cx.stream);
        } else {
            cx.at(thread, sp);
        }
        let Some(location) = self.place(kind, spec.object, thread, StackPoint { location, sp })
        else {
            return;
        };
        if kind == Kind::Join {
            match self.joins.end(thread, done.argument) {
                Joined::Thread(joined) => cx.stream.emit(thread, Op::Join(joined), location),
                Joined::Again => {}
                Joined::Unknown => cx.omissions.unknown_joins += 1,
            }
            return;
        }
        let call = Call {
            thread,
            kind,
            object: spec.object,
            fast: done.fast,
            address,
            bytes: done.bytes,
            second: done.other,
            result: done.result,
            value,
            sp,
            location,
        };
        let memory = &mut *cx.memory;
        let set = || memory.add_state(address, done.bytes);
        if let Some(access) = cx.syncs.access_to_waiters(&call, set) {
            cx.stream.emit(thread, access, location);
        }
        let stream = &mut *cx.stream;
        cx.syncs.call(&call, &mut |op, at| stream.emit(thread, op, at));
        if kind == Kind::Release {
            cx.regions.released(thread, cx.threads, cx.stream);
        }
    }

    /// Returns the location of a call that has an effect on an object. For a step of another function, this is the
    /// location of the call of that function. `None` for a call that only provides the location of a later step.
    fn place(
        &mut self,
        kind: Kind,
        object: ObjectKind,
        thread: ThreadId,
        point: StackPoint,
    ) -> Option<LocationId> {
        let under_way = self.of(thread);
        if kind == Kind::Enter {
            under_way.entered = Some(point);
            return None;
        }
        let is_step = object == ObjectKind::Channel;
        let entered = if is_step { under_way.entered.take() } else { None };
        let location = match entered {
            Some(entered) if point.sp < entered.sp => entered.location,
            _ => point.location,
        };
        if kind == Kind::Create {
            under_way.creates_at = Some(location);
            return None;
        }
        Some(location)
    }

    /// Notes a thread that is created. Returns the location of the call that creates it, if it is by a function that
    /// is probed, and whether the thread's identity differs from its parent's.
    pub(super) fn create(
        &mut self,
        parent: ThreadId,
        child: ThreadId,
        pthread: u64,
    ) -> (Option<LocationId>, bool) {
        let is_own = self.joins.create(parent, child, pthread);
        (self.of(parent).creates_at.take(), is_own)
    }

    /// Forgets the callers in a library that was unloaded.
    pub(super) fn unload(&mut self) {
        self.runtime.unload();
    }

    #[inline]
    fn of(&mut self, thread: ThreadId) -> &mut UnderWay {
        if self.under_way.len() <= thread.index() {
            self.under_way.resize(thread.index() + 1, UnderWay::default());
        }
        &mut self.under_way[thread.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ThreadId = ThreadId(0);
    const B: ThreadId = ThreadId(1);
    const HERE: LocationId = LocationId(1);
    const THERE: LocationId = LocationId(2);

    const fn here(sp: u64) -> StackPoint {
        StackPoint { location: HERE, sp }
    }

    const fn there(sp: u64) -> StackPoint {
        StackPoint { location: THERE, sp }
    }

    #[test]
    fn a_step_is_at_the_place_of_the_call_around_it() {
        let mut calls = Calls::default();
        assert_eq!(calls.place(Kind::Enter, ObjectKind::Channel, A, here(0x200)), None);
        let step =
            |calls: &mut Calls, sp| calls.place(Kind::Signal, ObjectKind::Channel, A, there(sp));
        assert_eq!(step(&mut calls, 0x100), Some(HERE));
        assert_eq!(step(&mut calls, 0x100), Some(THERE), "the next is no step of it");
        calls.place(Kind::Enter, ObjectKind::Channel, A, here(0x200));
        assert_eq!(step(&mut calls, 0x300), Some(THERE), "its caller's");
        calls.place(Kind::Enter, ObjectKind::Channel, A, here(0x200));
        let other = calls.place(Kind::Acquire, ObjectKind::Mutex, A, there(0x100));
        assert_eq!((other, step(&mut calls, 0x100)), (Some(THERE), Some(HERE)));
    }

    #[test]
    fn a_thread_starts_where_it_was_created() {
        let mut calls = Calls::default();
        assert_eq!(calls.place(Kind::Create, ObjectKind::Thread, A, here(0x100)), None);
        assert_eq!(calls.create(A, B, 0x7f00), (Some(HERE), true));
        assert_eq!(calls.create(A, ThreadId(2), 0x7e00), (None, true), "by something else");
        assert_eq!(calls.create(B, ThreadId(3), 0x7f00), (None, false), "a bare clone");
    }
}
