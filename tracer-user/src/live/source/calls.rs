//! Calls of synchronisation functions, and joins.

use checker::{
    event::{Event, LocationId, Op, ThreadId},
    format::ObjectKind,
};
use tracer_ebpf::{CallRecord, FRAMES, InlinedRecord, Kind, PairRecord, ReturnRecord, SiteId};

use super::meaning::{in_line, result};
use super::{Item, JoinUnderWay, Source};
use crate::{
    live::{location::Location, sync::Call},
    probes::sync::{functions::CallSpec, site::SyncSite, slow_paths::FastPath},
};

/// Call that counts, from the record of its entry or its return.
pub(super) struct SeenCall {
    kind: Kind,
    tid: u32,
    site: SiteId,
    /// The argument that the object is.
    argument: u64,
    /// Another argument; 0 where none counts.
    other: u64,
    /// The result, at a return; else 0.
    result: i32,
    /// The stack pointer in the caller.
    sp: u64,
    frames: [u64; FRAMES],
}

impl SeenCall {
    pub(super) const fn entry(kind: Kind, record: &CallRecord) -> Self {
        let CallRecord { header, argument, sp, frames, .. } = *record;
        Self { kind, tid: header.tid, site: header.site, argument, other: 0, result: 0, sp, frames }
    }

    pub(super) const fn pair(kind: Kind, record: &PairRecord) -> Self {
        let PairRecord { header, argument, other, sp, frames, .. } = *record;
        Self { kind, tid: header.tid, site: header.site, argument, other, result: 0, sp, frames }
    }

    pub(super) const fn end(kind: Kind, record: &ReturnRecord) -> Self {
        let ReturnRecord { header, result, argument, sp, frames, .. } = *record;
        Self { kind, tid: header.tid, site: header.site, argument, other: 0, result, sp, frames }
    }
}

/// Operation on a synchronisation object, by a call or in line.
struct Operation {
    kind: Kind,
    tid: u32,
    spec: CallSpec,
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
    stack: Location,
}

impl Source {
    fn join_starts(&mut self, call: &SeenCall, sink: &mut impl FnMut(Item)) {
        let joiner = self.thread(call.tid);
        self.at(joiner, call.sp, sink);
        let pthread = call.argument;
        let thread = self.by_pthread.get(&pthread).copied();
        let joins = &mut self.threads[joiner.index()].joins;
        // Calls that were made from here or deeper have failed, or something unwound them.
        joins.retain(|join| join.sp > call.sp);
        joins.push(JoinUnderWay { sp: call.sp, pthread, thread });
    }

    /// Returns the thread that a returning join has joined, unless that join was reported before.
    fn joined(&mut self, joiner: ThreadId, pthread: u64) -> Option<ThreadId> {
        let joins = &mut self.threads[joiner.index()].joins;
        let place = joins.iter().rposition(|join| join.pthread == pthread);
        let Some(thread) = place.and_then(|place| joins.drain(place..).next()?.thread) else {
            self.omissions.unknown_joins += 1;
            return None;
        };
        let was_joined = std::mem::replace(&mut self.threads[thread.index()].is_joined, true);
        // A join may be made of another one.
        (!was_joined).then_some(thread)
    }

    /// Handles a call that counts.
    pub(super) fn call(&mut self, call: &SeenCall, sink: &mut impl FnMut(Item)) {
        if call.kind == Kind::JoinStart {
            self.join_starts(call, sink);
            return;
        }
        let site = self.sites.get(call.site.number() as usize).and_then(|site| site.kind.sync());
        let Some(&SyncSite::Call { spec, object, .. }) = site else {
            self.omissions.foreign_records += 1;
            return;
        };
        let address = object.map_or(call.argument, |object| object.0);
        if self.is_of_runtime(spec.object, call.frames[0], address) {
            return;
        }
        let operation = Operation {
            kind: call.kind,
            tid: call.tid,
            spec,
            fast: in_line(spec),
            address,
            argument: call.argument,
            other: call.other,
            result: result(spec.role, call.result),
            value: None,
            sp: call.sp,
            code: call.frames[0],
            stack: Location::Call(call.frames),
        };
        self.synchronise(&operation, sink);
    }

    /// Handles an operation by an instruction in line.
    pub(super) fn inlined(&mut self, record: &InlinedRecord, sink: &mut impl FnMut(Item)) {
        let site = self.sites.get(record.header.site.number() as usize);
        let Some(&SyncSite::Inlined(place)) = site.and_then(|site| site.kind.sync()) else {
            self.omissions.foreign_records += 1;
            return;
        };
        // Numbers that count something are small, and some have two bytes.
        let value = record.eax as u16;
        if place.if_one && value != 1 {
            return;
        }
        let mut frames = record.frames;
        frames[0] = place.at.0;
        let operation = Operation {
            kind: place.kind,
            tid: record.header.tid,
            spec: place.spec,
            fast: Some(place.fast),
            address: record.address.wrapping_add(place.plus),
            argument: record.address,
            other: 0,
            result: 0,
            value: Some(value),
            sp: record.sp,
            code: record.frames[0],
            stack: Location::Access(frames),
        };
        self.synchronise(&operation, sink);
    }

    fn synchronise(&mut self, done: &Operation, sink: &mut impl FnMut(Item)) {
        let Operation { kind, spec, address, value, sp, .. } = *done;
        let thread = self.thread(done.tid);
        let location = self.locations.stack(done.stack, &mut self.symbolizer);
        // That a routine has run is seen in the midst of a call of a once function.
        let is_midst = (kind, spec.object) == (Kind::Signal, ObjectKind::Once);
        if !is_midst && self.is_inside_probed(location, done.code) {
            if let Some(value) = value.filter(|_| spec.object == ObjectKind::Semaphore) {
                self.syncs.begin_take(thread, address, value);
            }
            return;
        }
        if kind != Kind::ConditionWake {
            self.acts_at(thread, sp, sink);
        }
        if kind == Kind::Release {
            self.region_stacks.release(thread, sp);
            self.emit_changes(thread, sink);
        } else {
            self.at(thread, sp, sink);
        }
        if kind == Kind::Enter {
            self.threads[thread.index()].entered = Some((location, sp));
            return;
        }
        let is_step = spec.object == ObjectKind::Channel;
        let entered = if is_step { self.threads[thread.index()].entered.take() } else { None };
        let location = match entered {
            Some((place, entered_sp)) if sp < entered_sp => place,
            _ => location,
        };
        if kind == Kind::Create {
            self.threads[thread.index()].creates_at = Some(location);
            return;
        }
        if kind == Kind::Join {
            if let Some(joined) = self.joined(thread, done.argument) {
                self.emit(thread, Op::Join(joined), location, sink);
            }
            return;
        }
        let call = Call {
            thread,
            kind,
            object: spec.object,
            fast: done.fast,
            address,
            second: done.other,
            result: done.result,
            value,
            sp,
            location,
        };
        let Self { syncs, events, .. } = self;
        syncs.call(&call, &mut |op, location| {
            *events += 1;
            sink(Item::Event(Event { thread, op, location }));
        });
        if kind == Kind::Release {
            self.region_stacks.released(thread);
            self.emit_changes(thread, sink);
        }
    }

    /// Returns whether a call is a step of another one that is recorded as a whole: `mtx_lock` calls
    /// `pthread_mutex_lock`.
    #[inline]
    fn is_inside_probed(&mut self, location: LocationId, return_address: u64) -> bool {
        let index = location.index();
        if index >= self.inside_probed.len() {
            self.inside_probed.resize(index + 1, None);
        }
        *self.inside_probed[index].get_or_insert_with(|| {
            // A return address is behind its call, which may be the function's last instruction.
            self.probed.iter().any(|&(start, end)| start < return_address && return_address <= end)
        })
    }
}
