//! Calls of synchronisation functions, and joins.

use checker::{
    event::{Event, LocationId, Op, ThreadId},
    format::ObjectKind,
};
use tracer_ebpf::{Kind, SyncRecord};

use super::meaning::{in_line, result};
use super::{Item, JoinUnderWay, Source};
use crate::{
    live::{location::Location, sync::Call},
    probes::sync::site::{InlinedPlace, SyncSite},
};

impl Source {
    fn join_starts(&mut self, record: &SyncRecord) {
        let thread = self.by_pthread.get(&record.object).copied();
        let joiner = self.thread(record.header.tid);
        let joins = &mut self.threads[joiner.index()].joins;
        // Calls that were made from here or deeper have failed, or something unwound them.
        joins.retain(|join| join.sp > record.sp);
        joins.push(JoinUnderWay { sp: record.sp, pthread: record.object, thread });
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

    pub(super) fn sync(
        &mut self,
        kind: Kind,
        record: &SyncRecord,
        second: u64,
        sink: &mut impl FnMut(Item),
    ) {
        if kind == Kind::JoinStart {
            let joiner = self.thread(record.header.tid);
            self.at(joiner, record.sp, sink);
            self.join_starts(record);
            return;
        }
        let site = self.sites.get(record.header.site as usize).and_then(|site| site.kind.sync());
        // A probe of a lock taken in line records the number that was there before, in `eax`.
        let value = matches!(site, Some(SyncSite::Inlined(_))).then_some(record.header.detail);
        let (spec, fast, address, stack) = match site {
            Some(&SyncSite::Call { spec, object, .. }) => {
                let address = object.map_or(record.object, |object| object.0);
                (spec, in_line(spec), address, Location::Call(record.frames))
            }
            Some(&SyncSite::Inlined(InlinedPlace { if_one: true, .. }))
                if record.header.detail != 1 =>
            {
                return;
            }
            Some(&SyncSite::Inlined(InlinedPlace { spec, fast, at, plus, .. })) => {
                let mut frames = record.frames;
                frames[0] = at.0;
                let address = record.object.wrapping_add(plus);
                (spec, Some(fast), address, Location::Access(frames))
            }
            _ => {
                self.omissions.foreign_records += 1;
                return;
            }
        };
        if value.is_none() && self.is_of_runtime(spec.object, record.frames[0], address) {
            return;
        }
        let thread = self.thread(record.header.tid);
        let location = self.locations.stack(stack, &mut self.symbolizer);
        // That a routine has run is seen in the midst of a call of a once function.
        let is_midst = (kind, spec.object) == (Kind::Signal, ObjectKind::Once);
        if !is_midst && self.is_inside_probed(location, record.frames[0]) {
            if let Some(value) = value.filter(|_| spec.object == ObjectKind::Semaphore) {
                self.syncs.begin_take(thread, address, value);
            }
            return;
        }
        if kind != Kind::ConditionWake {
            self.acts_at(thread, record.sp, sink);
        }
        if kind == Kind::Release {
            self.region_stacks.release(thread, record.sp);
            self.emit_changes(thread, sink);
        } else {
            self.at(thread, record.sp, sink);
        }
        if kind == Kind::Enter {
            self.threads[thread.index()].entered = Some((location, record.sp));
            return;
        }
        let is_step = spec.object == ObjectKind::Channel;
        let entered = if is_step { self.threads[thread.index()].entered.take() } else { None };
        let location = match entered {
            Some((place, sp)) if record.sp < sp => place,
            _ => location,
        };
        if kind == Kind::Create {
            self.threads[thread.index()].creates_at = Some(location);
            return;
        }
        if kind == Kind::Join {
            if let Some(joined) = self.joined(thread, record.object) {
                self.emit(thread, Op::Join(joined), location, sink);
            }
            return;
        }
        let call = Call {
            thread,
            kind,
            object: spec.object,
            fast,
            address,
            second,
            result: result(spec.role, record.header.detail),
            value,
            sp: record.sp,
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
