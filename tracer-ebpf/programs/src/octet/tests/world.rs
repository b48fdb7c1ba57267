//! Surroundings of the protocol in tests: a table of slots, a ring buffer, threads, and mistakes to make on purpose.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    vec::Vec,
};

use abi::{AccessDescriptor, LastAccess, SiteId};

use super::history::{Happened, History, Last, Record};
use crate::{
    octet::{
        self, Deferred, Environment, MapMemory, MapNumber, Memory, Ownership, Plain, Reservation,
    },
    table::{Access, EPOCH_BITS, ThreadEpochs, ThreadState, thread_and_epoch},
};

/// Mistake in a step of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The lock counts as taken at the first attempt.
    LockNotAwaited,
    /// Taking and releasing the lock adds no order.
    LockWithoutBarrier,
    /// The lock is released before the deferred accesses are emitted.
    LockReleasedBeforeFlush,
    /// Room for a record is reserved before an attempt at the lock.
    RecordBeforeLock,
    /// Room for a record is reserved after the release of the lock.
    RecordAfterUnlock,
    /// Deferred accesses are forgotten when an ownership ends.
    NotFlushed,
    /// Deferred accesses remain in the slot when they are emitted.
    FlushedTwice,
    /// Deferred accesses are emitted after the record of the thread that comes.
    FlushedAfterRecord,
    /// The owner remains the owner.
    OwnerStays,
    /// A word has another owner, and nobody sees it.
    OwnerNotSeen,
    /// A bypass does not show while it lasts, and is not marked either.
    BypassNotShown,
    /// The next holder of the lock does not look for a bypass.
    BypassNotChecked,
    /// Showing and marking a bypass add no order.
    BypassWithoutBarrier,
    /// A bypassing thread does not look at the lock.
    LockNotSeen,
    /// A bypassing thread does not look at the lock once more after it has looked for deferred accesses.
    LockSeenOnce,
    /// A bypassing thread does not look for deferred accesses.
    DeferredNotSeen,
    /// Losses are not counted.
    LossNotCounted,
    /// An access of several words does not end other ownerships before its reservation.
    NotDisownedBefore,
    /// An access of several words does not end other ownerships after its reservation.
    NotDisownedAfter,
    /// An access of several words does not show between the two.
    SeveralNotShown,
    /// The epoch goes on after an access that other threads' may come before.
    EpochGoesOn,
}

/// Field of a slot that has its own mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Lock,
    Bypassing,
    Bypassed,
    Word,
    Owner,
    Deferred,
}

/// Memory that tests can make.
pub trait TestMemory: Memory {
    /// Counter of reservations in the ring buffer.
    type Ring: Ring;

    fn shared(field: Field, mistake: Option<Mistake>) -> Self::Shared;
    fn held<T: Copy>(number: T) -> Self::Held<T>;
}

/// Counter of reservations in the ring buffer.
pub trait Ring: Default {
    /// Returns the number of reservations before this one.
    fn reserve(&self) -> usize;
}

impl TestMemory for MapMemory {
    type Ring = std::sync::atomic::AtomicUsize;

    fn shared(_: Field, _: Option<Mistake>) -> MapNumber {
        MapNumber::default()
    }

    fn held<T: Copy>(number: T) -> Plain<T> {
        Plain::new(number)
    }
}

impl Ring for std::sync::atomic::AtomicUsize {
    fn reserve(&self) -> usize {
        self.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
    }
}

/// Access of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Read or write of bytes of a word, which is given by its number and the mask.
    Read(u64, u32),
    Write(u64, u32),
    /// Commuting update of bytes of a word.
    Commute(u64, u32),
    /// Write to two words from this one on.
    Several(u64),
}

/// A table with `SLOTS` slots, in which words are distributed by their numbers.
pub struct World<M: TestMemory> {
    slots: Vec<Ownership<M>>,
    ring: M::Ring,
    mistake: Option<Mistake>,
    /// Set if there is a table of epochs, which knows of accesses to words without a slot.
    pub has_epochs: bool,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    accesses: Vec<Happened>,
    records: BTreeMap<usize, Record>,
    lost: usize,
    may_lose: bool,
    moments: usize,
    /// Deferred accesses that [`Mistake::FlushedAfterRecord`] holds back.
    late: Vec<Record>,
    /// Table of epochs, as a plain map: the thread that has last accessed a word, or 0 for a shared one.
    last: HashMap<u64, u32>,
}

impl Log {
    fn moment(&mut self) -> usize {
        self.moments += 1;
        self.moments
    }
}

pub fn thread(tid: u32) -> ThreadState {
    let now = u64::from(tid) << EPOCH_BITS | 1;
    let epochs = ThreadEpochs { now, incarnation: now };
    ThreadState { epochs, highest_sp: 0, large_accesses: 0 }
}

impl<M: TestMemory> World<M> {
    pub fn new(slots: usize, mistake: Option<Mistake>) -> Self {
        let slot = |_| {
            let shared = |field| M::shared(field, mistake);
            Ownership {
                lock: shared(Field::Lock),
                bypassing: shared(Field::Bypassing),
                bypassed: shared(Field::Bypassed),
                word: shared(Field::Word),
                owner: shared(Field::Owner),
                written: shared(Field::Deferred),
                read: shared(Field::Deferred),
                write_sp: M::held(0),
                read_sp: M::held(0),
                write_site: M::held(SiteId::NONE),
                read_site: M::held(SiteId::NONE),
                bits: M::held(0),
                unused: M::held(0),
            }
        };
        let slots = (0..slots).map(slot).collect();
        let (ring, log) = (M::Ring::default(), Mutex::default());
        Self { slots, ring, mistake, has_epochs: true, log }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub fn slot(&self, word: u64) -> &Ownership<M> {
        &self.slots[word as usize % self.slots.len()]
    }

    /// Executes a step of a thread, in a new epoch.
    pub fn step(&self, thread: &mut ThreadState, step: Step) {
        thread.epochs.now += 1;
        match step {
            Step::Read(word, mask) => self.access(thread, word, mask, AccessDescriptor::READ),
            Step::Write(word, mask) => self.access(thread, word, mask, AccessDescriptor::WRITE),
            Step::Commute(word, mask) => {
                let flags = AccessDescriptor::WRITE | AccessDescriptor::COMMUTES;
                self.access(thread, word, mask, flags);
            }
            Step::Several(word) => self.several(thread, word),
        }
    }

    fn last(&self, word: u64) -> Option<u32> {
        self.log.lock().unwrap().last.get(&word).copied()
    }

    fn begin(&self, thread: &ThreadState, words: (u64, u64), mask: u32, writes: bool) -> usize {
        let mut log = self.log.lock().unwrap();
        let (tid, epoch) = thread_and_epoch(thread.epochs.now);
        let began = log.moment();
        let tid = tid as u32;
        let is_deferred = false;
        let ended = usize::MAX;
        log.accesses.push(Happened { tid, words, mask, writes, began, ended, epoch, is_deferred });
        log.accesses.len() - 1
    }

    fn end(&self, thread: &ThreadState, number: usize, is_deferred: bool) {
        let mut log = self.log.lock().unwrap();
        let ended = log.moment();
        let access = &mut log.accesses[number];
        access.ended = ended;
        access.is_deferred = is_deferred;
        access.epoch = thread_and_epoch(thread.epochs.now).1;
    }

    fn access(&self, thread: &mut ThreadState, word: u64, mask: u32, flags: u8) {
        let writes = flags & AccessDescriptor::WRITE != 0;
        let number = self.begin(thread, (word, word), mask, writes);
        let access = Access {
            tid: (thread.epochs.now >> EPOCH_BITS) as u32,
            address: word * 8 + u64::from(mask.trailing_zeros()),
            bytes: mask.count_ones().into(),
            flags,
            site: SiteId(number as u32),
            sp: 0,
        };
        thread.highest_sp = number as u64;
        let early = self.makes(Mistake::RecordBeforeLock).then(|| self.ring.reserve());
        let environment = InTest { world: self, early };
        let epochs = thread.epochs;
        let is_contended = self.has_epochs && self.last(word).is_some_and(|tid| tid != access.tid);
        let word = (word, is_contended);
        let slot = self.slot(word.0);
        let entry = octet::defer_or_reserve(environment, slot, thread, &access, word, 0);
        if self.makes(Mistake::EpochGoesOn) {
            thread.epochs = epochs;
        }
        self.fill(&entry, number);
        self.end(thread, number, entry.is_none());
    }

    fn several(&self, thread: &mut ThreadState, word: u64) {
        use octet::Shared;
        let number = self.begin(thread, (word, word + 1), 0xff, true);
        let id = (thread.epochs.incarnation, (thread.epochs.now >> EPOCH_BITS) as u32);
        let environment = InTest { world: self, early: None };
        let skipped = match self.mistake {
            Some(Mistake::NotDisownedBefore) => Some(Reservation::Before),
            Some(Mistake::NotDisownedAfter) => Some(Reservation::After),
            _ => None,
        };
        let disown = |at| {
            for word in [word, word + 1] {
                if self.last(word) != Some(id.1) {
                    environment.mark_shared(word);
                }
                let slot = self.slot(word);
                if skipped == Some(at) {
                    slot.bypassing.add(if at == Reservation::Before { 1 } else { u64::MAX });
                } else if self.makes(Mistake::SeveralNotShown) {
                    octet::disown_unshown(environment, slot, word, id, at, 0);
                } else {
                    octet::disown(environment, slot, word, id, at, 0);
                }
            }
        };
        disown(Reservation::Before);
        let entry = environment.reserve();
        self.fill(&entry, number);
        disown(Reservation::After);
        self.end(thread, number, false);
    }

    /// Puts the record of an access into its room.
    fn fill(&self, entry: &Option<Entry>, number: usize) {
        let Some(entry) = entry else { return };
        let place = match *entry {
            Entry::At(place) => place,
            Entry::Later => self.ring.reserve(),
        };
        self.log.lock().unwrap().records.insert(place, Record::Access(number));
    }

    /// Ends all ownerships. No thread is at work any more.
    pub fn flush(&self) {
        use octet::Shared;
        for slot in &self.slots {
            assert_eq!((slot.lock.get(), slot.bypassing.get()), (0, 0), "a slot is still in use");
            slot.share(InTest { world: self, early: None }, 0);
        }
    }

    /// All that happened.
    pub fn history(&self) -> History {
        let log = self.log.lock().unwrap();
        History {
            accesses: log.accesses.clone(),
            records: log.records.values().chain(&log.late).copied().collect(),
            lost: log.lost,
            may_lose: log.may_lose,
        }
    }
}

/// Room in the ring buffer.
#[derive(Debug)]
pub enum Entry {
    At(usize),
    /// With [`Mistake::RecordAfterUnlock`].
    Later,
}

/// Environment of the protocol.
struct InTest<'a, M: TestMemory> {
    world: &'a World<M>,
    /// With [`Mistake::RecordBeforeLock`].
    early: Option<usize>,
}

impl<M: TestMemory> Clone for InTest<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: TestMemory> Copy for InTest<'_, M> {}

impl<M: TestMemory> Environment for InTest<'_, M> {
    type Memory = M;
    type Entry = Entry;

    const MAX_CLAIMS: u32 = 1;

    fn is_enabled(self) -> bool {
        true
    }

    fn reserve(self) -> Option<Entry> {
        if self.world.makes(Mistake::RecordAfterUnlock) {
            return Some(Entry::Later);
        }
        let place = self.early.unwrap_or_else(|| self.world.ring.reserve());
        let mut log = self.world.log.lock().unwrap();
        if let Some(late) = log.late.pop() {
            let late_place = self.world.ring.reserve();
            log.records.insert(late_place, late);
        }
        Some(Entry::At(place))
    }

    fn emit(self, _: u32, deferred: impl FnOnce() -> Deferred) {
        let deferred = deferred();
        let Deferred { owner, address, write, read } = deferred;
        let last = |LastAccess { epoch, sp, site, bytes }: LastAccess| {
            assert!(epoch == 0 || sp == u64::from(site.0), "{deferred:?}");
            let number = site.0 as usize;
            (epoch != 0).then_some(Last { number, epoch, bytes })
        };
        let record =
            Record::Owned { owner, word: address >> 3, write: last(write), read: last(read) };
        let world = self.world;
        match world.mistake {
            Some(Mistake::NotFlushed) => return,
            Some(Mistake::FlushedAfterRecord) => {
                world.log.lock().unwrap().late.push(record);
                return;
            }
            Some(Mistake::LockReleasedBeforeFlush) => {
                use octet::Shared;
                world.slot(address >> 3).lock.exchange(0);
            }
            _ => {}
        }
        let place = world.ring.reserve();
        world.log.lock().unwrap().records.insert(place, record);
    }

    fn count_lost(self) {
        if !self.world.makes(Mistake::LossNotCounted) {
            self.world.log.lock().unwrap().lost += 1;
        }
    }

    fn insert(self, _: &ThreadState, access: &Access, word: u64) {
        self.world.log.lock().unwrap().last.insert(word, access.tid);
    }

    fn mark_shared(self, word: u64) {
        let mut log = self.world.log.lock().unwrap();
        log.last.insert(word, 0);
        // This thread bypasses a lock, or has several words.
        log.may_lose = true;
    }
}
