//! The emitted code of words that threads own, one access at a time, compared with the rules of cells and of the table
//! of words.

use std::collections::HashMap;

use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram, SiteId};
use ebpf::table::{self, ThreadEpochs, WordAccesses};
use iced_x86::code_asm::*;
use inline::{
    cell::{self, AccessKind, Cell, Deferred, KINDS},
    encoding::{OWNED, decode_owned},
    layout::{Clock, SP_BITS, ThreadBlock, word_slot},
    trampoline::{Point, Probe},
};
use proptest::prelude::*;
use x86::patching::Live;

use super::support::{Machine, registers};

const READ: u8 = AccessDescriptor::READ;
const WRITE: u8 = AccessDescriptor::WRITE;
const ATOMIC: u8 = AccessDescriptor::ATOMIC;
const COMMUTES: u8 = AccessDescriptor::COMMUTES;

const KINDS_OF_ACCESS: [u8; 7] =
    [READ, READ, WRITE, WRITE, READ | WRITE, READ | WRITE | ATOMIC, READ | WRITE | COMMUTES];

const TIDS: [u32; 3] = [77, 93, 4_000_000];

/// Memory that is accessed.
const BYTES: u64 = 512;

#[derive(Clone, Debug)]
enum OwnershipStep {
    Access(Accessed),
    /// A record of another kind.
    Epoch(usize),
    /// A thread's block is used again by a new one.
    Reincarnate(usize),
}

/// Access of a thread: place, size, kind, and the stack pointer's distance from the highest one.
#[derive(Clone, Copy, Debug)]
struct Accessed {
    thread: usize,
    at: u64,
    size: u64,
    kind: usize,
    depth: u64,
}

fn step() -> impl Strategy<Value = OwnershipStep> {
    // Few words, so that threads meet.
    let place = prop_oneof![
        6 => (0..6_u64, Just(8_u64)).prop_map(|(word, size)| (8 * word, size)),
        2 => (0..12_u64, Just(4_u64)).prop_map(|(half, size)| (4 * half, size)),
        1 => (0..48_u64, 1..=64_u64),
        1 => (0..48_u64, 65..200_u64),
    ];
    let thread = || prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let depth = prop_oneof![4 => Just(1_u64), 1 => 0..3_u64];
    prop_oneof![
        12 => (thread(), place, 0..KINDS_OF_ACCESS.len(), depth).prop_map(
            |(thread, (at, size), kind, depth)| {
                OwnershipStep::Access(Accessed { thread, at, size, kind, depth })
            }
        ),
        6 => thread().prop_map(OwnershipStep::Epoch),
        1 => (0..3_usize).prop_map(OwnershipStep::Reincarnate),
    ]
}

/// Thread, as its block has it.
#[derive(Clone, Copy)]
struct BlockThread {
    epochs: ThreadEpochs,
    epoch_sp: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum MachineRecord {
    Owned(AccessKind, Deferred),
    Access(u64),
}

/// The rules, without memory that is shared.
#[derive(Default)]
struct Reference {
    slots: HashMap<u32, WordAccesses>,
    cells: HashMap<u32, [Cell; 2]>,
}

impl Reference {
    fn slot(&mut self, word: u64) -> &mut WordAccesses {
        let none = WordAccesses { thread_epoch: 0, accesses: 0 };
        self.slots.entry(word_slot(word)).or_insert(none)
    }

    fn cells(&mut self, word: u64) -> &mut [Cell; 2] {
        self.cells.entry(word_slot(word)).or_default()
    }

    /// Makes an access, and returns its records.
    fn access(
        &mut self,
        number: u64,
        thread: &mut BlockThread,
        access: &table::Access,
    ) -> Vec<MachineRecord> {
        let (first, last) = access.words();
        let is_large = access.bytes > table::MAX_BYTES;
        let (mut is_new, mut is_contended) = (u64::from(is_large), u64::from(is_large));
        if !is_large {
            access.each_word(|word, mask| {
                let compared = self.slot(word).compare(thread.epochs, access, word, mask);
                is_new |= compared.0;
                is_contended |= compared.1;
            });
        }
        if is_new == 0 {
            return Vec::new();
        }
        let is_above = access.sp > thread.epoch_sp;
        let of = |word, mask, thread: &BlockThread| cell::CellAccess {
            thread: number,
            epoch: table::thread_and_epoch(thread.epochs.now).1,
            word,
            mask,
            kind: if access.writes() { AccessKind::Write } else { AccessKind::Read },
            site: access.site.number().into(),
            is_special: access.flags & (ATOMIC | COMMUTES) != 0,
        };
        let (_, since) = table::thread_and_epoch(thread.epochs.incarnation);
        if first == last && !is_above {
            let deferred = of(first, access.byte_mask(), thread);
            let own = &mut self.cells(first)[deferred.kind as usize];
            if let Some(after) = own.deferring(&deferred, since) {
                *own = after;
                let mask = access.byte_mask();
                *self.slot(first) = self.slot(first).after(thread.epochs.now, access, first, mask);
                return Vec::new();
            }
        }
        if is_contended != 0 || is_above {
            thread.epochs.now += 1;
            thread.epoch_sp = access.sp;
        }
        if is_large {
            for word in first..=last {
                if self.slot(word).thread_epoch >> table::EPOCH_BITS != u64::from(access.tid) {
                    *self.slot(word) = WordAccesses::SHARED;
                }
            }
        } else {
            access.each_word(|word, mask| {
                *self.slot(word) = self.slot(word).after(thread.epochs.now, access, word, mask);
            });
        }
        let mut records = Vec::new();
        for word in first..=last {
            let mask = if first == last { access.byte_mask() } else { 0 };
            let recorded = of(word, mask, thread);
            for (kind, cell) in KINDS.into_iter().zip(self.cells(word)) {
                let after = if first == last && !is_large {
                    cell.recording(&recorded, kind, since)
                } else {
                    cell.recording_many(&recorded, since)
                };
                records.extend(
                    cell.flushed(after).map(|deferred| MachineRecord::Owned(kind, deferred)),
                );
                *cell = after;
            }
        }
        records.push(MachineRecord::Access(access.address));
        records
    }
}

fn probe(size: u64, flags: u8, site: u32) -> Probe {
    let is_repeated = size > 64;
    let descriptor = AccessDescriptor {
        size: if is_repeated { 1 } else { size as u16 },
        flags,
        base: 3,
        index: Operand::NONE as u8,
        rounds: if is_repeated { 13 } else { Operand::NONE as u8 },
        ..AccessDescriptor::default()
    };
    let cookie = Cookie::new(Kind::Access, site);
    Probe { program: ProbeProgram::Access, cookie, access: Some(descriptor), group: None }
}

/// Machine with a program whose first instructions are patched, and the program.
fn machine() -> (Machine, Vec<u8>) {
    let machine = Machine::new(1 << 8, Clock::Tsc);
    let mut code = CodeAssembler::new(64).unwrap();
    code.mov(r8, r9).unwrap();
    code.mov(r9, r8).unwrap();
    code.jmp(machine.exit()).unwrap();
    let code = code.assemble(machine.program()).unwrap();
    machine.defer(1);
    (machine, code)
}

/// Executes an access of a thread, and returns its records.
fn execute(
    machine: &mut Machine,
    code: &[u8],
    index: usize,
    thread: &BlockThread,
    access: &table::Access,
) -> Vec<MachineRecord> {
    let block = machine.block();
    block.epoch = thread.epochs.now;
    block.incarnation = thread.epochs.incarnation;
    block.tag = ThreadBlock::tag_of(access.tid);
    block.tid = access.tid.into();
    machine.defer(index as u64 + 1);
    machine.block().epoch_sp = thread.epoch_sp;
    machine.reset();
    machine.load(code);
    let probes = vec![probe(access.bytes, access.flags, access.site.0)];
    let before = machine.program();
    machine.patch(0, 6, &[Point { before, live: Live::ALL, red_zone: true, probes }]);
    let mut state = registers(machine, access.sp);
    state.general[3] = access.address;
    state.general[4] = access.sp;
    state.general[13] = access.bytes;
    let mut after = machine.run(&state);
    (after.flags, after.general[8]) = (state.flags, state.general[8]);
    assert_eq!(after, state, "registers");
    let records = machine.take().into_iter().map(|slot| {
        assert_eq!(slot.sp >> SP_BITS, machine.block().epoch & 0xffff);
        if slot.site() == OWNED {
            let (kind, deferred) = decode_owned(&slot).expect("a deferred access");
            return MachineRecord::Owned(kind, deferred);
        }
        assert_eq!((slot.site(), slot.stack_pointer()), (access.site, access.sp));
        MachineRecord::Access(slot.argument)
    });
    records.collect()
}

fn check(steps: &[OwnershipStep]) {
    let (mut machine, code) = machine();
    let high = machine.stack_bounds().1 - 2048;
    let memory: Vec<u64> = vec![0; BYTES as usize / 8];
    let mut reference = Reference::default();
    let mut threads = TIDS.map(|tid| {
        let now = u64::from(tid) << table::EPOCH_BITS | 500;
        BlockThread { epochs: ThreadEpochs { now, incarnation: now }, epoch_sp: 0 }
    });
    for (number, step) in steps.iter().enumerate() {
        let Accessed { thread: index, at, size, kind, depth } = match *step {
            OwnershipStep::Access(accessed) => accessed,
            OwnershipStep::Epoch(thread) => {
                threads[thread].epochs.now += 1;
                threads[thread].epoch_sp = high - 64;
                continue;
            }
            OwnershipStep::Reincarnate(thread) => {
                let epochs = &mut threads[thread].epochs;
                epochs.now += 10;
                epochs.incarnation = epochs.now;
                threads[thread].epoch_sp = 0;
                continue;
            }
        };
        let access = table::Access {
            tid: TIDS[index],
            address: memory.as_ptr() as u64 + at,
            bytes: size,
            flags: KINDS_OF_ACCESS[kind],
            site: SiteId(0x0010_0000 + number as u32),
            sp: high - 64 * depth,
        };
        let thread = &mut threads[index];
        let found = execute(&mut machine, &code, index, thread, &access);
        let expected = reference.access(index as u64 + 1, thread, &access);
        assert_eq!(found, expected, "records of step {number}, {step:?}");
        assert_eq!(machine.block().epoch, thread.epochs.now, "epoch after {number}, {step:?}");
        assert_eq!(machine.block().epoch_sp, thread.epoch_sp, "after step {number}, {step:?}");
        assert_eq!(machine.block().lost, 0);
        for (&slot, content) in &reference.slots {
            // SAFETY: aligned numbers inside of the table.
            let found = unsafe { machine.word(slot.into()).read_volatile() };
            let expected = [content.thread_epoch, content.accesses];
            assert_eq!(found, expected, "slot after step {number}, {step:?}");
        }
        for (&slot, content) in &reference.cells {
            assert_eq!(*machine.cells(slot.into()), *content, "after step {number}, {step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn cells_change_by_their_rules(steps in proptest::collection::vec(step(), 1..60)) {
        check(&steps);
    }
}

#[test]
fn an_access_to_all_slots_shares_words_of_other_threads() {
    let (mut machine, code) = machine();
    let memory = [0_u64; 4];
    let address = memory.as_ptr() as u64;
    let highest = machine.stack_bounds().1 - 2048;
    let thread = |tid: u32, epoch: u64| {
        let incarnation = u64::from(tid) << table::EPOCH_BITS | 500;
        let epochs = ThreadEpochs { now: incarnation + epoch, incarnation };
        BlockThread { epochs, epoch_sp: u64::MAX }
    };
    let access = |tid, site, bytes| table::Access {
        tid,
        address,
        bytes,
        flags: WRITE,
        site: SiteId(site),
        sp: highest,
    };
    let mut run = |index: usize, epoch, site, bytes| {
        let (thread, access) = (thread(TIDS[index], epoch), access(TIDS[index], site, bytes));
        execute(&mut machine, &code, index, &thread, &access)
    };
    assert_eq!(run(0, 0, 1, 8), [MachineRecord::Access(address)]);
    assert_eq!(run(0, 1, 2, 8), []);
    let deferred = Deferred { word: address >> 3, thread: 1, epoch: 501, mask: 0xff, site: 2 };
    let flushed = MachineRecord::Owned(AccessKind::Write, deferred);
    assert_eq!(run(1, 0, 3, 8 << 20), [flushed, MachineRecord::Access(address)]);
    assert_eq!(run(0, 2, 4, 8), [MachineRecord::Access(address)]);
    assert_eq!(run(0, 9, 5, 8), [MachineRecord::Access(address)], "the word is shared");
}
