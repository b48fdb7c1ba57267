//! Translates records to the checker's events: objects, threads and locations get dense ids; records that do not
//! count are left out and counted. The meaning of the ids can be queried afterwards.

mod calls;
mod meaning;
mod memory;
mod modules;
mod owned;
mod probed_accesses;
mod regions;
mod runtime;
mod threads;
mod watchpoint_hits;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use checker::event::{
    Event, EventNumber, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId,
};
use checker::format::ObservedValue;
use rustc_hash::{FxHashMap, FxHashSet};
use tracer_ebpf::{Record, RegistersRecord};

use self::calls::SeenCall;
use self::meaning::probed;
use self::memory::MemoryCalls;
use super::{
    dedup::AccessDedup,
    deferred::{DeferredAccess, Epoch},
    location::Locations,
    memory::Memory,
    region_stack::{Change, RegionStacks},
    shared_words::SharedWords,
    sync::{Known, SyncObjects},
    watchpoint_access,
    words::{Step, Words},
};
use crate::{
    probes::plan::Site,
    symbolize::{ProcessAddr, Symbolizer},
};

/// Output of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Loss of events at this point.
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
    values: VecDeque<ObservedValue>,
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
    /// Id of the first thread in its own PID namespace, and whether its end was seen.
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
    /// Creates a source for a process whose probes have these sites. `pid` is that of its own PID namespace.
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

    /// Translates a record to nothing, an event, or several.
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
            Record::Jump(record) => self.jump(record, sink),
            Record::Call(kind, record) => self.call(&SeenCall::entry(*kind, record), sink),
            Record::Pair(kind, record) => self.call(&SeenCall::pair(*kind, record), sink),
            Record::Return(kind, record) => self.call(&SeenCall::end(*kind, record), sink),
            Record::Inlined(record) => self.inlined(record, sink),
            Record::Access(record) => self.instruction(record, sink),
            Record::Block(kind, record) => self.memory_call(*kind, record, sink),
            Record::Fork(record) => self.fork(record, sink),
            Record::Exit(record) => self.exit(record, sink),
            Record::ChildProcess(record) => self.child_process(record, sink),
            Record::Watchpoint(record) => self.access(record, sink),
            Record::Shared(record) => {
                self.new_shared.push((record.header.site.number(), *record));
            }
            Record::Owned(record) => return self.owned(record, sink),
            // No events: the session handles stops, and explains the program's end by signals.
            Record::Stop(..) | Record::Trap(_) => {}
        }
        self.epoch_begins(record, sink);
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

    /// Ends the regions of a thread whose frames are gone, by its stack pointer.
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

    /// Ends waits that an act of the thread at stack pointer `sp` shows to be over.
    #[inline]
    fn acts_at(&mut self, thread: ThreadId, sp: u64, sink: &mut impl FnMut(Item)) {
        let Self { syncs, events, .. } = self;
        syncs.acts_at(thread, sp, &mut |op, location| {
            *events += 1;
            sink(Item::Event(Event { thread, op, location }));
        });
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

    /// Returns all sites, by their numbers.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Returns the value that was observed at an event, if it is among the latest.
    #[must_use]
    pub fn value(&self, event: EventNumber) -> Option<ObservedValue> {
        let index = self.values.binary_search_by_key(&event, |value| value.event).ok()?;
        self.values.get(index).copied()
    }

    /// Iterates over the values that were observed at the latest accesses.
    pub fn recent_values(&self) -> impl Iterator<Item = ObservedValue> {
        self.values.iter().copied()
    }

    /// Returns a region's name and the location of the first marker of it that was seen.
    #[must_use]
    pub fn region_name(&self, region: RegionId) -> Option<(&str, LocationId)> {
        self.regions.get(region.index()).map(|(name, location)| (name.as_str(), *location))
    }

    /// Returns the number of regions seen.
    #[must_use]
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// Returns the description of a lock.
    #[must_use]
    pub fn lock_info(&self, lock: LockId) -> Option<Known> {
        self.syncs.lock(lock).copied()
    }

    /// Returns the description of an object that is not a lock.
    #[must_use]
    pub fn sync_info(&self, sync: SyncId) -> Option<Known> {
        self.syncs.sync(sync).copied()
    }

    /// Returns the threads that were seen, by their ids.
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
