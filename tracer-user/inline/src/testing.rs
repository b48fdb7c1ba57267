//! Threads of tests: they write to their rings as trampolines do, all steps at once or one by one.

use core::{cell::Cell, mem::offset_of};
use std::sync::{Arc, atomic::AtomicU64};

use abi::{FRAMES, Header, Kind, PairRecord, Record, SiteId};

use crate::{
    arena::{Arena, ArenaLayout, Segment, ThreadStart},
    encoding::{RecordSite, encode},
    layout::{Mode, SLOT_BYTES, Slot, ThreadBlock, head, sp_word},
    memory::{Offset, ProcessAddress, SharedWords, WORD},
    sites::SiteTable,
};

/// Memory of a test.
pub type TestMemory = Arc<[AtomicU64]>;

/// Site of records of one slot.
pub const SHORT: u32 = 1;

/// Site of records of two slots.
pub const LONG: u32 = 2;

/// Sites of all records.
pub fn sites() -> SiteTable {
    let mut sites = SiteTable::default();
    let site = RecordSite { kind: Kind::Init, point: 0 };
    [SHORT, LONG].into_iter().for_each(|number| sites.add(SiteId(number), site));
    sites
}

/// Empty file with rings of so many slots for so many threads, and its arena.
pub fn arena(slots: u64, threads: u64) -> (TestMemory, Arena) {
    let layout = ArenaLayout { words: 0, cells: 0, slots, threads };
    let memory: TestMemory = (0..layout.file_size() / WORD).map(|_| AtomicU64::new(0)).collect();
    let arena = Arena::new(layout, BASE, &memory);
    (memory, arena)
}

/// Address of the file in the traced process.
pub const BASE: ProcessAddress = ProcessAddress(0x7f00_0000_0000);

/// Start of a thread.
pub const fn start(tid: u32, mode: Mode) -> ThreadStart {
    ThreadStart { tid, epoch: 0, stack: (ProcessAddress(0), ProcessAddress(0)), mode }
}

/// Thread of the traced process.
pub struct Writer {
    pub memory: TestMemory,
    pub segment: Segment,
    /// The thread's epoch.
    pub epoch: Cell<u64>,
}

/// Slots that a thread has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub site: u32,
    pub first: u64,
    pub slots: u64,
}

impl Writer {
    pub fn field(&self, offset: usize) -> Offset {
        self.segment.block.plus(offset as u64)
    }

    pub fn load(&self, offset: usize) -> u64 {
        self.memory.load(self.field(offset))
    }

    /// Reserves the slots of a record, with room for them or not.
    pub fn reserve(&self, site: u32) -> Reserved {
        let slots = if site == LONG { 2 } else { 1 };
        let first = self.load(offset_of!(ThreadBlock, reserved));
        self.memory.store(self.field(offset_of!(ThreadBlock, reserved)), first + slots);
        Reserved { site, first, slots }
    }

    /// Returns whether there is room for slots that were reserved.
    pub fn has_room(&self, reserved: Reserved) -> bool {
        reserved.first + reserved.slots <= self.load(offset_of!(ThreadBlock, limit))
    }

    /// Takes the latest reservation back: the event is lost.
    pub fn lose(&self, reserved: Reserved) {
        self.memory.store(self.field(offset_of!(ThreadBlock, reserved)), reserved.first);
        let lost = self.load(offset_of!(ThreadBlock, lost));
        self.memory.store(self.field(offset_of!(ThreadBlock, lost)), lost + 1);
    }

    /// Publishes a record with this number in the slots.
    pub fn publish(&self, reserved: Reserved, order: u64, number: u64) {
        let record = PairRecord {
            header: Header { site: SiteId(reserved.site), ..Header::default() },
            argument: number,
            frames: if reserved.site == LONG { [1; FRAMES] } else { [0; FRAMES] },
            ..PairRecord::default()
        };
        let record = Record::Pair(Kind::Init, record);
        let encoded = encode(&record, order).unwrap();
        let slots = self.field(size_of::<ThreadBlock>());
        for (n, slot) in encoded.numbered(reserved.first).rev() {
            let sp = slot.sp | sp_word(0, self.epoch.get());
            let slot = Slot { sp, ..slot };
            let at = slots.plus(n % self.segment.capacity * SLOT_BYTES);
            let words = [slot.order, slot.argument, slot.sp, slot.extra];
            for (place, word) in (1..).zip(words.into_iter().chain(slot.frames)) {
                self.memory.store(at.plus(place * WORD), word);
            }
            self.memory.store(at, slot.head);
        }
    }

    /// Publishes the words of a slot behind the first one.
    pub fn publish_words(&self, reserved: Reserved, words: [u64; 7]) {
        let slots = self.field(size_of::<ThreadBlock>());
        let at = slots.plus(reserved.first % self.segment.capacity * SLOT_BYTES);
        for (place, word) in (1..).zip(words) {
            self.memory.store(at.plus(place * WORD), word);
        }
        self.memory.store(at, head(reserved.first, SiteId(reserved.site)));
    }

    /// Makes a record from which on the thread's epoch is this one.
    pub fn record_in(&self, epoch: u64, site: u32, order: u64, number: u64) -> bool {
        self.epoch.set(epoch);
        self.record(site, order, number)
    }

    /// Makes a record, if there is room; else its event is lost. Returns whether there was.
    pub fn record(&self, site: u32, order: u64, number: u64) -> bool {
        let reserved = self.reserve(site);
        let has_room = self.has_room(reserved);
        if has_room {
            self.publish(reserved, order, number);
        } else {
            self.lose(reserved);
        }
        has_room
    }
}

/// Number of a record of a test.
pub fn number_of(record: &Record) -> u64 {
    match record {
        Record::Pair(_, record) => record.argument,
        other => panic!("{other:?}"),
    }
}
