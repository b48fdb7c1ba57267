//! Accesses to memory: of probed instructions, of watchpoint hits, and deferred ones. An access that a probe and a
//! watchpoint both see counts once.

use std::ops::Range;

use abi::{AccessRecord, LastAccess, OwnedRecord, WatchpointRecord};
use checker::{
    event::{EventNumber, LocationId, Op},
    format::ObservedValue,
};
use plan::{
    memory::site::{AccessPlace, MemorySite},
    plan::SiteKind,
};
use symbolize::ProcessAddr;
use x86::commuting::CommutingUpdate;

use super::{
    context::Context,
    hit_decoder::{Caller, Decoded, HitDecoder},
    memory::ProcessMemory,
    seen_access::{
        AccessEffect, AccessSource, CURRENT_EPOCH, Moment, Operation, ProbedValue, SeenAccess,
    },
    sync_words::{PossibleStep, SyncWords},
    watches::Watches,
};
use crate::{
    code_map::CodeMap,
    counters::Counters,
    dedup::{AccessDedup, ProbedInstruction},
    deferred::{DeferredAccess, DeferredOperation},
    extent::Extent,
    location::Location,
    memory::Origin,
    read_words::ReadWords,
    shared_words::SharedWords,
    values::ValueAt,
    watchpoint_access::{Access, AccessKind},
    words::Step,
};

#[derive(Debug)]
pub(super) struct Accesses {
    /// Addresses at which the process can have memory.
    addresses: Range<u64>,
    watches: Watches,
    hits: HitDecoder,
    words: SyncWords,
    counters: Counters,
    read: ReadWords,
    dedup: AccessDedup,
    shared_words: SharedWords,
    /// Accesses are left out for a time.
    is_partial: bool,
}

impl Default for Accesses {
    fn default() -> Self {
        Self {
            addresses: 1..u64::MAX,
            watches: Watches::default(),
            hits: HitDecoder::default(),
            words: SyncWords::default(),
            counters: Counters::default(),
            read: ReadWords::default(),
            dedup: AccessDedup::default(),
            shared_words: SharedWords::default(),
            is_partial: false,
        }
    }
}

impl Accesses {
    /// Translates an access by a probed instruction, before or after it is made.
    pub(super) fn instruction<C: CodeMap>(
        &mut self,
        record: &AccessRecord,
        cx: &mut Context<'_, C>,
    ) {
        let header = record.header;
        let Some(&MemorySite::Access(place)) = cx.kind(header.site).and_then(SiteKind::memory)
        else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let thread = cx.threads.id(header.tid);
        cx.arrive(thread, record.sp);
        cx.before_access(thread, place.instruction, record.sp);
        let value = ProbedValue::of(record, place);
        let is_on_own_stack = record.flags & AccessRecord::OWN_STACK != 0;
        let mut frames = record.frames;
        frames[0] = place.instruction.0;
        let access = SeenAccess {
            source: AccessSource::Probe { place, value, is_on_own_stack },
            thread,
            epoch: CURRENT_EPOCH,
            extent: Extent { address: record.address, bytes: record.size },
            effect: AccessEffect::of(record),
            frames,
            commuting: place.commuting,
        };
        self.access(&access, cx);
    }

    /// Translates a hit of a watchpoint.
    pub(super) fn hit<C: CodeMap>(&mut self, record: &WatchpointRecord, cx: &mut Context<'_, C>) {
        let is_sample = record.is_sample != 0;
        let hit = self.watches.hit(ProcessAddr(record.address), is_sample);
        let Some((watch, length)) = hit else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let thread = cx.threads.id(record.header.tid);
        cx.arrive(thread, record.sp);
        let Some((access, kind)) = self.decode(record, is_sample, cx) else { return };
        let mut frames = record.frames;
        if let Some(access) = access {
            frames[0] = access.instruction.0;
            cx.before_access(thread, access.instruction, record.sp);
        }
        // An access to a named range is reported unchanged.
        let commuting = access.filter(|access| is_sample && access.bytes == length);
        let source = if is_sample {
            let caller = self.hits.caller(access, record.top, cx.probed, cx.code);
            AccessSource::Sample { watch, access, caller }
        } else {
            AccessSource::NamedRange { watch, value: record.value }
        };
        let access = SeenAccess {
            source,
            thread,
            epoch: CURRENT_EPOCH,
            extent: Extent { address: record.address, bytes: length },
            effect: kind.into(),
            frames,
            commuting: commuting.and_then(|access| access.commuting),
        };
        self.access(&access, cx);
    }

    /// Decodes the instruction of a hit: its access, if known, and the kind of access that happened. `None` where the
    /// hit does not count.
    fn decode<C: CodeMap>(
        &mut self,
        record: &WatchpointRecord,
        is_sample: bool,
        cx: &mut Context<'_, C>,
    ) -> Option<(Option<Access>, AccessKind)> {
        let Decoded { access, is_of_lock } = self.hits.decode(record, cx.sites, cx.code);
        if is_of_lock {
            cx.omissions.lock_accesses += 1;
            return None;
        }
        let access = match access {
            Ok(access) => access,
            Err(reason) => {
                *cx.omissions.undecoded_accesses.entry(reason).or_default() += 1;
                return Some((None, AccessKind::Read));
            }
        };
        if access.is_masked {
            cx.omissions.masked_accesses += u64::from(!is_sample);
            return None;
        }
        let kind = access.what.done(record.flags);
        let trust = self.hits.trust(access.instruction, cx.sites, cx.code);
        if !trust.counts(!is_sample, kind.writes(), access.bytes) {
            cx.omissions.library_accesses += 1;
            return None;
        }
        Some((Some(access), kind))
    }

    /// Translates a record of deferred accesses: accesses by a thread to memory that it owned. The back end reports
    /// them when another thread arrives.
    pub(super) fn owned<C: CodeMap>(&mut self, record: &OwnedRecord, cx: &mut Context<'_, C>) {
        if record.write.epoch != 0 {
            self.deferred(record, record.write, AccessEffect::WRITE, cx);
        }
        // A read before a write of the same bytes needs no special case: the checker ignores it.
        if record.read.epoch != 0 {
            self.deferred(record, record.read, AccessEffect::READ, cx);
        }
    }

    fn deferred<C: CodeMap>(
        &mut self,
        record: &OwnedRecord,
        last: LastAccess,
        effect: AccessEffect,
        cx: &mut Context<'_, C>,
    ) {
        let LastAccess { epoch, sp, site, bytes } = last;
        // An access of a program that was replaced since has no thread in this one, and its site has no meaning here.
        let Some(thread) = cx.threads.in_epoch(record.owner, epoch) else { return };
        let Some(&MemorySite::Access(place)) = cx.kind(site).and_then(SiteKind::memory) else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let address = record.address + u64::from(bytes.trailing_zeros());
        let is_on_own_stack = cx.memory.is_on_own_stack(thread, address);
        let access = SeenAccess {
            source: AccessSource::Deferred {
                place,
                sp,
                is_on_own_stack,
                acting: record.header.tid,
            },
            thread,
            epoch,
            extent: Extent { address, bytes: bytes.count_ones().into() },
            effect,
            frames: [place.instruction.0, 0, 0, 0, 0, 0],
            commuting: None,
        };
        self.access(&access, cx);
    }

    /// Translates an access to events, if it counts.
    fn access<C: CodeMap>(&mut self, access: &SeenAccess, cx: &mut Context<'_, C>) {
        if self.admit(access, cx) {
            self.translate(access, cx);
        }
    }

    fn admit<C: CodeMap>(&mut self, access: &SeenAccess, cx: &mut Context<'_, C>) -> bool {
        let &SeenAccess { thread, extent: Extent { address, .. }, .. } = access;
        match access.source {
            AccessSource::Probe { place, is_on_own_stack, .. }
            | AccessSource::Deferred { place, is_on_own_stack, .. } => {
                if !self.admit_probed(access, place, cx) {
                    return false;
                }
                if is_on_own_stack {
                    cx.memory.touched_own_stack(thread, address);
                }
                !(self.is_partial && (is_on_own_stack || is_on_stack(address, cx.memory)))
            }
            AccessSource::Sample { caller: Caller::Library, .. } => {
                cx.omissions.library_accesses += 1;
                false
            }
            AccessSource::Sample { access: decoded, caller, .. } => {
                self.admit_sample(access, decoded, caller, cx)
            }
            AccessSource::NamedRange { .. } => true,
        }
    }

    /// Returns whether an access that a probe has seen counts: the process can have memory there, it is not to a lock's
    /// own memory, and no watchpoint reports it.
    fn admit_probed<C: CodeMap>(
        &mut self,
        access: &SeenAccess,
        place: AccessPlace,
        cx: &mut Context<'_, C>,
    ) -> bool {
        let &SeenAccess { thread, extent, .. } = access;
        if !extent.is_within(&self.addresses) {
            cx.omissions.impossible_accesses += 1;
            return false;
        }
        if cx.syncs.is_at(extent.address) {
            cx.omissions.lock_accesses += 1;
            return false;
        }
        let instruction = place.instruction.0;
        if place.stores {
            self.words.known(instruction, Step::Store);
        }
        if place.polls {
            self.words.known(instruction, Step::Poll);
        }
        // Accesses to a named range are reported by its watchpoint, in its order and with its value.
        let probed = ProbedInstruction { group: place.group, instruction };
        !self.watches.report(thread, instruction, extent)
            && self.dedup.admit_probe(thread, probed, extent)
    }

    /// Returns whether the hit of a sampling watchpoint counts: it is to the whole of the range, and neither a probe
    /// beside the instruction, or beside the call that it is made for, nor a watchpoint that was named reports it.
    fn admit_sample<C>(
        &mut self,
        access: &SeenAccess,
        decoded: Option<Access>,
        caller: Caller,
        cx: &Context<'_, C>,
    ) -> bool {
        let &SeenAccess { thread, extent, .. } = access;
        let is_whole = decoded
            .is_some_and(|access| access.bytes >= extent.bytes && !access.is_last_owner_test);
        if !is_whole || self.watches.is_named(extent.address, extent.bytes) {
            return false;
        }
        let instruction = match caller {
            Caller::Probed(call) => call,
            _ => access.instruction(),
        };
        cx.probed.group_of(instruction).is_none_or(|group| {
            let probed = ProbedInstruction { group, instruction };
            self.dedup.admit_watchpoint(thread, probed, extent.address)
        })
    }

    fn translate<C: CodeMap>(&mut self, access: &SeenAccess, cx: &mut Context<'_, C>) {
        let &SeenAccess { thread, extent, effect, .. } = access;
        let Some(since) = variable_since(access, cx.memory) else { return };
        if let Some(group) = access.group() {
            cx.regions.accessed(thread, access.epoch, group, cx.stream);
        }
        let location = cx.stack(Location::Access(access.frames));
        if access.is_of_library() {
            if self.synchronises(access, since, location, cx) {
                cx.omissions.word_accesses += 1;
            } else {
                cx.omissions.lock_accesses += 1;
            }
            return;
        }
        // A deferred access to a word that synchronises makes no variable of it.
        if !access.is_deferred() {
            self.touch(access, cx);
            if cx.memory.touched().is_empty() {
                cx.omissions.freed_accesses += 1;
                return;
            }
        }
        if self.synchronises(access, since, location, cx) {
            cx.omissions.word_accesses += 1;
            return;
        }
        let commutes = access.commuting.is_some_and(|update| self.commutes(access, update, cx));
        if effect.reads() && access.commuting.is_none() {
            self.note_read(access, cx);
        }
        if access.is_deferred() {
            self.touch(access, cx);
        }
        let mut value = None;
        if let AccessSource::NamedRange { watch, value: after } = access.source {
            value = Some(self.watches.observe(watch, after, effect.writes()));
            if self.watches.counted_early(thread, access.instruction(), watch) {
                return;
            }
        }
        let is_store = || self.words.is_store(access.instruction(), cx.code);
        let operations = if commutes {
            [Some(Op::CommutingUpdate as _), None]
        } else {
            effect.operations(is_store)
        };
        for operation in operations.into_iter().flatten() {
            self.emit(access, Emission { operation, location, since, value }, cx);
        }
        if !matches!(access.source, AccessSource::NamedRange { .. }) {
            self.shared_words.touched(thread, extent.address, extent.bytes, effect.writes());
        }
    }

    /// Finds the variables of an access.
    fn touch<C>(&self, access: &SeenAccess, cx: &mut Context<'_, C>) {
        let acting = match access.source {
            AccessSource::Deferred { acting, .. } => cx.threads.id(acting),
            _ => access.thread,
        };
        cx.memory.touch(access.thread, acting, access.extent, cx.stream);
        if cx.memory.touched().is_empty() && matches!(access.source, AccessSource::Probe { .. }) {
            cx.memory.use_freed(access.thread, access.extent, cx.stream);
        }
        if let Some(watch) = access.watch()
            && self.watches.has_label(watch)
        {
            cx.memory.touched_as(watch);
        }
    }

    /// Returns whether an access is a step of synchronisation. If so, its order is emitted.
    fn synchronises<C: CodeMap>(
        &mut self,
        access: &SeenAccess,
        since: EventNumber,
        location: LocationId,
        cx: &mut Context<'_, C>,
    ) -> bool {
        let &SeenAccess { thread, epoch, extent, effect, .. } = access;
        let step = PossibleStep {
            thread,
            instruction: access.instruction(),
            extent,
            reads: effect.reads(),
            writes: effect.writes(),
            transaction: cx.regions.transaction(thread, epoch),
            location,
        };
        match access.source {
            AccessSource::NamedRange { .. } => false,
            AccessSource::Probe { .. } | AccessSource::Sample { .. } => {
                self.words.access(&step, cx.syncs, cx.code, cx.stream)
            }
            AccessSource::Deferred { sp, .. } => {
                let Some(signal) = self.words.deferred(&step, cx.syncs, cx.code) else {
                    return false;
                };
                if let Some(id) = signal {
                    let what = DeferredOperation::Signal(id);
                    cx.stream.defer(DeferredAccess { thread, epoch, sp, since, what, location });
                }
                true
            }
        }
    }

    /// Returns whether an update by a commuting instruction commutes with other threads' updates. It does not if the
    /// region has read the variable before: the value read may decide on the update.
    fn commutes<C>(
        &mut self,
        access: &SeenAccess,
        update: CommutingUpdate,
        cx: &Context<'_, C>,
    ) -> bool {
        let &SeenAccess { thread, epoch, extent, .. } = access;
        let execution = cx.regions.execution(thread, epoch);
        let was_read =
            execution.is_some_and(|number| self.read.contains(thread, number, extent.address));
        self.counters.update(thread, extent, update, cx.stream.held().of(thread)) && !was_read
    }

    /// Notes a read by a thread that is in a region.
    fn note_read<C>(&mut self, access: &SeenAccess, cx: &Context<'_, C>) {
        if let Some(execution) = cx.regions.execution(access.thread, access.epoch) {
            self.read.read(access.thread, execution, access.extent.address);
        }
    }

    /// Emits an operation of an access on each of its variables.
    fn emit<C>(&mut self, access: &SeenAccess, emission: Emission, cx: &mut Context<'_, C>) {
        let &SeenAccess { thread, epoch, effect, .. } = access;
        let Emission { operation, location, since, value } = emission;
        if let AccessSource::Probe { value: Some(value), .. } = access.source
            && let &[variable] = cx.memory.touched()
        {
            let ProbedValue { value, length, moment } = value;
            let (event, is_shared) = (cx.stream.events(), cx.memory.is_shared(variable));
            let at = ValueAt { event, variable, value, length, is_shared };
            self.note_value(at, operation(variable), moment, effect.writes());
        }
        for &variable in cx.memory.touched() {
            let op = operation(variable);
            match value {
                Some(value) => self.watches.store(value_at(op, value, cx.stream.events())),
                None if effect.writes() && !matches!(access.source, AccessSource::Probe { .. }) => {
                    self.watches.values_mut().written_unseen(variable);
                }
                None => {}
            }
            let AccessSource::Deferred { sp, .. } = access.source else {
                cx.stream.emit(thread, op, location);
                continue;
            };
            let what = if effect.writes() {
                DeferredOperation::Write(variable)
            } else {
                DeferredOperation::Read(variable)
            };
            cx.stream.defer(DeferredAccess { thread, epoch, sp, since, what, location });
        }
    }

    /// Notes the value of a variable at some moment of an operation; its instruction `writes`.
    fn note_value(&mut self, at: ValueAt, op: Op, moment: Moment, writes: bool) {
        let values = self.watches.values_mut();
        match (op, moment) {
            (Op::Read(_), Moment::Before) => values.read(at),
            (Op::Read(_), Moment::After) if !writes => values.read(at),
            (Op::Read(_), _) => {}
            (_, Moment::Before) => values.written_over(at),
            (_, Moment::After) => values.written(at),
            (_, Moment::Other) => values.written_unseen(at.variable),
        }
    }

    /// Sets the addresses at which the process can have memory.
    pub(super) const fn set_addresses(&mut self, addresses: Range<u64>) {
        self.addresses = addresses;
    }

    /// Forgets the state of an earlier lifetime of a range of memory.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.shared_words.forget(range);
        self.words.forget(range);
        self.counters.forget(range);
        self.watches.forget(range);
    }

    /// Forgets the state that belongs to a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<ProcessAddr>) {
        let addresses = range.start.0..range.end.0;
        self.hits.unload(&addresses);
        self.words.unload(&addresses);
        self.watches.unload(range);
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.words.gap();
        self.watches.values_mut().gap();
    }

    /// Notes that accesses are left out for a time from now on; returns `false` if they were before. Stack data
    /// becomes unknown, since returns are detected from accesses, which are now incomplete. Values become unknown too:
    /// another thread may have changed them in an access that was left out.
    pub(super) fn become_partial(&mut self) -> bool {
        if std::mem::replace(&mut self.is_partial, true) {
            return false;
        }
        self.words.become_partial();
        self.watches.values_mut().become_partial();
        true
    }

    /// Notes that the probes of a group were attached or detached; `threads` is the number of threads seen so far.
    pub(super) fn set_attached(&mut self, group: usize, is_attached: bool, threads: usize) {
        if is_attached {
            self.dedup.attached(group);
        } else {
            self.dedup.detached(group, threads);
        }
    }

    pub(super) const fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Returns the watched ranges, to add some.
    pub(super) const fn watches_mut(&mut self) -> &mut Watches {
        &mut self.watches
    }

    /// Returns the words worth a watchpoint.
    pub(super) const fn shared_words(&self) -> &SharedWords {
        &self.shared_words
    }

    /// Returns the words worth a watchpoint, to add some.
    pub(super) const fn shared_words_mut(&mut self) -> &mut SharedWords {
        &mut self.shared_words
    }
}

/// Operation of an access that is emitted.
#[derive(Clone, Copy)]
struct Emission {
    operation: Operation,
    location: LocationId,
    /// First event at which the memory belonged to the variables, of a deferred access.
    since: EventNumber,
    /// Value of a named range.
    value: Option<ObservedValue>,
}

/// Returns whether an address is on a stack of which several threads have accessed a part.
fn is_on_stack(address: u64, memory: &ProcessMemory) -> bool {
    memory.has_own_stacks()
        && memory.block(address).is_some_and(|block| block.origin == Origin::Stack)
}

/// Returns the first event from which on the memory of a deferred access has its present variables. It is 0 if they
/// are older than the access, and for accesses that are not deferred. `None` if the access was to an earlier block.
fn variable_since(access: &SeenAccess, memory: &ProcessMemory) -> Option<EventNumber> {
    if !access.is_deferred() {
        return Some(0);
    }
    match memory.block(access.extent.address) {
        Some(block) if block.thread != access.thread => Some(block.born.event),
        Some(block) if access.epoch < block.born.epoch => None,
        _ => Some(0),
    }
}

/// Returns the value of a named range at an operation, which is the next event. The read of an access that reads and
/// then writes has the value before.
fn value_at(op: Op, value: ObservedValue, event: EventNumber) -> ObservedValue {
    if matches!(op, Op::Read(_)) && value.written {
        let after = value.before.unwrap_or(value.after);
        return ObservedValue { event, after, written: false, ..value };
    }
    ObservedValue { event, ..value }
}
