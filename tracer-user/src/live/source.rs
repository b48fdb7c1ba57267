//! Turns records into the checker's events: objects, threads and locations get dense ids, what does not count is
//! left out and counted. What the ids stand for can be asked afterwards.

mod meaning;
mod memory;
mod modules;
mod owned;
mod probed_accesses;
mod runtime;
mod watchpoint_hits;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use checker::event::{
    Event, EventNumber, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use tracer_ebpf::{FRAMES, Kind, RegionRecord, RegistersRecord, SyncRecord, ThreadRecord};

use self::meaning::{in_line, probed, result};
use self::memory::MemoryCalls;
use super::{
    dedup::AccessDedup,
    deferred::{DeferredAccess, Epoch},
    location::{Location, Locations},
    memory::Memory,
    region_stack::{Change, Frame, RegionStacks},
    shared_words::SharedWords,
    sync::{Call, Known, SyncObjects},
    watchpoint_access,
    words::{Step, Words},
};
use crate::{
    probes::{
        plan::{FunctionPlace, InlinedPlace, InlinedRegions, Site, SiteKind},
        regions::{markers::Meaning, non_local_exits::NonLocalExit},
        sync::functions::Object,
    },
    symbolize::{ProcessAddr, Symbolizer},
    sys::records::Record,
    x86::exits::Leaves,
};

/// Output of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Events were lost here.
    Gap,
    /// Begin of a thread's epoch: what the thread does from here on, and deferred accesses of the epoch, belong to
    /// it.
    Epoch(Epoch),
    /// Access that the kernel side reports after the epoch in which it was made.
    Deferred(DeferredAccess),
}

/// A watched range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRange {
    /// Process address of the first byte.
    pub address: ProcessAddr,
    /// Length in bytes: 1, 2, 4 or 8.
    pub length: u64,
    /// Name given by the user or the program.
    pub label: String,
    /// Set for a sampling watchpoint, which nobody has named and which moves on.
    pub is_sample: bool,
    /// Set if the watchpoint is known to work from the program's first instruction on.
    pub from_start: bool,
}

/// A thread that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenThread {
    /// The operating system's id.
    pub tid: u32,
    /// Name at its end, if that was seen.
    pub name: Option<String>,
    /// `pthread_t`; unknown for the first thread.
    pthread: Option<u64>,
    /// The joins that it is in, outermost first.
    joins: Vec<JoinUnderWay>,
    /// Set once a join of it was seen.
    is_joined: bool,
    /// Location and stack pointer of its call of a function of which the next step is a part.
    entered: Option<(LocationId, u64)>,
    /// Current epoch; 0 until it has touched memory.
    epoch: u64,
    /// Location at which it creates a thread, or last did.
    creates_at: Option<LocationId>,
    /// Number of its open regions, and of the transactions it has begun.
    open: u32,
    transactions: u64,
    /// Epoch in which it began the last transaction, whose accesses are all of later epochs.
    epoch_before: u64,
}

/// A join that has not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JoinUnderWay {
    sp: u64,
    pthread: u64,
    /// Thread that had that identity when the join began.
    thread: Option<ThreadId>,
}

/// A child process that was not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildProcess {
    /// Process id.
    pub pid: u32,
    /// Name of its parent at that time.
    pub name: String,
}

/// Records that the source left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Watchpoint hits whose instruction could not be decoded, by the reason. They count as reads, which can only hide
    /// dependencies.
    pub undecoded_accesses: BTreeMap<watchpoint_access::Undecoded, u64>,
    /// Hits by the code of locks, which do not count.
    pub lock_accesses: u64,
    /// Hits by the code of libraries that nobody has named, as far as they are not what the program has asked for.
    pub library_accesses: u64,
    /// Accesses to words that synchronise, which are none to data.
    pub word_accesses: u64,
    /// Hits of named ranges by instructions of which a mask decides what they access, which do not count: it may be
    /// something beside.
    pub masked_accesses: u64,
    /// Accesses to memory that was given back, which do not count.
    pub freed_accesses: u64,
    /// Joins of threads whose start was not seen.
    pub unknown_joins: u64,
    /// Regions by markers that were taken to end where control left their function: by an exception or a long jump.
    pub left_regions: u64,
    /// Child processes, at most [`MAX_CHILDREN`] of them.
    pub child_processes: Vec<ChildProcess>,
    /// All child processes.
    pub child_process_count: u64,
    /// Records that are none of this ABI, or of a site that is not known.
    pub foreign_records: u64,
}

/// Child processes that are listed at most.
pub const MAX_CHILDREN: usize = 100;

/// Observed values that are remembered at most: those of the latest accesses.
const MAX_VALUES: usize = 1 << 13;

/// The value of a watched range around an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedValue {
    /// Before it, if an earlier access was seen.
    pub before: Option<u64>,
    /// After it.
    pub after: u64,
    /// Bytes that count.
    pub length: u64,
    /// Set if the access wrote.
    pub written: bool,
}

/// Use of memory by an instruction, and whether it is of a lock's own code.
type Decoded = (Result<watchpoint_access::Access, watchpoint_access::Undecoded>, bool);

/// The source; one for each traced process.
#[derive(Debug)]
pub struct Source {
    sites: Vec<Site>,
    /// Symbols and files of the process.
    pub symbolizer: Symbolizer,
    /// Code locations.
    pub locations: Locations,
    watches: Vec<WatchedRange>,
    /// Indices of the ranges that the user or the program has named.
    named_watches: Vec<usize>,
    last_values: Vec<Option<u64>>,
    memory: Memory,
    /// The variables of the access under way.
    touched: Vec<VarId>,
    memory_calls: MemoryCalls,
    values: VecDeque<(EventNumber, ObservedValue)>,
    threads: Vec<SeenThread>,
    running: FxHashMap<u32, ThreadId>,
    /// The threads that had each id of the system, with the first epoch of each that was seen.
    lives: FxHashMap<u32, Vec<(u64, ThreadId)>>,
    by_pthread: FxHashMap<u64, ThreadId>,
    syncs: SyncObjects,
    /// The code of functions that are probed, from the first instruction to the last; and for each location
    /// whether a call there is one of such a function.
    probed: Vec<(u64, u64)>,
    inside_probed: Vec<Option<bool>>,
    known_sites: usize,
    regions: Vec<(String, LocationId)>,
    region_ids: FxHashMap<String, RegionId>,
    site_regions: FxHashMap<u32, RegionId>,
    /// Accesses of the instructions before these addresses; true for those of a lock's own code.
    accesses: FxHashMap<u64, Decoded>,
    /// Accesses of calls and jumps through memory, by their target, the value on top of the stack there, and the
    /// watched address.
    transfers: FxHashMap<(u64, u64, u64), Decoded>,
    /// Attribution of accesses by the instructions at these addresses to the program or a library.
    trusts: FxHashMap<u64, runtime::Trust>,
    lost: u32,
    events: EventNumber,
    omissions: Omissions,
    exits: u64,
    hits: u64,
    /// Indices of watched ranges whose memory is gone.
    unloaded_watches: Vec<usize>,
    /// Indices of watched ranges whose memory was given back, until they are taken.
    freed_watches: Vec<usize>,
    /// Indices of watched ranges not named since: their labels are of the memory that was there before.
    nameless_watches: BTreeSet<usize>,
    /// The first thread, as its own PID namespace numbers it, and whether its end was seen.
    leader: (u32, bool),
    new_shared: Vec<(u32, RegistersRecord)>,
    region_stacks: RegionStacks,
    /// Accesses to named ranges that counted from probes since the watchpoints were not seen to work yet: hits of the
    /// same accesses are to come. By thread, instruction and the range's index.
    counted_early: FxHashSet<(ThreadId, u64, usize)>,
    /// Words worth a watchpoint.
    pub shared_words: SharedWords,
    /// Groups of the probed instructions, and the choice between their records and those of watchpoints.
    probed_code: FxHashMap<u64, usize>,
    dedup: AccessDedup,
    /// Calls and data that belong to runtime libraries themselves.
    runtime: runtime::Runtime,
    /// Words that synchronise without a function that is known.
    words: Words,
    /// Kinds of access that the instructions at these addresses make to such words.
    steps: FxHashMap<u64, Step>,
}

impl Source {
    /// A source for a process whose probes have these sites. `pid` is that of its own PID namespace.
    #[must_use]
    pub fn new(
        sites: Vec<Site>,
        symbolizer: Symbolizer,
        watches: Vec<WatchedRange>,
        pid: u32,
    ) -> Self {
        let mut locations = Locations::default();
        locations.modules_changed(symbolizer.modules().len(), false);
        Self {
            probed: probed(&sites),
            known_sites: sites.len(),
            sites,
            symbolizer,
            locations,
            last_values: vec![None; watches.len()],
            named_watches: (0..)
                .zip(&watches)
                .filter(|(_, of)| !of.is_sample)
                .map(|of| of.0)
                .collect(),
            memory: Memory::default(),
            touched: Vec::new(),
            memory_calls: MemoryCalls::default(),
            watches,
            values: VecDeque::new(),
            threads: Vec::new(),
            running: FxHashMap::default(),
            lives: FxHashMap::default(),
            by_pthread: FxHashMap::default(),
            syncs: SyncObjects::default(),
            inside_probed: Vec::new(),
            unloaded_watches: Vec::new(),
            freed_watches: Vec::new(),
            nameless_watches: BTreeSet::new(),
            regions: Vec::new(),
            region_ids: FxHashMap::default(),
            site_regions: FxHashMap::default(),
            accesses: FxHashMap::default(),
            transfers: FxHashMap::default(),
            trusts: FxHashMap::default(),
            lost: 0,
            events: 0,
            omissions: Omissions::default(),
            exits: 0,
            hits: 0,
            leader: (pid, false),
            new_shared: Vec::new(),
            region_stacks: RegionStacks::default(),
            counted_early: FxHashSet::default(),
            shared_words: SharedWords::default(),
            probed_code: FxHashMap::default(),
            dedup: AccessDedup::default(),
            runtime: runtime::Runtime::default(),
            words: Words::default(),
            steps: FxHashMap::default(),
        }
    }

    /// Passes on what a record means: nothing, an event, or several.
    pub fn record(&mut self, record: &Record, sink: &mut impl FnMut(Item)) {
        let header = record.header();
        if header.lost != self.lost {
            self.lost = header.lost;
            self.region_stacks.clear();
            sink(Item::Gap);
            self.syncs.gap();
            self.words.gap();
            self.threads.iter_mut().for_each(|thread| thread.open = 0);
        }
        match record {
            Record::Region(kind, record) => self.region(*kind, record, sink),
            Record::Sync(kind, record) => self.sync(*kind, record, 0, sink),
            Record::Pair(Kind::InstructionAccess, record) => self.instruction(record, sink),
            Record::Pair(kind @ (Kind::Alloc | Kind::Free), record) => {
                self.memory_call(*kind, record, sink);
            }
            Record::Pair(kind, record) => self.sync(*kind, &record.call, record.second, sink),
            Record::Thread(kind, record) => self.thread_record(*kind, record, sink),
            Record::Access(record) => self.access(record, sink),
            Record::Registers(record) => self.new_shared.push((record.header.site, *record)),
            Record::Owned(record) => return self.owned(record, sink),
            // No event: it counts where the program's end is explained.
            Record::Trap(_) => {}
        }
        self.epoch_begins(header, sink);
    }

    fn emit(
        &mut self,
        thread: ThreadId,
        op: Op,
        location: LocationId,
        sink: &mut impl FnMut(Item),
    ) {
        self.events += 1;
        sink(Item::Event(Event { thread, op, location }));
    }

    /// The thread is at a stack pointer: regions whose frames are gone end.
    fn at(&mut self, thread: ThreadId, sp: u64, sink: &mut impl FnMut(Item)) {
        self.region_stacks.at(thread, sp);
        self.emit_changes(thread, sink);
    }

    fn emit_changes(&mut self, thread: ThreadId, sink: &mut impl FnMut(Item)) {
        for change in self.region_stacks.take_changes() {
            match change {
                Change::Begin(region, location) => {
                    let seen = &mut self.threads[thread.index()];
                    if seen.open == 0 {
                        seen.transactions += 1;
                        seen.epoch_before = seen.epoch;
                    }
                    seen.open += 1;
                    self.emit(thread, Op::Begin(region), location, sink);
                }
                Change::End(location) => {
                    let open = &mut self.threads[thread.index()].open;
                    *open = open.saturating_sub(1);
                    self.emit(thread, Op::End(None), location, sink);
                }
            }
        }
    }

    fn region(&mut self, kind: Kind, record: &RegionRecord, sink: &mut impl FnMut(Item)) {
        let thread = self.thread(record.header.tid);
        self.acts_at(thread, record.sp, sink);
        let site = record.header.site;
        let location = self.locations.site(site);
        match self.sites.get(site as usize).map(|site| &site.kind) {
            Some(SiteKind::Function(place)) => {
                let place = place.clone();
                self.function(thread, location, &place, record);
            }
            Some(&SiteKind::NonLocalExit(leaving)) => match leaving {
                NonLocalExit::All => self.region_stacks.leave_all(thread),
                NonLocalExit::Jump => self.region_stacks.jump(thread, record.sp),
                NonLocalExit::Throw => self.region_stacks.throw(thread),
                NonLocalExit::Raise => self.region_stacks.raise(thread),
                // The catching function has called: its own stack pointer is above the return address.
                NonLocalExit::Catch { lowered } => {
                    self.region_stacks.catch(thread, record.sp + lowered + 8)
                }
            },
            Some(SiteKind::InlinedRegions(inlined)) => {
                let inlined = inlined.clone();
                self.inlined_regions(thread, location, &inlined, record.sp);
            }
            Some(SiteKind::Unwatched) => {}
            _ => {
                self.region_stacks.at(thread, record.sp);
                self.marker(thread, kind, site, record.sp, location, sink);
            }
        }
        self.omissions.left_regions = self.region_stacks.left_markers();
        self.emit_changes(thread, sink);
    }

    fn function(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        place: &FunctionPlace,
        record: &RegionRecord,
    ) {
        match place {
            FunctionPlace::Entry { function, name, lowered } => {
                let region = self.region_named(name, location);
                let frame = Frame { function: *function, sp: record.sp + lowered };
                self.region_stacks.enter(thread, region, location, frame);
            }
            FunctionPlace::Exit { function, leaves } => {
                let frame = Frame { function: *function, sp: record.sp };
                self.region_stacks.exit(thread, frame, *leaves, record.header.detail);
            }
        }
    }

    fn inlined_regions(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        site: &InlinedRegions,
        sp: u64,
    ) {
        for &function in &site.ends {
            self.region_stacks.exit(thread, Frame { function, sp }, Leaves::Always, 0);
        }
        for (function, name) in &site.begins {
            let region = self.region_named(name, location);
            self.region_stacks.enter_inlined(
                thread,
                region,
                location,
                Frame { function: *function, sp },
            );
        }
    }

    fn marker(
        &mut self,
        thread: ThreadId,
        kind: Kind,
        site: u32,
        sp: u64,
        location: LocationId,
        sink: &mut impl FnMut(Item),
    ) {
        let named = match kind {
            Kind::Begin | Kind::End => {
                let Some(region) = self.region_of(site, location) else { return };
                Some(region)
            }
            _ => None,
        };
        match (kind, named) {
            (Kind::Begin, Some(region)) => self.region_stacks.begin(thread, region, location, sp),
            _ => {
                if !self.region_stacks.end(thread, named, location) {
                    // An end without a begin, which the checker counts.
                    self.emit_changes(thread, sink);
                    self.emit(thread, Op::End(named), location, sink);
                }
            }
        }
    }

    fn region_of(&mut self, site: u32, location: LocationId) -> Option<RegionId> {
        if let Some(&region) = self.site_regions.get(&site) {
            return Some(region);
        }
        let (SiteKind::Marker(Meaning::Begin(name)) | SiteKind::Marker(Meaning::End(name))) =
            &self.sites.get(site as usize)?.kind
        else {
            self.omissions.foreign_records += 1;
            return None;
        };
        let name = name.clone();
        let region = self.region_named(&name, location);
        self.site_regions.insert(site, region);
        Some(region)
    }

    fn region_named(&mut self, name: &str, location: LocationId) -> RegionId {
        if let Some(&region) = self.region_ids.get(name) {
            return region;
        }
        self.regions.push((name.to_owned(), location));
        let region = RegionId((self.regions.len() - 1) as u32);
        self.region_ids.insert(name.to_owned(), region);
        region
    }

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

    fn sync(&mut self, kind: Kind, record: &SyncRecord, second: u64, sink: &mut impl FnMut(Item)) {
        if kind == Kind::JoinStart {
            let joiner = self.thread(record.header.tid);
            self.at(joiner, record.sp, sink);
            self.join_starts(record);
            return;
        }
        let site = self.sites.get(record.header.site as usize).map(|site| &site.kind);
        // A probe of a lock taken in line records the number that was there before, in `eax`.
        let value = matches!(site, Some(SiteKind::Inlined(_))).then_some(record.header.detail);
        let (spec, fast, address, stack) = match site {
            Some(&SiteKind::Call { spec, object, .. }) => {
                let address = object.map_or(record.object, |object| object.0);
                (spec, in_line(spec), address, Location::Call(record.frames))
            }
            Some(&SiteKind::Inlined(InlinedPlace { if_one: true, .. }))
                if record.header.detail != 1 =>
            {
                return;
            }
            Some(&SiteKind::Inlined(InlinedPlace { spec, fast, at, plus, .. })) => {
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
        let is_midst = (kind, spec.object) == (Kind::Signal, Object::Once);
        if !is_midst && self.is_inside_probed(location, record.frames[0]) {
            if let Some(value) = value.filter(|_| spec.object == Object::Semaphore) {
                self.syncs.takes(thread, address, value);
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
        let is_step = matches!(spec.object, Object::Channel | Object::BoundedChannel);
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

    /// The thread does something while its stack pointer is `sp`.
    #[inline]
    fn acts_at(&mut self, thread: ThreadId, sp: u64, sink: &mut impl FnMut(Item)) {
        let Self { syncs, events, .. } = self;
        syncs.acts_at(thread, sp, &mut |op, location| {
            *events += 1;
            sink(Item::Event(Event { thread, op, location }));
        });
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
            // What is returned to is behind the call, which may be the last instruction.
            self.probed.iter().any(|&(start, end)| start < return_address && return_address <= end)
        })
    }

    fn thread_record(&mut self, kind: Kind, record: &ThreadRecord, sink: &mut impl FnMut(Item)) {
        let thread = self.thread(record.header.tid);
        self.at(thread, 0, sink);
        match kind {
            Kind::Fork => {
                // An id that the system uses again is a new thread.
                self.running.remove(&record.child);
                let child = self.thread(record.child);
                // A thread without an identity of its own (a bare `clone`) shows that of its parent.
                if self.threads[thread.index()].pthread != Some(record.pthread) {
                    self.threads[child.index()].pthread = Some(record.pthread);
                    self.by_pthread.insert(record.pthread, child);
                }
                // A thread that is created in another way than by the functions that are probed has no place.
                let location = self.threads[thread.index()].creates_at.take();
                let nowhere = Location::Call([0; FRAMES]);
                let location =
                    location.unwrap_or_else(|| self.locations.stack(nowhere, &mut self.symbolizer));
                self.stack_begins(thread, child, record.pthread, location, sink);
                self.emit(thread, Op::Fork(child), location, sink);
            }
            Kind::Exit => {
                self.exits += 1;
                self.region_stacks.end_thread(thread);
                self.leader.1 |= record.header.tid == self.leader.0;
                self.running.remove(&record.header.tid);
                self.syncs.exits(thread);
                let seen = &mut self.threads[thread.index()];
                seen.name = Some(comm(record));
                let location =
                    self.locations.stack(Location::Call([0; FRAMES]), &mut self.symbolizer);
                self.emit(thread, Op::Exit, location, sink);
            }
            // One that is followed has a report of its own.
            Kind::ChildProcess if record.header.detail != 0 => {}
            Kind::ChildProcess => {
                self.omissions.child_process_count += 1;
                if self.omissions.child_processes.len() < MAX_CHILDREN {
                    let child = ChildProcess { pid: record.child, name: comm(record) };
                    self.omissions.child_processes.push(child);
                }
            }
            // What these mean is not of this program.
            _ => {}
        }
    }

    /// The thread that runs under an id of the system now.
    fn thread(&mut self, tid: u32) -> ThreadId {
        *self.running.entry(tid).or_insert_with(|| {
            self.threads.push(SeenThread { tid, ..SeenThread::default() });
            ThreadId((self.threads.len() - 1) as u32)
        })
    }

    /// Markers of shared variables that were reached since the last call: site and registers.
    pub fn take_shared(&mut self) -> Vec<(u32, RegistersRecord)> {
        std::mem::take(&mut self.new_shared)
    }

    /// Returns the site of a number.
    #[must_use]
    pub fn site(&self, site: u32) -> Option<&Site> {
        self.sites.get(site as usize)
    }

    /// All sites, by their numbers.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The value that was observed at an event, if it is among the latest.
    #[must_use]
    pub fn value(&self, event: EventNumber) -> Option<ObservedValue> {
        let index = self.values.binary_search_by_key(&event, |(event, _)| *event).ok()?;
        self.values.get(index).map(|(_, value)| *value)
    }

    /// The values that were observed at the latest accesses.
    pub fn recent_values(&self) -> impl Iterator<Item = (EventNumber, ObservedValue)> {
        self.values.iter().copied()
    }

    /// A region's name and the location of the first marker of it that was seen.
    #[must_use]
    pub fn region_name(&self, region: RegionId) -> Option<(&str, LocationId)> {
        self.regions.get(region.index()).map(|(name, location)| (name.as_str(), *location))
    }

    /// Returns the number of regions seen.
    #[must_use]
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// A lock: what it is, its address, and where it was first used.
    #[must_use]
    pub fn lock_info(&self, lock: LockId) -> Option<Known> {
        self.syncs.lock(lock).copied()
    }

    /// Returns the description of an object that is not a lock.
    #[must_use]
    pub fn sync_info(&self, sync: SyncId) -> Option<Known> {
        self.syncs.sync(sync).copied()
    }

    /// The threads that were seen, by their ids.
    #[must_use]
    pub fn threads(&self) -> &[SeenThread] {
        &self.threads
    }

    /// Returns the records that were left out.
    #[must_use]
    pub fn omissions(&self) -> &Omissions {
        &self.omissions
    }

    /// Releases of locks taken in line that did not count, since how they were taken was not seen.
    #[must_use]
    pub const fn unseen_holds(&self) -> u64 {
        self.syncs.unseen_holds()
    }

    /// Returns whether the main thread has ended, which is not the end of the process.
    #[must_use]
    pub fn has_lost_leader(&self) -> bool {
        self.leader.1
    }

    /// Returns the number of recorded watchpoint hits.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Returns whether the end of any thread was seen: if not, the kernel side is deaf.
    #[must_use]
    pub fn saw_exit(&self) -> bool {
        self.exits > 0
    }
}

fn comm(record: &ThreadRecord) -> String {
    let length = record.comm.iter().position(|&byte| byte == 0).unwrap_or(record.comm.len());
    crate::report::text_of_bytes(&record.comm[..length])
}
