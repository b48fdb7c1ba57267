//! The emitted filter of repetitions, compared with the logic of the BPF programs.

use std::collections::HashMap;

use super::support::{FLAGS, Machine, registers};
use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram, SiteId};
use ebpf::table::{self, ThreadEpochs, WordAccesses};
use iced_x86::code_asm::*;
use inline::{
    encoding::access_word,
    layout::{Clock, STACK_PIECE_BITS, STACK_PIECE_COUNT_BITS, ThreadBlock, word_slot},
    trampoline::{Point, Probe},
};
use proptest::prelude::*;
use x86::patching::Live;

const READ: u8 = AccessDescriptor::READ;
const WRITE: u8 = AccessDescriptor::WRITE;
const ATOMIC: u8 = AccessDescriptor::ATOMIC;
const COMMUTES: u8 = AccessDescriptor::COMMUTES;

const KINDS: [u8; 7] = [
    READ,
    WRITE,
    READ | WRITE,
    READ | WRITE | ATOMIC,
    WRITE | ATOMIC,
    READ | WRITE | COMMUTES,
    READ | WRITE | ATOMIC | COMMUTES,
];

/// Memory that is accessed: all of it has slots of its own, but for the last word.
const BYTES: u64 = 512;

#[derive(Clone, Debug)]
enum RepetitionStep {
    /// An access of a thread: place, size, kind.
    Access { thread: usize, at: u64, size: u64, kind: usize },
    /// The end of a thread's epoch.
    Epoch(usize),
    /// A thread's id is used again by a new one.
    Reincarnate(usize),
}

fn step() -> impl Strategy<Value = RepetitionStep> {
    let size = prop_oneof![
        4 => prop_oneof![Just(1_u64), Just(2), Just(4), Just(8)],
        1 => 3_u64..=64,
        1 => 65_u64..200,
    ];
    prop_oneof![
        12 => (0..3_usize, 0..64_u64, size, 0..KINDS.len())
            .prop_map(|(thread, at, size, kind)| RepetitionStep::Access { thread, at, size, kind }),
        2 => (0..3_usize).prop_map(RepetitionStep::Epoch),
        1 => (0..3_usize).prop_map(RepetitionStep::Reincarnate),
    ]
}

/// The logic of the BPF programs, without maps.
#[derive(Default)]
struct Reference {
    slots: HashMap<u32, WordAccesses>,
}

impl Reference {
    fn slot(&mut self, word: u64) -> &mut WordAccesses {
        let none = WordAccesses { thread_epoch: 0, accesses: 0 };
        self.slots.entry(word_slot(word)).or_insert(none)
    }

    /// Returns whether the access has a record.
    fn access(&mut self, epochs: &mut ThreadEpochs, access: &table::Access) -> bool {
        if access.bytes > table::MAX_BYTES {
            epochs.now += 1;
            let (first, last) = access.words();
            for word in first..=last {
                if self.slot(word).thread_epoch >> table::EPOCH_BITS != u64::from(access.tid) {
                    *self.slot(word) = WordAccesses::SHARED;
                }
            }
            return true;
        }
        let (mut is_new, mut is_contended) = (0, 0);
        access.each_word(|word, mask| {
            let (new, contended) = self.slot(word).compare(*epochs, access, word, mask);
            is_new |= new;
            is_contended |= contended;
        });
        if is_new == 0 {
            return false;
        }
        if is_contended != 0 {
            epochs.now += 1;
        }
        access.each_word(|word, mask| {
            *self.slot(word) = self.slot(word).after(epochs.now, access, word, mask);
        });
        true
    }
}

fn probe(size: u64, flags: u8) -> Probe {
    let is_repeated = size > 64;
    let descriptor = AccessDescriptor {
        displacement: -16,
        size: if is_repeated { 1 } else { size as u16 },
        flags,
        base: 3,
        index: 12,
        scale: 1,
        rounds: if is_repeated { 13 } else { Operand::NONE as u8 },
        ..AccessDescriptor::default()
    };
    let access = Some(descriptor);
    let cookie = Cookie::new(Kind::Access, 0xf123_4567);
    Probe { program: ProbeProgram::Access, cookie, access, group: None }
}

/// Executes steps, and compares the table, the epochs and the records with those of the reference.
fn check(steps: &[RepetitionStep]) {
    const TIDS: [u32; 3] = [77, 93, 4_000_000];
    let mut machine = Machine::new(16, Clock::Tsc);
    let code = {
        let mut code = CodeAssembler::new(64).unwrap();
        code.mov(r8, r9).unwrap();
        code.mov(r9, r8).unwrap();
        code.jmp(machine.exit()).unwrap();
        code.assemble(machine.program()).unwrap()
    };
    let memory: Vec<u64> = (0..BYTES / 8).map(|n| n.wrapping_mul(0x0102_0304_0506_0709)).collect();
    let mut reference = Reference::default();
    let mut epochs: [ThreadEpochs; 3] = TIDS.map(|tid| {
        let now = u64::from(tid) << table::EPOCH_BITS | 500;
        ThreadEpochs { now, incarnation: now }
    });
    for (number, step) in steps.iter().enumerate() {
        let (thread, at, size, kind) = match *step {
            RepetitionStep::Access { thread, at, size, kind } => (thread, at, size, kind),
            RepetitionStep::Epoch(thread) => {
                epochs[thread].now += 1;
                continue;
            }
            RepetitionStep::Reincarnate(thread) => {
                epochs[thread].now += 10;
                epochs[thread].incarnation = epochs[thread].now;
                continue;
            }
        };
        let (tid, flags) = (TIDS[thread], KINDS[kind]);
        let address = memory.as_ptr() as u64 + at;
        let block = machine.block();
        block.epoch = epochs[thread].now;
        block.incarnation = epochs[thread].incarnation;
        block.tag = ThreadBlock::tag_of(tid);
        block.tid = tid.into();
        let probe = probe(size, flags);
        machine.reset();
        machine.load(&code);
        let live = Live::ALL;
        let start = machine.program();
        machine.patch(0, 6, &[Point { before: start, live, red_zone: true, probes: vec![probe] }]);
        let mut state = registers(&machine, number as u64);
        state.general[3] = address + 16 - 2 * 3;
        state.general[12] = 3;
        state.general[13] = 0xabcd << 32 | size;
        let after = machine.run(&state);
        let mut expected = state;
        expected.general[8] = state.general[9];
        expected.flags &= FLAGS;
        assert_eq!(after, expected, "registers");
        let access = table::Access { tid, address, bytes: size, flags, site: SiteId(1), sp: 0 };
        let is_new = reference.access(&mut epochs[thread], &access);
        let slots = machine.take();
        assert_eq!(slots.len(), usize::from(is_new), "record of step {number}, {step:?}");
        if let [slot] = *slots {
            assert_eq!((slot.argument, slot.stack_pointer()), (address, state.general[4]));
            assert_eq!(slot.site(), SiteId(0xf123_4567));
            let has_value = size <= 8 && (address & 4095) <= 4088 || (address & 7) + size <= 8;
            let all = u32::from(flags) | if has_value { 1 << 17 } else { 0 };
            assert_eq!(slot.frames[0], access_word(all, size));
            if has_value {
                let bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
                let mut value = [0; 8];
                let read = at as usize..(at + size) as usize;
                value[..size as usize].copy_from_slice(&bytes[read]);
                let unused = 64 - 8 * size;
                assert_eq!(slot.extra << unused >> unused, u64::from_le_bytes(value));
            }
        }
        assert_eq!(machine.block().epoch, epochs[thread].now, "epoch after {number}, {step:?}");
        for (&slot, content) in &reference.slots {
            // SAFETY: aligned numbers inside of the table.
            let [thread_epoch, accesses] = unsafe { machine.word(slot.into()).read_volatile() };
            assert_eq!(
                (thread_epoch, accesses),
                (content.thread_epoch, content.accesses),
                "slot after step {number}, {step:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 5))]

    #[test]
    fn the_filter_does_what_the_bpf_programs_do(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        check(&steps);
    }
}

#[test]
fn accesses_to_the_own_stack_have_records_where_another_thread_was_seen() {
    let mut machine = Machine::new(16, Clock::Tsc);
    let mut code = CodeAssembler::new(64).unwrap();
    code.mov(r8, r9).unwrap();
    code.mov(r9, r8).unwrap();
    code.jmp(machine.exit()).unwrap();
    let code = code.assemble(machine.program()).unwrap();
    machine.load(&code);
    let probe = probe(8, WRITE);
    let before = machine.program();
    machine.patch(0, 6, &[Point { before, live: Live::ALL, red_zone: true, probes: vec![probe] }]);
    let mut state = registers(&machine, 1);
    state.general[12] = 8;
    let pointer = state.general[4];
    let (low, high) = machine.stack_bounds();
    let mut flags = |machine: &mut Machine, address: u64| {
        state.general[3] = address;
        // Nothing is a repetition.
        machine.block().epoch += 1;
        assert_eq!(machine.run(&state).general[3], address);
        let slots = machine.take();
        slots.iter().map(|slot| slot.frames[0] as u32 >> 16 & 1).collect::<Vec<_>>()
    };
    let own = (pointer - 128..high).step_by(504);
    for address in own.clone() {
        assert_eq!(flags(&mut machine, address), []);
    }
    assert_eq!(flags(&mut machine, pointer - 136), [0], "below the red zone");
    (machine.block().stack_low, machine.block().stack_high) = (pointer + 8, high);
    assert_eq!(flags(&mut machine, pointer + 16), [0], "the stack is another one");
    (machine.block().stack_low, machine.block().stack_high) = (low, high);
    let elsewhere = [0_u64; 2];
    assert_eq!(flags(&mut machine, elsewhere.as_ptr() as u64), [0]);
    // Another thread, before and after it is known that there is a stack.
    let base = (pointer + 1024).next_multiple_of(64);
    let shared = base - 4;
    (machine.block().stack_low, machine.block().stack_high) = (0x1000, 0x2000);
    assert_eq!(flags(&mut machine, shared), [0]);
    for piece in [low >> STACK_PIECE_BITS, high >> STACK_PIECE_BITS] {
        let bit = piece & ((1 << STACK_PIECE_COUNT_BITS) - 1);
        let word = (machine.block().stacks + bit / 64 * 8) as *mut u64;
        // SAFETY: inside the memory about stacks.
        unsafe { *word |= 1 << (bit % 64) };
    }
    (machine.block().stack_low, machine.block().stack_high) = (low, high);
    assert_eq!(flags(&mut machine, shared), [], "nothing was marked");
    (machine.block().stack_low, machine.block().stack_high) = (0x1000, 0x2000);
    assert_eq!(flags(&mut machine, shared), [0]);
    (machine.block().stack_low, machine.block().stack_high) = (low, high);
    // The access was to two ranges of 64 bytes.
    for (address, expected) in [
        (shared, &[1][..]),
        (base, &[1]),
        (base + 60, &[1]),
        (base + 64, &[]),
        (base - 64, &[1]),
        (base - 72, &[]),
    ] {
        assert_eq!(flags(&mut machine, address), expected, "{:#x}", address.wrapping_sub(base));
    }
}
