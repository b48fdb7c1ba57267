//! Calls of synchronisation functions, and joins: which of them count, for which object, at which place.

use checker::{
    event::{LocationId, Op, ThreadId},
    format::ObjectKind,
};
use tracer_ebpf::{Kind, SyncRecord};

use super::{
    call_effects::{in_line, result},
    context::Context,
    joins::{Joined, Joins},
    probed_code::ProbedCode,
    runtime::RuntimeCalls,
};
use crate::{
    live::{
        code_map::CodeMap,
        location::Location,
        sync::{Call, SyncObjects},
    },
    probes::{
        plan::SiteKind,
        sync::{
            functions::CallSpec,
            site::{InlinedPlace, SyncSite},
            slow_paths::FastPath,
        },
    },
};

/// Calls that a thread is in.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    /// Location and stack pointer of its call of a function of which the next step is a part.
    entered: Option<(LocationId, u64)>,
    /// Location at which it creates a thread, or last did.
    creates_at: Option<LocationId>,
}

/// Calls of a process.
#[derive(Debug, Default)]
pub(super) struct Calls {
    joins: Joins,
    runtime: RuntimeCalls,
    /// By thread.
    under_way: Vec<UnderWay>,
}

/// Function of a call, by its site.
#[derive(Clone, Copy, Debug)]
struct Callee {
    spec: CallSpec,
    fast: Option<FastPath>,
    address: u64,
    stack: Location,
    /// The number that was there before, which a probe of a lock taken in line records.
    value: Option<u16>,
}

/// Result of finding the function of a call.
#[derive(Clone, Copy, Debug)]
enum Found {
    Callee(Callee),
    /// The record is of a fast path that was not taken.
    NotTaken,
    Foreign,
}

fn callee(site: Option<&SyncSite>, record: &SyncRecord) -> Found {
    match site {
        Some(&SyncSite::Call { spec, object, .. }) => {
            let address = object.map_or(record.object, |object| object.0);
            let (fast, stack) = (in_line(spec), Location::Call(record.frames));
            Found::Callee(Callee { spec, fast, address, stack, value: None })
        }
        Some(&SyncSite::Inlined(InlinedPlace { if_one: true, .. }))
            if record.header.detail != 1 =>
        {
            Found::NotTaken
        }
        Some(&SyncSite::Inlined(InlinedPlace { spec, fast, at, plus, .. })) => {
            let mut frames = record.frames;
            frames[0] = at.0;
            Found::Callee(Callee {
                spec,
                fast: Some(fast),
                address: record.object.wrapping_add(plus),
                stack: Location::Access(frames),
                value: Some(record.header.detail),
            })
        }
        _ => Found::Foreign,
    }
}

impl Calls {
    /// Translates a call or its return; `second` is its second argument.
    pub(super) fn record<C: CodeMap>(
        &mut self,
        kind: Kind,
        (record, second): (&SyncRecord, u64),
        probed: &mut ProbedCode,
        syncs: &mut SyncObjects,
        cx: &mut Context<'_, C>,
    ) {
        if kind == Kind::JoinStart {
            let joiner = cx.threads.id(record.header.tid);
            cx.at(joiner, record.sp);
            self.joins.begin(joiner, record.object, record.sp);
            return;
        }
        let callee = match callee(cx.kind(record.header.site).and_then(SiteKind::sync), record) {
            Found::Callee(callee) => callee,
            Found::NotTaken => return,
            Found::Foreign => {
                cx.omissions.foreign_records += 1;
                return;
            }
        };
        let Callee { spec, fast, address, stack, value } = callee;
        let caller = record.frames[0];
        if value.is_none() && self.runtime.is_internal(spec.object, caller, address, cx.code) {
            return;
        }
        let thread = cx.threads.id(record.header.tid);
        let location = cx.stack(stack);
        // That a routine has run is seen in the midst of a call of a once function.
        let is_midst = (kind, spec.object) == (Kind::Signal, ObjectKind::Once);
        if !is_midst && probed.is_inside(location, caller) {
            if let Some(value) = value.filter(|_| spec.object == ObjectKind::Semaphore) {
                syncs.begin_take(thread, address, value);
            }
            return;
        }
        if kind != Kind::ConditionWake {
            let stream = &mut *cx.stream;
            syncs.acts_at(thread, record.sp, &mut |op, at| stream.emit(thread, op, at));
        }
        if kind == Kind::Release {
            cx.regions.release(thread, record.sp, cx.threads, cx.stream);
        } else {
            cx.at(thread, record.sp);
        }
        let Some(location) = self.place(kind, spec.object, thread, (location, record.sp)) else {
            return;
        };
        if kind == Kind::Join {
            match self.joins.end(thread, record.object) {
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
            fast,
            address,
            second,
            result: result(spec.role, record.header.detail),
            value,
            sp: record.sp,
            location,
        };
        let stream = &mut *cx.stream;
        syncs.call(&call, &mut |op, at| stream.emit(thread, op, at));
        if kind == Kind::Release {
            cx.regions.released(thread, cx.threads, cx.stream);
        }
    }

    /// Returns the location of a call that has an effect on an object: that of the function around it, of which it is
    /// a step. `None` for a call that only says where a later one is from.
    fn place(
        &mut self,
        kind: Kind,
        object: ObjectKind,
        thread: ThreadId,
        (location, sp): (LocationId, u64),
    ) -> Option<LocationId> {
        let under_way = self.of(thread);
        if kind == Kind::Enter {
            under_way.entered = Some((location, sp));
            return None;
        }
        let is_step = object == ObjectKind::Channel;
        let entered = if is_step { under_way.entered.take() } else { None };
        let location = match entered {
            Some((place, entered_at)) if sp < entered_at => place,
            _ => location,
        };
        if kind == Kind::Create {
            under_way.creates_at = Some(location);
            return None;
        }
        Some(location)
    }

    /// Notes a thread that is created. Returns the location of the call that creates it, if it is by a function that is
    /// probed, and whether the thread has an identity of its own.
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

    #[test]
    fn a_step_is_at_the_place_of_the_call_around_it() {
        let mut calls = Calls::default();
        assert_eq!(calls.place(Kind::Enter, ObjectKind::Channel, A, (HERE, 0x200)), None);
        let step =
            |calls: &mut Calls, sp| calls.place(Kind::Signal, ObjectKind::Channel, A, (THERE, sp));
        assert_eq!(step(&mut calls, 0x100), Some(HERE));
        assert_eq!(step(&mut calls, 0x100), Some(THERE), "the next is no step of it");
        calls.place(Kind::Enter, ObjectKind::Channel, A, (HERE, 0x200));
        assert_eq!(step(&mut calls, 0x300), Some(THERE), "its caller's");
        calls.place(Kind::Enter, ObjectKind::Channel, A, (HERE, 0x200));
        let other = calls.place(Kind::Acquire, ObjectKind::Mutex, A, (THERE, 0x100));
        assert_eq!((other, step(&mut calls, 0x100)), (Some(THERE), Some(HERE)));
    }

    #[test]
    fn a_thread_starts_where_it_was_created() {
        let mut calls = Calls::default();
        assert_eq!(calls.place(Kind::Create, ObjectKind::Thread, A, (HERE, 0x100)), None);
        assert_eq!(calls.create(A, B, 0x7f00), (Some(HERE), true));
        assert_eq!(calls.create(A, ThreadId(2), 0x7e00), (None, true), "by something else");
        assert_eq!(calls.create(B, ThreadId(3), 0x7f00), (None, false), "a bare clone");
    }
}
