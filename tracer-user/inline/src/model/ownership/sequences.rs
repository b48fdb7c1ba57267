//! Random sequences of accesses, one at a time, by the rules of cells; those of one thread also by the rules of the BPF
//! programs.

use core::cell::RefCell;
use std::{collections::HashMap, ops::Range};

use abi::{AccessDescriptor, SiteId};
use ebpf::{
    octet::{self, Deferred, Environment, MapMemory, Ownership},
    table::{self, ThreadEpochs, ThreadState},
};
use proptest::prelude::*;

use crate::cell::{AccessKind, Cell, CellAccess, KINDS};

/// Step of a thread: an access to bytes of a word, in its next epoch.
#[derive(Clone, Copy, Debug)]
struct CellStep {
    thread: usize,
    mask: u64,
    kind: AccessKind,
}

const THREADS: Range<usize> = 1..4;

fn steps() -> impl Strategy<Value = Vec<CellStep>> {
    let kind = prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write)];
    let mask = prop_oneof![4 => Just(0xff_u64), 1 => Just(0x0f), 1 => Just(0x3c)];
    let run = (THREADS, prop::collection::vec((kind, mask), 1..3), 1..4_usize).prop_map(
        |(thread, accesses, times)| {
            let steps: Vec<_> =
                accesses.into_iter().map(|(kind, mask)| CellStep { thread, mask, kind }).collect();
            steps.repeat(times)
        },
    );
    prop::collection::vec(run, 1..8).prop_map(|runs| runs.concat())
}

/// Record of a step, or of the deferred accesses of one: numbers of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StepRecord {
    Access(usize),
    Deferred(usize),
}

/// Surroundings of the protocol of the BPF programs: a list of records.
#[derive(Clone, Copy)]
struct RecordList<'a>(&'a RefCell<Vec<StepRecord>>);

impl Environment for RecordList<'_> {
    type Memory = MapMemory;
    type Entry = ();

    fn is_enabled(self) -> bool {
        true
    }

    fn reserve(self) -> Option<()> {
        Some(())
    }

    fn emit(self, _tid: u32, deferred: impl FnOnce() -> Deferred) {
        let Deferred { write, read, .. } = deferred();
        let mut records = self.0.borrow_mut();
        for last in [write, read].into_iter().filter(|last| last.epoch != 0) {
            records.push(StepRecord::Deferred(last.site.0 as usize));
        }
    }

    fn count_lost(self) {
        panic!("one thread at a time loses nothing");
    }

    fn insert(self, _thread: &ThreadState, _access: &table::Access, _word: u64) {}

    fn mark_shared(self, _word: u64) {}
}

const WORD: u64 = 0x7f12_3456_7890 >> 3;

/// Records of the BPF programs.
fn by_slot(steps: &[CellStep]) -> Vec<StepRecord> {
    let slot = Ownership::<MapMemory>::default();
    let records = RefCell::new(Vec::new());
    for (number, &CellStep { thread, mask, kind }) in steps.iter().enumerate() {
        let incarnation = (thread as u64) << table::EPOCH_BITS | 1;
        let epochs = ThreadEpochs { now: incarnation + number as u64, incarnation };
        let mut state = ThreadState { epochs, highest_sp: 0, large_accesses: 0 };
        let access = table::Access {
            tid: thread as u32,
            address: (WORD << 3) + u64::from(mask.trailing_zeros()),
            bytes: u64::from(mask.count_ones()),
            flags: match kind {
                AccessKind::Read => AccessDescriptor::READ,
                AccessKind::Write => AccessDescriptor::WRITE,
            },
            site: SiteId(number as u32),
            sp: 0,
        };
        let log = RecordList(&records);
        let entry = octet::defer_or_reserve(log, &slot, &mut state, &access, (WORD, false), 1);
        if entry.is_some() {
            records.borrow_mut().push(StepRecord::Access(number));
        }
    }
    records.into_inner()
}

/// Records by the rules of cells.
fn by_cells(steps: &[CellStep]) -> Vec<StepRecord> {
    let mut cells = [Cell::default(); 2];
    let mut records = Vec::new();
    for (number, &CellStep { thread, mask, kind }) in steps.iter().enumerate() {
        let (epoch, site) = (number as u64 + 1, number as u64);
        let access = CellAccess {
            thread: thread as u64,
            epoch,
            word: WORD,
            mask,
            kind,
            site,
            is_special: false,
        };
        let own = &mut cells[kind as usize];
        if let Some(after) = own.deferring(&access, 1) {
            *own = after;
            continue;
        }
        for (kind, cell) in KINDS.into_iter().zip(&mut cells) {
            let after = cell.recording(&access, kind, 1);
            let flushed = cell.flushed(after).map(|deferred| deferred.site as usize);
            records.extend(flushed.map(StepRecord::Deferred));
            *cell = after;
        }
        records.push(StepRecord::Access(number));
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    /// A thread that has a word to itself, and always accesses all of it, has the same records by both rules.
    #[test]
    fn an_owner_of_whole_words_is_treated_alike(
        steps in steps().prop_map(|mut steps| {
            steps.iter_mut().for_each(|step| step.mask = 0xff);
            steps
        }),
    ) {
        let first = steps[0].thread;
        let owned = steps.iter().take_while(|step| step.thread == first).count();
        let (slot, cells) = (by_slot(&steps[..owned]), by_cells(&steps[..owned]));
        prop_assert_eq!(&slot, &cells);
    }

    /// Each deferred access is represented once: by its own record, or that of a later one of its thread and kind
    /// without another thread's in between.
    #[test]
    fn no_access_of_another_thread_separates_a_deferred_one_from_its_record(steps in steps()) {
        let records = by_cells(&steps);
        let mut places = HashMap::new();
        for (place, record) in records.iter().enumerate() {
            prop_assert!(places.insert(*record, place).is_none(), "{:?} twice: {:?}", record, records);
        }
        for (number, step) in steps.iter().enumerate() {
            if places.contains_key(&StepRecord::Access(number)) {
                continue;
            }
            let mut later = steps.iter().enumerate().skip(number);
            let other = later
                .find(|(_, other)| other.thread != step.thread)
                .map(|(other, _)| places[&StepRecord::Access(other)]);
            let like = (number..steps.len()).find(|&like| {
                let other = &steps[like];
                other.thread == step.thread
                    && other.kind == step.kind
                    && other.mask == step.mask
                    && places.contains_key(&StepRecord::Deferred(like))
            });
            if let Some(other) = other {
                let like = like.and_then(|like| places.get(&StepRecord::Deferred(like)));
                prop_assert!(like.is_some_and(|&like| like < other), "{number}: {records:?}");
            }
        }
    }
}
