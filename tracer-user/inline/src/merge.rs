//! Merge of the threads' rings and the tracer's own records into one stream, in which each record comes after all
//! records that it follows from: `layout` says why.

use core::{cmp::Reverse, mem::offset_of, time::Duration};
use std::collections::{BinaryHeap, VecDeque, binary_heap::PeekMut};

use abi::{Header, Kind, LastAccess, OwnedRecord, Record, SiteId};

use crate::{
    arena::{CONTROL, Segment},
    cell::AccessKind,
    encoding::{VOID, decode_owned, decode_to},
    epochs::{Epoch, Owners},
    layout::{Control, Slot, ThreadBlock},
    memory::SharedWords,
    ring::{Blocked, Ring},
    sites::SiteTable,
    tracer::{Note, Notes, OrderedRecord},
};

/// Surroundings of the reader.
pub trait Surroundings {
    /// Reads the clock of the order: [`Control::counter`], or the time stamp counter. No order that is read after this
    /// is lower.
    fn now(&mut self) -> u64;

    /// Returns the highest order that a record which is published by now can have.
    fn latest(&mut self) -> u64 {
        self.now()
    }

    /// Has each thread of the traced process pass a barrier, and this thread: all earlier writes become visible, and
    /// later reads stay behind the barrier. With [`Control::counter`] the barrier of this thread is enough.
    fn barrier(&mut self);

    /// Time since any fixed point.
    fn elapsed(&mut self) -> Duration;

    /// Wakes all threads that wait for [`Control::progress`] to change.
    fn wake(&mut self);
}

/// Durations for which a slot that is reserved and not published holds back records of other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// While nothing behind it is published, records that are later in the order. They do not follow from its record,
    /// but the order of accesses that race is more often right.
    pub plain: Duration,
    /// While a signal handler has published records behind it, what may follow from these. Then the slot is given up:
    /// its event is lost.
    pub nested: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { plain: Duration::from_millis(1), nested: Duration::from_secs(1) }
    }
}

/// Losses so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events that found no room in their rings.
    pub full: u64,
    /// Events whose slots were never published, as a thread was killed or a signal handler did not return.
    pub unpublished: u64,
    /// Slots of records cut short by their threads' deaths. These are not losses: either their events had not happened,
    /// or nothing depends on them.
    pub begun: u64,
    /// Records that could not be decoded, were written over, or have an order that no clock had shown yet: a program
    /// that writes to its rings can forge such records.
    pub unreadable: u64,
    /// Deferred accesses whose records came too late, or whose threads have lost so many events that their epochs are
    /// unknown.
    pub late: u64,
}

/// Result of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of records that were handed on.
    pub records: usize,
    /// Set if there are more: the batch was full, or some are later or held back.
    pub has_more: bool,
}

/// Thread whose ring is read.
#[derive(Debug)]
struct RingThread {
    tid: u32,
    process: u32,
    epoch: Epoch,
    ring: Ring,
}

/// Note with a place in the order.
#[derive(Debug)]
enum Own {
    Record(OrderedRecord),
    Window { order: u64, begins: bool },
}

impl Own {
    const fn order(&self) -> u64 {
        match self {
            Self::Record(record) => record.order,
            Self::Window { order, .. } => *order,
        }
    }
}

/// Limits for the records that are taken from one ring in a row.
#[derive(Clone, Copy)]
struct Limits {
    /// Place of the next record of another ring.
    next: u64,
    /// Length of the batch's list when it is full.
    full: usize,
}

/// Merged stream of the records of all processes that share a file: one, and children that it has forked.
#[derive(Debug)]
pub struct Merge<M> {
    memory: M,
    patience: Patience,
    counts_epochs: bool,
    threads: Vec<RingThread>,
    /// The tracer's records that were not handed on, and windows that were not begun or ended.
    own: VecDeque<Own>,
    /// Between windows of capture: what threads still record is left out.
    is_between: bool,
    /// Places of the rings' next records, with the numbers of the threads plus 1; 0 is the tracer's.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Number of gaps, which goes into [`Header::lost`].
    gaps: u32,
    losses: Losses,
    /// Number of times that threads which have ended had to wait.
    waits: u64,
    /// Highest number of all threads' waits that was returned.
    most_waits: u64,
    /// Threads that may own words.
    owners: Owners,
    /// Place of the latest record that was handed on.
    latest: u64,
    drained: Vec<Segment>,
    /// Highest order that was found to be possible.
    possible: u64,
    /// Set once recording has ended.
    has_ended: bool,
    /// Time up to which the latest batch could have handed on more records.
    rest: Option<u64>,
}

impl<M: SharedWords> Merge<M> {
    /// Merge without threads. With `counts_epochs`, which is right where
    /// memory instructions are probed, records have the epochs of their threads; else these are 0.
    #[must_use]
    pub fn new(memory: M, patience: Patience, counts_epochs: bool) -> Self {
        Self {
            memory,
            patience,
            counts_epochs,
            threads: Vec::new(),
            own: VecDeque::new(),
            is_between: false,
            heads: BinaryHeap::new(),
            gaps: 0,
            losses: Losses::default(),
            waits: 0,
            most_waits: 0,
            owners: Owners::default(),
            latest: 0,
            drained: Vec::new(),
            possible: 0,
            has_ended: false,
            rest: None,
        }
    }

    /// Appends to `records` what can be handed on now, at most `most` records.
    ///
    /// [`Header::lost`] changes wherever events of the record's thread may have been lost before it, and where a window
    /// of capture has ended: it counts gaps, and [`losses`](Self::losses) the events. Between windows only the tracer's
    /// records are handed on, and marks of shared variables.
    pub fn batch(
        &mut self,
        around: &mut impl Surroundings,
        sites: &SiteTable,
        notes: &Notes,
        records: &mut Vec<Record>,
        most: usize,
    ) -> Batch {
        // An order that is read later may be the same.
        if self.is_idle(notes) {
            return Batch::default();
        }
        if let Some(rest) = self.rest.take() {
            // Since the barrier behind that time, all slots reserved up to it are visible, and the tracer's own records
            // were read.
            let batch = self.batch_until(rest, around, sites, records, most);
            if batch.records != 0 {
                return batch;
            }
        }
        let before_now = around.now().saturating_sub(1);
        around.barrier();
        self.read_notes(notes);
        let until = if self.has_ended { u64::MAX } else { before_now };
        self.batch_until(until, around, sites, records, most)
    }

    /// Notes that recording has ended. From now on no record is held back: a slot that is not published now never will
    /// be. So the stream comes to its end whatever the program has written to its rings.
    pub fn end(&mut self) {
        self.has_ended = true;
        self.threads.iter_mut().for_each(|thread| thread.ring.end());
    }

    /// Appends the records up to a time, behind which all threads have passed a barrier.
    fn batch_until(
        &mut self,
        before_now: u64,
        around: &mut impl Surroundings,
        sites: &SiteTable,
        records: &mut Vec<Record>,
        most: usize,
    ) -> Batch {
        let mut until = before_now;
        let full = records.len().saturating_add(most);
        let before = records.len();
        let mut heads = core::mem::take(&mut self.heads);
        if let Some(first) = self.own.front() {
            heads.push(Reverse((first.order(), 0)));
        }
        for number in 0..self.threads.len() {
            let full = self.threads[number].ring.look(&self.memory);
            // The program can write any number there.
            self.losses.full = self.losses.full.saturating_add(full);
            if let Some(place) = self.next_place(number, &mut until, around) {
                heads.push(Reverse((place, number + 1)));
            }
        }
        let mut has_more = false;
        loop {
            // The second lowest place is one of the two below the lowest.
            let below = heads.as_slice().iter().skip(1).take(2);
            let next = below.map(|Reverse((place, _))| *place).min().unwrap_or(u64::MAX);
            let Some(mut lowest) = heads.peek_mut() else { break };
            let Reverse((place, head)) = *lowest;
            if place > until || records.len() >= full {
                has_more = true;
                self.rest = (place <= until).then_some(until);
                break;
            }
            let next = match head.checked_sub(1) {
                None => self.hand_on_own(records),
                Some(number) => {
                    let limits = Limits { next, full };
                    self.hand_on(number, sites, limits, &mut until, around, records)
                }
            };
            match next {
                Some(place) => lowest.0.0 = place,
                None => drop(PeekMut::pop(lowest)),
            }
        }
        heads.clear();
        self.heads = heads;
        self.give_back(around);
        Batch { records: records.len() - before, has_more: has_more || until != before_now }
    }

    /// Returns whether the rings and notes are empty, as far as it shows without a barrier, which would interrupt each
    /// thread of the traced process.
    fn is_idle(&self, notes: &Notes) -> bool {
        self.own.is_empty()
            && self.threads.iter().all(|thread| thread.ring.is_idle(&self.memory))
            && notes.is_empty()
    }

    /// Losses so far.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Number of times that threads had to wait for the reader. It never falls, whatever the program writes to the
    /// threads' counters.
    pub fn waits(&mut self) -> u64 {
        let running = self.threads.iter().map(|thread| thread.ring.waits(&self.memory));
        self.most_waits = running.fold(self.waits, u64::saturating_add).max(self.most_waits);
        self.most_waits
    }

    /// Number of threads whose rings are read.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Takes the rings that were read to the end, for other threads.
    #[must_use]
    pub fn take_drained(&mut self) -> Vec<Segment> {
        core::mem::take(&mut self.drained)
    }

    fn read_notes(&mut self, notes: &Notes) {
        for note in notes.take() {
            match note {
                Note::Started { tid, process, ring } => {
                    let block =
                        |field: usize| self.memory.load(ring.segment().block.plus(field as u64));
                    let epoch = Epoch::new(block(offset_of!(ThreadBlock, incarnation)));
                    self.owners.add(block(offset_of!(ThreadBlock, owner)), &epoch, tid);
                    tracing::debug!(tid, process, "a ring is read");
                    let mut ring = *ring;
                    if self.has_ended {
                        ring.end();
                    }
                    self.threads.push(RingThread { tid, process, epoch, ring });
                }
                Note::Ended { tid } => {
                    let with_id = |thread: &&mut RingThread| thread.tid == tid;
                    if let Some(thread) = self.threads.iter_mut().rev().find(with_id) {
                        thread.ring.end();
                    }
                }
                Note::Record(record) => self.own.push_back(Own::Record(record)),
                Note::Window { order, begins } => self.own.push_back(Own::Window { order, begins }),
            }
        }
    }

    /// Place of a ring's next record, if it is published. Else `until` becomes the time up to which records may be
    /// handed on.
    #[inline]
    fn next_place(
        &mut self,
        number: usize,
        until: &mut u64,
        around: &mut impl Surroundings,
    ) -> Option<u64> {
        match self.peek(number, around) {
            Some(place) => Some(place),
            None => self.held_back(number, until, around),
        }
    }

    /// Place of a ring's next record, if it is published. Skips records of impossible orders, which would be waited for
    /// without end.
    #[inline]
    fn peek(&mut self, number: usize, around: &mut impl Surroundings) -> Option<u64> {
        loop {
            let place = self.peek_any(number)?;
            if place <= self.possible || self.is_possible(place, around) {
                return Some(place);
            }
            self.threads[number].ring.skip();
            self.lose(|losses| &mut losses.unreadable, 1);
        }
    }

    /// Returns whether a record that is published by now can have an order.
    #[inline(never)]
    fn is_possible(&mut self, order: u64, around: &mut impl Surroundings) -> bool {
        self.possible = self.possible.max(around.latest());
        order <= self.possible
    }

    /// Place of a ring's next record, if it is published, whatever its order is.
    #[inline]
    fn peek_any(&mut self, number: usize) -> Option<u64> {
        let mut unpublished = 0;
        let place = self.threads[number].ring.peek(&self.memory, &mut unpublished);
        if unpublished != 0 {
            self.lose(|losses| &mut losses.unpublished, unpublished);
        }
        if place.is_none() {
            self.losses.begun += self.threads[number].ring.take_begun();
        }
        place
    }

    /// Variant of [`next_place`](Self::next_place) for a ring of which no record was found.
    #[inline(never)]
    fn held_back(
        &mut self,
        number: usize,
        until: &mut u64,
        around: &mut impl Surroundings,
    ) -> Option<u64> {
        loop {
            let ring = &mut self.threads[number].ring;
            let blocked = ring.blocked(&self.memory)?;
            let waited = ring.blocked_for(around.elapsed());
            let latest = match blocked {
                Blocked::Plain { .. } if waited >= self.patience.plain => return None,
                Blocked::Plain { place } => place,
                Blocked::Nested { .. } if waited >= self.patience.nested => {
                    ring.abandon();
                    let tid = self.threads[number].tid;
                    tracing::debug!(tid, ?waited, "a slot was given up: its event is lost");
                    self.lose(|losses| &mut losses.unpublished, 1);
                    match self.peek(number, around) {
                        Some(place) => return Some(place),
                        None => continue,
                    }
                }
                Blocked::Nested { order } => order,
            };
            *until = latest.min(*until);
            return None;
        }
    }

    /// Hands on records of a ring, at least one, within the limits. Returns the place of the next record.
    fn hand_on(
        &mut self,
        number: usize,
        sites: &SiteTable,
        limits: Limits,
        until: &mut u64,
        around: &mut impl Surroundings,
        records: &mut Vec<Record>,
    ) -> Option<u64> {
        let last = limits.next.min(*until);
        loop {
            if !self.hand_on_one(number, sites, records) {
                self.lose(|losses| &mut losses.unreadable, 1);
            }
            match self.peek(number, around) {
                Some(place) if place <= last && records.len() < limits.full => {}
                Some(place) => return Some(place),
                None => return self.held_back(number, until, around),
            }
        }
    }

    /// Hands on the record that was found in a ring. Returns whether it could be decoded.
    #[inline]
    fn hand_on_one(&mut self, number: usize, sites: &SiteTable, records: &mut Vec<Record>) -> bool {
        let Self { threads, memory, gaps, counts_epochs, owners, latest, is_between, .. } = self;
        let RingThread { tid, process, epoch, ring } = &mut threads[number];
        let lost = ring.lost();
        let Some((place, taken)) = ring.take(memory) else { return false };
        *gaps = gaps.wrapping_add(taken.is_gap.into());
        if taken.is_gap && !epoch.is_known_after(lost) {
            owners.forget(*tid);
        }
        epoch.advance(taken.first.sp);
        let (tid, lost, process) = (*tid, *gaps, *process);
        let header = Header { kind: 0, tid, site: taken.first.site(), lost, process };
        let is_late = place < *latest;
        *latest = place.max(*latest);
        if header.site.0 >= VOID.0 {
            let first = taken.first;
            return header.site == VOID
                || *is_between
                || self.hand_on_owned(&first, header, is_late, records);
        }
        let Some(site) = sites.get(taken.first.site()) else { return false };
        if *is_between && site.kind != Kind::Shared {
            return true;
        }
        let epoch = if *counts_epochs { epoch.at(site.kind) } else { 0 };
        let pass = |record| records.push(record);
        decode_to(&taken.first, taken.more, site, header, epoch, pass).is_some()
    }

    /// Hands on a deferred access that a thread has taken from another one's cell, unless records that follow from
    /// that were handed on. Returns whether it could be decoded.
    #[cold]
    fn hand_on_owned(
        &mut self,
        slot: &Slot,
        header: Header,
        is_late: bool,
        records: &mut Vec<Record>,
    ) -> bool {
        let Some((kind, deferred)) = decode_owned(slot) else { return false };
        let owner = self.owners.find(deferred.thread, deferred.epoch);
        let Some(owner) = owner.filter(|_| !is_late) else {
            self.lose(|losses| &mut losses.late, 1);
            return true;
        };
        let access = LastAccess {
            epoch: deferred.epoch,
            sp: 0,
            site: SiteId(deferred.site as u32),
            bytes: deferred.mask as u32,
        };
        let none = LastAccess::default();
        let (write, read) = match kind {
            AccessKind::Write => (access, none),
            AccessKind::Read => (none, access),
        };
        let header = Header { kind: Kind::Owned as u32, site: SiteId::NONE, ..header };
        let address = deferred.word << 3;
        records.push(Record::Owned(OwnedRecord { header, owner, address, write, read }));
        true
    }

    /// Hands on the tracer's next record, or begins or ends a window. Returns the next place.
    fn hand_on_own(&mut self, records: &mut Vec<Record>) -> Option<u64> {
        let mut record = match self.own.pop_front()? {
            Own::Record(OrderedRecord { record, .. }) => record,
            Own::Window { begins, .. } => {
                // What happens between windows is unknown, as after a loss.
                self.gaps = self.gaps.wrapping_add(u32::from(!begins && !self.is_between));
                self.is_between = !begins;
                return self.own.front().map(Own::order);
            }
        };
        let tid = record.header().tid;
        let thread = self.threads.iter().rposition(|thread| thread.tid == tid);
        let begun = match thread {
            Some(number) if self.counts_epochs => self.threads[number].epoch.at(record.kind()),
            _ => 0,
        };
        let (header, epoch) = match &mut record {
            Record::Fork(record) => (&mut record.header, Some(&mut record.epoch)),
            Record::Exit(record) => (&mut record.header, Some(&mut record.epoch)),
            Record::ChildProcess(record) => (&mut record.header, Some(&mut record.epoch)),
            Record::Stop(_, record) => (&mut record.header, Some(&mut record.epoch)),
            Record::Trap(record) => (&mut record.header, Some(&mut record.epoch)),
            Record::Switch(record) => (&mut record.header, None),
            Record::Watchpoint(record) => (&mut record.header, Some(&mut record.epoch)),
            _ => return self.own.front().map(Own::order),
        };
        header.lost = self.gaps;
        if let Some(epoch) = epoch {
            *epoch = begun;
        }
        records.push(record);
        self.own.front().map(Own::order)
    }

    /// Counts lost events of a kind, which are a gap before the next record.
    fn lose(&mut self, kind: impl FnOnce(&mut Losses) -> &mut u64, events: u64) {
        if events != 0 {
            let losses = kind(&mut self.losses);
            *losses = losses.saturating_add(events);
            self.gaps = self.gaps.wrapping_add(1);
        }
    }

    /// Gives the room of all records that were taken back to the threads, and the rings of ended threads to the caller.
    fn give_back(&mut self, around: &mut impl Surroundings) {
        let mut has_changed = false;
        for thread in &mut self.threads {
            has_changed |= thread.ring.give_back(&self.memory);
        }
        if has_changed {
            // A thread counts itself as waiting before it looks at its limit once more.
            self.memory.fence();
            let waiting = self.memory.load(CONTROL.plus(offset_of!(Control, waiting) as u64));
            if waiting as u32 != 0 {
                self.memory.add(CONTROL, 1 << PROGRESS_SHIFT);
                around.wake();
            }
        }
        let Self { threads, drained, waits, memory, .. } = self;
        threads.retain(|RingThread { ring, .. }| {
            if ring.is_drained() {
                *waits = waits.saturating_add(ring.waits(memory));
                drained.push(ring.for_next());
            }
            !ring.is_drained()
        });
    }
}

/// Place of [`Control::progress`] in the first word of the control page.
const PROGRESS_SHIFT: u32 = 32;

const _: () = {
    assert!(offset_of!(Control, progress) == 4);
    assert!(offset_of!(Control, waiting) == 8);
};

#[cfg(test)]
mod tests;
