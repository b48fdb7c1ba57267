//! Accesses to memory: of probed instructions, of watchpoint hits, and deferred ones. An access that a probe and a
//! watchpoint both see counts once.

use std::cmp::Ordering;

use std::ops::Range;

use abi::{AccessDescriptor, AccessRecord, LastAccess, OwnedRecord, WatchpointRecord};
use checker::{
    event::{EventNumber, LocationId, Op, ThreadId, VarId},
    format::ObservedValue,
};
use symbolize::ProcessAddr;
use x86::commuting::CommutingUpdate;

use super::{
    context::Context,
    hit_decoder::{Caller, Decoded, HitDecoder},
    memory::ProcessMemory,
    probed_code::ProbedCode,
    sync_words::{PossibleStep, SyncWords},
    watches::Watches,
};
use crate::{
    code_map::CodeMap,
    counters::Counters,
    dedup::AccessDedup,
    deferred::{DeferredAccess, DeferredOperation},
    location::Location,
    memory::Origin,
    read_words::ReadWords,
    shared_words::SharedWords,
    sync::SyncObjects,
    values::ValueAt,
    watchpoint_access::{Access, AccessKind},
};
use plan::{
    memory::site::{AccessPlace, MemorySite},
    plan::SiteKind,
};

/// Makes an operation on a variable.
type Operation = fn(VarId) -> Op;

/// Moment at which a probe saw a value.
#[derive(Clone, Copy)]
enum Moment {
    /// Before the access.
    Before,
    /// After it.
    After,
    /// Not known: the thread may have written to the same place in between.
    Other,
}

/// Translation of accesses.
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
        memory: &mut ProcessMemory,
        syncs: &mut SyncObjects,
        cx: &mut Context<'_, C>,
    ) {
        let header = record.header;
        let Some(&MemorySite::Access(place)) = cx.kind(header.site).and_then(SiteKind::memory)
        else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let thread = cx.threads.id(header.tid);
        arrive(thread, record.sp, syncs, cx);
        cx.before_access(thread, place.instruction, record.sp);
        let (address, bytes) = (record.address, record.size);
        if !self.is_possible((address, bytes), cx)
            || !self.admit(thread, place, (address, bytes), syncs, cx)
        {
            return;
        }
        let is_own_stack = record.flags & AccessRecord::OWN_STACK != 0;
        if is_own_stack {
            memory.touched_own_stack(thread, address);
        }
        if self.is_partial && (is_own_stack || is_on_stack(address, memory)) {
            return;
        }
        let mut frames = record.frames;
        frames[0] = place.instruction.0;
        let location = cx.stack(Location::Access(frames));
        memory.touch(thread, thread, (address, bytes), cx.stream);
        if memory.touched().is_empty() {
            cx.omissions.freed_accesses += 1;
            return;
        }
        let done = record.flags as u8;
        let writes = done & AccessDescriptor::WRITE != 0;
        let step = PossibleStep {
            thread,
            instruction: place.instruction.0,
            place: (address, bytes),
            reads: done & AccessDescriptor::READ != 0,
            writes,
            transaction: cx.regions.transaction(thread, u64::MAX),
            location,
        };
        if self.words.access(&step, syncs, cx.code, cx.stream) {
            cx.omissions.word_accesses += 1;
            return;
        }
        let both = AccessDescriptor::READ | AccessDescriptor::WRITE;
        let commutes =
            place.commuting.is_some_and(|update| self.commutes(thread, step.place, update, cx));
        if step.reads && place.commuting.is_none() {
            self.note_read(thread, address, u64::MAX, cx);
        }
        let ops: [Option<Operation>; 2] = match done & (both | AccessDescriptor::ATOMIC) {
            _ if commutes => [Some(Op::CommutingUpdate), None],
            AccessDescriptor::READ => [Some(Op::Read), None],
            AccessDescriptor::WRITE => [Some(Op::Write), None],
            done if done == both => [Some(Op::Read), Some(Op::Write)],
            _ if self.words.is_store(step.instruction, cx.code) => [Some(Op::Write), None],
            _ => [Some(Op::Update), None],
        };
        let moment = match record.frames[0].cmp(&place.instruction.0) {
            _ if !place.sees_value => Moment::Other,
            Ordering::Greater => Moment::After,
            _ => Moment::Before,
        };
        for op in ops.into_iter().flatten() {
            if let Some(at) = value_at(record, memory, cx.stream.events()) {
                self.note_value(at, op(at.variable), (moment, writes));
            }
            for &variable in memory.touched() {
                cx.stream.emit(thread, op(variable), location);
            }
        }
        self.shared_words.touched(thread, address, bytes, writes);
    }

    /// Returns whether an update by a commuting instruction commutes with other threads' updates. One of several steps
    /// does not where the region has read the variable before: it may depend on what was read.
    fn commutes<C>(
        &mut self,
        thread: ThreadId,
        place: (u64, u64),
        update: CommutingUpdate,
        cx: &Context<'_, C>,
    ) -> bool {
        let execution = cx.regions.execution(thread, u64::MAX);
        let was_read = !update.is_atomic
            && execution.is_some_and(|number| self.read.contains(thread, number, place.0));
        self.counters.update(thread, place, update, cx.stream.held().of(thread)) && !was_read
    }

    /// Notes a read, in an epoch, by a thread that is in a region.
    fn note_read<C>(&mut self, thread: ThreadId, address: u64, epoch: u64, cx: &Context<'_, C>) {
        if let Some(execution) = cx.regions.execution(thread, epoch) {
            self.read.read(thread, execution, address);
        }
    }

    /// Notes the value of a variable at some moment of an operation; its instruction `writes`.
    fn note_value(&mut self, at: ValueAt, op: Op, (moment, writes): (Moment, bool)) {
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

    /// Returns whether a process can have memory at all bytes of an access that a probe has seen.
    fn is_possible<C>(&self, (address, bytes): (u64, u64), cx: &mut Context<'_, C>) -> bool {
        let Range { start, end } = self.addresses;
        let is_possible = start <= address && address < end && bytes <= end - address;
        cx.omissions.impossible_accesses += u64::from(!is_possible);
        is_possible
    }

    /// Sets the addresses at which the process can have memory.
    pub(super) const fn set_addresses(&mut self, addresses: Range<u64>) {
        self.addresses = addresses;
    }

    /// Returns whether an access that a probe has seen counts: it is not to a lock's own memory, and no watchpoint
    /// reports it.
    fn admit<C>(
        &mut self,
        thread: ThreadId,
        place: AccessPlace,
        (address, bytes): (u64, u64),
        syncs: &mut SyncObjects,
        cx: &mut Context<'_, C>,
    ) -> bool {
        if syncs.is_at(address) {
            cx.omissions.lock_accesses += 1;
            return false;
        }
        if place.stores {
            self.words.known_store(place.instruction.0);
        }
        // What the user has named is seen by its watchpoint, in its order and with its value.
        let instruction = place.instruction.0;
        !self.watches.report(thread, instruction, (address, bytes))
            && self.dedup.admit_probe(thread, (place.group, instruction), (address, bytes))
    }

    /// Translates a hit of a watchpoint.
    pub(super) fn hit<C: CodeMap>(
        &mut self,
        record: &WatchpointRecord,
        probed: &ProbedCode,
        memory: &mut ProcessMemory,
        syncs: &mut SyncObjects,
        cx: &mut Context<'_, C>,
    ) {
        let is_sample = record.is_sample != 0;
        let hit = self.watches.hit(ProcessAddr(record.address), is_sample);
        let Some((watch, length)) = hit else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let thread = cx.threads.id(record.header.tid);
        arrive(thread, record.sp, syncs, cx);
        let Some((access, kind)) = self.decode(record, is_sample, cx) else { return };
        let mut frames = record.frames;
        if let Some(access) = access {
            frames[0] = access.instruction.0;
            cx.before_access(thread, access.instruction, record.sp);
        }
        let place = (record.address, length);
        if is_sample {
            let caller = self.hits.caller(access, record.top, probed, cx.code);
            if caller == Caller::Library {
                cx.omissions.library_accesses += 1;
                return;
            }
            if !self.admit_sample(thread, (access, caller), place, probed) {
                return;
            }
        }
        let location = cx.stack(Location::Access(frames));
        memory.touch(thread, thread, place, cx.stream);
        if self.watches.has_label(watch) {
            memory.touched_as(watch);
        }
        if memory.touched().is_empty() {
            cx.omissions.freed_accesses += 1;
            return;
        }
        let (reads, writes) = (kind.reads(), kind.writes());
        let instruction = frames[0];
        if is_sample {
            let transaction = cx.regions.transaction(thread, u64::MAX);
            let step =
                PossibleStep { thread, instruction, place, reads, writes, transaction, location };
            if self.words.access(&step, syncs, cx.code, cx.stream) {
                cx.omissions.word_accesses += 1;
                return;
            }
            self.shared_words.touched(thread, record.address, length, writes);
        }
        // An access to a named range is reported unchanged.
        let commuting = access.filter(|access| is_sample && access.bytes == length);
        let commuting = commuting.and_then(|access| access.commuting);
        let commutes = commuting.is_some_and(|update| self.commutes(thread, place, update, cx));
        if reads && commuting.is_none() {
            self.note_read(thread, place.0, u64::MAX, cx);
        }
        // The kernel side reads the values of named ranges alone.
        let value = (!is_sample).then(|| self.watches.observe(watch, record.value, kind.writes()));
        if self.watches.counted_early(thread, instruction, watch) {
            return;
        }
        let is_store = kind == AccessKind::Update && self.words.is_store(instruction, cx.code);
        let mut emit = |op: Operation, value| {
            for &variable in memory.touched() {
                if let Some(value) = value {
                    self.watches.store(ObservedValue { event: cx.stream.events(), ..value });
                } else if writes {
                    self.watches.values_mut().written_unseen(variable);
                }
                cx.stream.emit(thread, op(variable), location);
            }
        };
        match kind {
            _ if commutes => emit(Op::CommutingUpdate, value),
            AccessKind::Read => emit(Op::Read, value),
            AccessKind::Write => emit(Op::Write, value),
            AccessKind::Update if is_store => emit(Op::Write, value),
            AccessKind::Update => emit(Op::Update, value),
            AccessKind::ReadThenWrite => {
                let read = value.map(|value| {
                    let after = value.before.unwrap_or(value.after);
                    ObservedValue { after, written: false, ..value }
                });
                emit(Op::Read, read);
                emit(Op::Write, value);
            }
        }
    }

    /// Decodes the instruction of a hit: its access, if that is known, and what it did. `None` where the hit does not
    /// count.
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

    /// Returns whether the hit of a sampling watchpoint counts: it is to the whole of the range, and neither a probe
    /// beside the instruction, or beside the call that it is made for, nor a watchpoint that was named reports it.
    fn admit_sample(
        &mut self,
        thread: ThreadId,
        (access, caller): (Option<Access>, Caller),
        (address, length): (u64, u64),
        probed: &ProbedCode,
    ) -> bool {
        let whole = access.filter(|access| access.bytes >= length && !access.is_last_owner_test);
        let Some(Access { instruction: ProcessAddr(instruction), .. }) = whole else {
            return false;
        };
        if self.watches.is_named(address, length) {
            return false;
        }
        let instruction = match caller {
            Caller::Probed(call) => call,
            _ => instruction,
        };
        probed
            .group_of(instruction)
            .is_none_or(|group| self.dedup.admit_watchpoint(thread, (group, instruction), address))
    }

    /// Translates a record of deferred accesses: those of a thread to memory that it owned, reported by the kernel side
    /// when another thread arrives.
    pub(super) fn owned<C: CodeMap>(
        &mut self,
        record: &OwnedRecord,
        memory: &mut ProcessMemory,
        syncs: &mut SyncObjects,
        cx: &mut Context<'_, C>,
    ) {
        let OwnedRecord { header, owner, address, write, read } = *record;
        let at = (header.tid, owner, address);
        if write.epoch != 0 {
            self.deferred(at, (write, true), memory, syncs, cx);
        }
        // What was read before the same bytes were written orders nothing more: the checker sees to that.
        if read.epoch != 0 {
            self.deferred(at, (read, false), memory, syncs, cx);
        }
    }

    fn deferred<C: CodeMap>(
        &mut self,
        (acting, owner, word): (u32, u32, u64),
        (LastAccess { epoch, sp, site, bytes }, writes): (LastAccess, bool),
        memory: &mut ProcessMemory,
        syncs: &mut SyncObjects,
        cx: &mut Context<'_, C>,
    ) {
        // An access of a program that was replaced since has no thread in this one, and its site means nothing here.
        let Some(thread) = cx.threads.in_epoch(owner, epoch) else { return };
        let Some(&MemorySite::Access(place)) = cx.kind(site).and_then(SiteKind::memory) else {
            cx.omissions.foreign_records += 1;
            return;
        };
        let address = word + u64::from(bytes.trailing_zeros());
        let size = u64::from(bytes.count_ones());
        if !self.is_possible((address, size), cx)
            || !self.admit(thread, place, (address, size), syncs, cx)
        {
            return;
        }
        if self.is_partial
            && (memory.is_on_own_stack(thread, address) || is_on_stack(address, memory))
        {
            return;
        }
        let mut since = 0;
        if let Some(block) = memory.block(address) {
            if block.thread != thread {
                since = block.born.event;
            } else if epoch < block.born.epoch {
                // It was other memory.
                return;
            }
        }
        let instruction = place.instruction.0;
        let location = cx.stack(Location::Access([instruction, 0, 0, 0, 0, 0]));
        let step = PossibleStep {
            thread,
            instruction,
            place: (address, size),
            reads: !writes,
            writes,
            transaction: cx.regions.transaction(thread, epoch),
            location,
        };
        if let Some(signal) = self.words.deferred(&step, syncs, cx.code) {
            cx.omissions.word_accesses += 1;
            if let Some(id) = signal {
                let what = DeferredOperation::Signal(id);
                cx.stream.defer(DeferredAccess { thread, epoch, sp, since, what, location });
            }
            return;
        }
        if !writes {
            self.note_read(thread, address, epoch, cx);
        }
        let acting = cx.threads.id(acting);
        memory.touch(thread, acting, (address, size), cx.stream);
        for &variable in memory.touched() {
            let what = if writes {
                self.watches.values_mut().written_unseen(variable);
                DeferredOperation::Write(variable)
            } else {
                DeferredOperation::Read(variable)
            };
            cx.stream.defer(DeferredAccess { thread, epoch, sp, since, what, location });
        }
        self.shared_words.touched(thread, address, size, writes);
    }

    /// Forgets what is known of an earlier lifetime of a range of memory.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.shared_words.forget(range);
        self.words.forget(range);
        self.counters.forget(range);
        self.watches.forget(range);
    }

    /// Forgets what is known of a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<ProcessAddr>) {
        let addresses = range.start.0..range.end.0;
        self.hits.unload(&addresses);
        self.words.unload(&addresses);
        self.watches.unload(range);
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.words.gap();
    }

    /// From now on accesses are left out for a time; returns whether none was before. Data on stacks is known no more:
    /// that a frame was left shows in accesses of its caller. Nor is what an access found that others left there.
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

    /// Returns the watched ranges.
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

/// Returns whether an address is on a stack where a thread was seen to access what it shares.
fn is_on_stack(address: u64, memory: &ProcessMemory) -> bool {
    memory.has_own_stacks()
        && memory.block(address).is_some_and(|block| block.origin == Origin::Stack)
}

/// Returns the value that the kernel side has read at the place of an access that is the next event, if that is of one
/// variable.
fn value_at(record: &AccessRecord, memory: &ProcessMemory, event: EventNumber) -> Option<ValueAt> {
    let &[variable] = memory.touched() else { return None };
    if record.flags & AccessRecord::HAS_VALUE == 0 {
        return None;
    }
    let length = u8::try_from(record.size).ok().filter(|&length| length <= 8)?;
    let is_shared = memory.is_shared(variable);
    Some(ValueAt { event, variable, value: record.value, length, is_shared })
}

/// Ends waits and regions that an act of a thread at stack pointer `sp` shows to be over.
#[inline]
pub(super) fn arrive<C: CodeMap>(
    thread: ThreadId,
    sp: u64,
    syncs: &mut SyncObjects,
    cx: &mut Context<'_, C>,
) {
    let stream = &mut *cx.stream;
    syncs.acts_at(thread, sp, &mut |op, location: LocationId| stream.emit(thread, op, location));
    cx.at(thread, sp);
}
