//! Source of events: passes each record on to the component that translates it. Each component owns its state and has
//! a file; objects, threads and locations get dense ids, and records that are left out are counted.

mod accesses;
mod call_effects;
mod calls;
mod context;
mod hit_decoder;
mod joins;
mod memory;
mod omissions;
mod probed_code;
mod regions;
mod resting;
mod runtime;
mod seen_access;
mod sync_words;
mod threads;
mod watches;

use std::ops::Range;

use abi::{
    BlockRecord, ChildProcessRecord, ExitRecord, FRAMES, ForkRecord, JumpRecord, Kind, Record,
    RegionRecord, RegistersRecord, SiteId,
};
use checker::{
    event::{LockId, Op, SyncId, ThreadId, VarId},
    format::NO_LOCATION,
};
use symbolize::ProcessAddr;

use self::{
    accesses::Accesses,
    calls::{Calls, SeenCall},
    context::Context,
    probed_code::ProbedCode,
    regions::Passage,
};
pub use self::{
    memory::ProcessMemory,
    omissions::{ChildProcess, Omissions},
    regions::{KnownRegion, Regions},
    threads::{SeenThread, Threads},
    watches::{WatchedRange, Watches},
};
use super::{
    code_map::CodeMap,
    deferred::Epoch,
    location::{Location, Locations},
    shared_words::SharedWords,
    stream::{Cause, Stream},
    sync::{Known, SyncObjects},
};
use plan::{
    memory::site::MemorySite,
    plan::{Site, SiteKind},
};

/// The source; one for each traced process.
#[derive(Debug)]
pub struct Source {
    threads: Threads,
    regions: Regions,
    calls: Calls,
    syncs: SyncObjects,
    memory: ProcessMemory,
    accesses: Accesses,
    probed: ProbedCode,
    locations: Locations,
    omissions: Omissions,
    stream: Stream,
    /// Number of lost events at the latest record.
    lost: u32,
    new_shared: Vec<(SiteId, RegistersRecord)>,
}

impl Source {
    /// Creates the source of a process with this many modules. `leader` is the id of its first thread in its own PID
    /// namespace.
    #[must_use]
    pub fn new(leader: u32, modules: usize) -> Self {
        let mut locations = Locations::default();
        locations.modules_changed(modules, false);
        Self {
            threads: Threads::new(leader),
            regions: Regions::default(),
            calls: Calls::default(),
            syncs: SyncObjects::default(),
            memory: ProcessMemory::default(),
            accesses: Accesses::default(),
            probed: ProbedCode::default(),
            locations,
            omissions: Omissions::default(),
            stream: Stream::default(),
            lost: 0,
            new_shared: Vec::new(),
        }
    }

    /// Sets the addresses at which a process can have memory: accesses elsewhere are counted, and make no events.
    #[must_use]
    pub const fn with_memory_at(mut self, addresses: Range<u64>) -> Self {
        self.accesses.set_addresses(addresses);
        self
    }

    /// Translates records to any number of events, and appends them to the [`stream`](Self::stream). `sites` are the
    /// sites of the process's plan.
    ///
    /// The type of the code is no parameter: the translation is compiled in this crate, and optimised as this crate is.
    /// Few records need the code.
    pub fn records(&mut self, mut records: &[Record], sites: &[Site], mut code: &mut dyn CodeMap) {
        while let Some(first) = records.first() {
            self.note_lost(first.header().lost);
            let is_lossless = |record: &&Record| record.header().lost == self.lost;
            let (run, later) = records.split_at(records.iter().take_while(is_lossless).count());
            self.translate(run, sites, &mut code);
            records = later;
        }
    }

    /// Notes the number of events that were lost before a record.
    fn note_lost(&mut self, lost: u32) {
        if lost != self.lost {
            let since = lost.wrapping_sub(self.lost);
            tracing::debug!(lost = since, at = self.stream.events(), "events were lost");
            self.lost = lost;
            self.gap();
        }
    }

    /// Translates records between which no event was lost.
    fn translate<C: CodeMap>(&mut self, records: &[Record], sites: &[Site], code: &mut C) {
        let Self { threads, regions, calls, syncs, memory, accesses, .. } = self;
        let Self { probed, locations, omissions, stream, new_shared, .. } = self;
        let cx = &mut Context {
            sites,
            code,
            probed,
            threads,
            regions,
            syncs,
            memory,
            locations,
            omissions,
            stream,
        };
        for record in records {
            if cx.memory.has_own_stacks()
                && let Some(sp) = stack_pointer(record)
            {
                let thread = cx.threads.id(record.header().tid);
                leave_frames(thread, sp, accesses, cx.memory, cx.syncs, cx.stream);
            }
            match record {
                Record::Region(kind, record) => pass_region(*kind, record, cx),
                Record::Jump(record) => jump(record, cx),
                Record::Call(kind, record) => calls.call(&SeenCall::entry(*kind, record), cx),
                Record::Pair(kind, record) => calls.call(&SeenCall::pair(*kind, record), cx),
                Record::Return(kind, record) => calls.call(&SeenCall::end(*kind, record), cx),
                Record::Inlined(record) => calls.inlined(record, cx),
                Record::Access(record) => accesses.instruction(record, cx),
                Record::Block(kind, record) => {
                    if let Some(range) = allocator_call(*kind, record, cx) {
                        accesses.forget(&range);
                    }
                }
                Record::Fork(record) => {
                    if let Some(stack) = fork(record, calls, cx) {
                        accesses.forget(&stack);
                    }
                }
                Record::Exit(record) => exit(record, cx),
                Record::ChildProcess(record) => child_process(record, cx),
                Record::Watchpoint(record) => accesses.hit(record, cx),
                Record::Shared(record) => new_shared.push((record.header.site, *record)),
                Record::Owned(record) => {
                    accesses.owned(record, cx);
                    continue;
                }
                Record::Switch(record) => {
                    cx.regions.switch(record.group as usize, record.is_on == 0, cx.stream);
                }
                // No events: the session handles stops, and explains the program's end by signals.
                Record::Stop(..) | Record::Trap(_) => {}
            }
            begin_epoch(record, cx);
        }
    }

    /// Events were lost: forgets all state that they may have changed.
    fn gap(&mut self) {
        self.regions.gap();
        self.stream.gap();
        self.memory.lost(&self.stream);
        self.syncs.gap();
        self.accesses.gap();
    }

    /// Takes in the sites and modules that were added.
    pub fn extend(&mut self, sites: &[Site], code: &impl CodeMap) {
        tracing::debug!(sites = sites.len(), modules = code.module_count(), "the plan has grown");
        self.probed.extend(sites);
        self.locations.modules_changed(code.module_count(), false);
    }

    /// Forgets the objects in the addresses of a library that was unloaded: another library may take its place.
    pub fn unload(&mut self, range: &Range<ProcessAddr>, code: &mut impl CodeMap) {
        tracing::debug!(?range, "forgetting a library that was unloaded");
        self.probed.unload(range);
        self.calls.unload();
        self.accesses.unload(range);
        self.locations.modules_changed(code.module_count(), true);
        let addresses = range.start.0..range.end.0;
        self.syncs.unload(&addresses);
        let Some(last) = self.threads.seen().len().checked_sub(1) else { return };
        let location = self.locations.stack(Location::Call([0; FRAMES]), code);
        let cause = Cause { thread: ThreadId(last as u32), location };
        self.memory.unmapped(&addresses, cause, &mut self.stream);
    }

    /// Notes that the probes of a group were attached or detached.
    pub fn set_attached(&mut self, group: usize, is_attached: bool) {
        tracing::debug!(group, is_attached, at = self.stream.events(), "probes of a group changed");
        self.accesses.set_attached(group, is_attached, self.threads.seen().len());
    }

    /// Notes that the probes of a group rest from here on, or that all of them record again.
    pub fn set_resting(&mut self, group: usize, is_resting: bool) {
        self.regions.switch(group, is_resting, &mut self.stream);
    }

    /// Notes that accesses are left out for a time, from here on: conclusions from several accesses to one place are
    /// not valid any more.
    pub fn accesses_are_partial(&mut self) {
        let Self { memory, accesses, syncs, stream, .. } = self;
        if accesses.become_partial() {
            tracing::debug!(at = stream.events(), "accesses are left out from here on");
            for (thread, sp) in memory.above_own_stacks() {
                leave_frames(thread, sp, accesses, memory, syncs, stream);
            }
        }
    }

    /// Takes the markers of shared variables that were reached since the last call: site and registers.
    pub fn take_shared(&mut self) -> Vec<(SiteId, RegistersRecord)> {
        std::mem::take(&mut self.new_shared)
    }

    /// Returns the events since the last time that they were consumed.
    #[must_use]
    pub const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Drops the events, which were consumed.
    pub fn consume(&mut self) {
        self.stream.clear();
    }

    /// Returns the threads that were seen.
    #[must_use]
    pub const fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Names the threads that run on when the tracing ends; `comm` reads the name of one by its id.
    pub fn name_running(&mut self, comm: impl Fn(u32) -> [u8; 16]) {
        self.threads.name_running(|tid| text_of_comm(&comm(tid)));
    }

    /// Returns how often a function that is a region has begun, by its number in the plan, without taking a lock before
    /// it ended.
    #[must_use]
    pub fn executions_without_lock(&self, function: u32) -> u64 {
        self.regions.executions_without_lock(function)
    }

    /// Ends a function that is a region wherever it runs, and lets it begin no more: its probes are about to be
    /// detached.
    pub fn give_up(&mut self, function: u32) {
        tracing::debug!(function, at = self.stream.events(), "a function is a region no more");
        self.regions.give_up(function, &self.threads, &mut self.stream);
    }

    /// Returns the regions that were seen.
    #[must_use]
    pub const fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns the code locations.
    #[must_use]
    pub const fn locations(&self) -> &Locations {
        &self.locations
    }

    /// Returns the variables and blocks of memory.
    #[must_use]
    pub const fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Returns the watched ranges.
    #[must_use]
    pub const fn watches(&self) -> &Watches {
        self.accesses.watches()
    }

    /// Returns the watched ranges, to add some.
    pub const fn watches_mut(&mut self) -> &mut Watches {
        self.accesses.watches_mut()
    }

    /// Returns the words worth a watchpoint.
    #[must_use]
    pub const fn shared_words(&self) -> &SharedWords {
        self.accesses.shared_words()
    }

    /// Returns the words worth a watchpoint, to add some.
    pub const fn shared_words_mut(&mut self) -> &mut SharedWords {
        self.accesses.shared_words_mut()
    }

    /// Returns the description of a lock.
    #[must_use]
    pub fn lock(&self, lock: LockId) -> Option<Known> {
        self.syncs.lock(lock).copied()
    }

    /// Returns the description of an object that is not a lock.
    #[must_use]
    pub fn sync(&self, sync: SyncId) -> Option<Known> {
        self.syncs.sync(sync).copied()
    }

    /// Returns the condition variable of whose waiters a variable stands for the set.
    #[must_use]
    pub fn condition_of(&self, set: VarId) -> Option<SyncId> {
        self.syncs.condition_of(set)
    }

    /// Returns the number of releases of locks taken in line that did not count, since how they were taken was not
    /// seen.
    #[must_use]
    pub const fn unseen_holds(&self) -> u64 {
        self.syncs.unseen_holds()
    }

    /// Returns the records that were left out.
    #[must_use]
    pub const fn omissions(&self) -> &Omissions {
        &self.omissions
    }
}

/// Begins an epoch after the first record of one. The record itself belongs to the epoch before.
#[inline]
fn begin_epoch<C>(record: &Record, cx: &mut Context<'_, C>) {
    let (epoch, tid) = (record.begun_epoch(), record.header().tid);
    if epoch != 0
        && let Some(thread) = cx.threads.begin_epoch(tid, epoch)
    {
        let lowest = cx.regions.lowest(thread);
        cx.stream.begin_epoch(Epoch { thread, epoch, lowest });
    }
}

/// Translates the start of a process.
fn child_process<C: CodeMap>(record: &ChildProcessRecord, cx: &mut Context<'_, C>) {
    let thread = cx.threads.id(record.header.tid);
    cx.at(thread, 0);
    // A child process that is followed has another report.
    if record.flags & ChildProcessRecord::FOLLOWED == 0 {
        cx.omissions.add_child(record.child, text_of_comm(&record.comm));
    }
}

/// Returns the stack pointer of the acting thread, if a record has it.
#[inline]
fn stack_pointer(record: &Record) -> Option<u64> {
    match record {
        Record::Region(_, record) => Some(record.sp),
        Record::Call(_, record) => Some(record.sp),
        Record::Pair(_, record) => Some(record.sp),
        Record::Return(_, record) => Some(record.sp),
        Record::Inlined(record) => Some(record.sp),
        Record::Access(record) => Some(record.sp),
        Record::Block(_, record) => Some(record.sp),
        Record::Watchpoint(record) => Some(record.sp),
        _ => None,
    }
}

/// Ends the lives of objects and variables in a thread's frames below a stack pointer.
fn leave_frames(
    thread: ThreadId,
    sp: u64,
    accesses: &mut Accesses,
    memory: &mut ProcessMemory,
    syncs: &mut SyncObjects,
    stream: &mut Stream,
) {
    if let Some(left) = memory.leave_frames(thread, sp, stream) {
        forget_objects(&left, Cause { thread, location: NO_LOCATION }, syncs, stream);
        accesses.forget(&left);
    }
}

/// Translates the record of a marker or of a function that is a region.
fn pass_region<C: CodeMap>(kind: Kind, record: &RegionRecord, cx: &mut Context<'_, C>) {
    let thread = cx.threads.id(record.header.tid);
    cx.end_waits(thread, record.sp);
    let number = record.header.site.number();
    let location = cx.locations.site(number);
    let passage = Passage { thread, location, site: cx.sites.get(number as usize) };
    let passed = cx.regions.pass(kind, record, passage, cx.threads, cx.stream);
    cx.omissions.foreign_records += u64::from(passed.is_err());
}

/// Translates the record of a jump out of functions.
fn jump<C: CodeMap>(record: &JumpRecord, cx: &mut Context<'_, C>) {
    let thread = cx.threads.id(record.header.tid);
    cx.end_waits(thread, record.target_sp);
    let site = cx.kind(record.header.site);
    let passed = cx.regions.jump(record, thread, site, cx.threads, cx.stream);
    cx.omissions.foreign_records += u64::from(passed.is_err());
}

/// Translates a call of an allocator. Returns the memory in which other objects are from now on.
fn allocator_call<C: CodeMap>(
    kind: Kind,
    record: &BlockRecord,
    cx: &mut Context<'_, C>,
) -> Option<Range<u64>> {
    let Some(&MemorySite::Allocator(site)) = cx.kind(record.header.site).and_then(SiteKind::memory)
    else {
        cx.omissions.foreign_records += 1;
        return None;
    };
    let thread = cx.threads.id(record.header.tid);
    let location = cx.stack(Location::Call(record.frames));
    cx.arrive(thread, record.sp);
    let cause = Cause { thread, location };
    let range = cx.memory.allocator_call(kind, site, record, cause, cx.stream)?;
    forget_objects(&range, cause, cx.syncs, cx.stream);
    Some(range)
}

/// Translates the start of a thread. Returns its stack, if it is known, in which other objects are from now on.
fn fork<C: CodeMap>(
    record: &ForkRecord,
    calls: &mut Calls,
    cx: &mut Context<'_, C>,
) -> Option<Range<u64>> {
    let thread = cx.threads.id(record.header.tid);
    cx.at(thread, 0);
    let child = cx.threads.start(record.child);
    let (location, has_identity) = calls.create(thread, child, record.pthread);
    // A thread that is created in another way than by the functions that are probed has no place.
    let location = location.unwrap_or_else(|| cx.stack(Location::Call([0; FRAMES])));
    let cause = Cause { thread, location };
    let stack = (has_identity && record.pthread != 0)
        .then(|| cx.memory.stack_begins(child, record.pthread, cause, cx.stream));
    if let Some(stack) = &stack {
        forget_objects(stack, cause, cx.syncs, cx.stream);
    }
    cx.stream.emit(thread, Op::Fork(child), location);
    stack
}

/// Translates the end of a thread.
fn exit<C: CodeMap>(record: &ExitRecord, cx: &mut Context<'_, C>) {
    let thread = cx.threads.id(record.header.tid);
    cx.at(thread, 0);
    cx.regions.end_thread(thread);
    cx.threads.end(thread, text_of_comm(&record.comm));
    cx.syncs.exits(thread);
    let location = cx.stack(Location::Call([0; FRAMES]));
    cx.stream.emit(thread, Op::Exit, location);
}

/// Forgets the synchronisation objects of an earlier lifetime of a range of memory.
fn forget_objects(range: &Range<u64>, cause: Cause, syncs: &mut SyncObjects, stream: &mut Stream) {
    syncs.forget_memory(range, &mut |op| stream.emit_change(cause, op));
}

/// Returns the name of a thread from the kernel's field, which is padded with zeros.
fn text_of_comm(comm: &[u8]) -> String {
    let length = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
    linux::text::text_of_bytes(&comm[..length])
}

#[cfg(test)]
mod tests;
