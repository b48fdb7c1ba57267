//! Two threads that come to the words of one another: each deferred access is recorded before another thread's.

use std::{
    mem::offset_of,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    cell::AccessKind,
    encoding::{OWNED, VOID, decode_owned},
    layout::{Clock, FROM_GS_BASE, ThreadBlock},
    trampoline::{Point, Probe},
};
use x86::patching::Live;

use super::support::{Machine, registers};

/// Words, each of which both threads access so many times.
const WORDS: usize = 4096;
const ACCESSES: usize = 24;

/// Looks at the other thread's progress before the next word.
const SPINS: i32 = 2000;

const TIDS: [u32; 2] = [77, 93];

/// Machine of a loop that stores the time stamp and the epoch, and accesses the word at `rbx` in its next epoch. With
/// the number of a thread, and the first one's block for the others.
fn machine(index: usize, flags: u8, first: Option<ThreadBlock>) -> Machine {
    let mut machine = Machine::new(1 << 18, Clock::Tsc);
    let exit = machine.exit();
    let epoch = || qword_ptr(FROM_GS_BASE + offset_of!(ThreadBlock, epoch) as u64).gs();
    let mut code = CodeAssembler::new(64).unwrap();
    let mut at = 0;
    let mut assemble = || -> Result<(), IcedError> {
        let [mut word, mut again, mut spin, mut go] = [(); 4].map(|()| code.create_label());
        code.set_label(&mut word)?;
        code.mov(r14d, ACCESSES as i32)?;
        code.set_label(&mut again)?;
        code.mov(rax, epoch())?;
        code.mov(qword_ptr(r12 + r15 * 8), rax)?;
        code.rdtsc()?;
        code.shl(rdx, 32)?;
        code.or(rax, rdx)?;
        code.mov(qword_ptr(rdi + r15 * 8), rax)?;
        at = code.assemble(machine.program())?.len();
        code.mov(r8, r9)?;
        code.mov(r10, r8)?;
        code.inc(epoch())?;
        code.dec(r15)?;
        code.dec(r14)?;
        code.jne(again)?;
        code.add(rbx, 8)?;
        code.add(rbp, 2)?;
        code.lock().inc(qword_ptr(rsi))?;
        code.mov(ecx, SPINS)?;
        code.set_label(&mut spin)?;
        code.cmp(qword_ptr(rsi), rbp)?;
        code.jae(go)?;
        code.pause()?;
        code.dec(ecx)?;
        code.jne(spin)?;
        code.set_label(&mut go)?;
        code.test(r15, r15)?;
        code.jne(word)?;
        code.jmp(exit)
    };
    assemble().unwrap();
    let program = code.assemble(machine.program()).unwrap();
    machine.load(&program);
    let none = Operand::NONE as u8;
    let descriptor = AccessDescriptor {
        size: 8,
        flags,
        base: 3,
        index: none,
        rounds: none,
        ..AccessDescriptor::default()
    };
    let cookie = Cookie::new(Kind::Access, 1);
    let probe =
        Probe { program: ProbeProgram::Access, cookie, access: Some(descriptor), group: None };
    let before = machine.program() + at as u64;
    let point = Point { before, live: Live::ALL, red_zone: true, probes: vec![probe] };
    machine.patch(at, 6, &[point]);
    let block = machine.block();
    block.tid = TIDS[index].into();
    block.tag = ThreadBlock::tag_of(TIDS[index]);
    block.epoch = u64::from(TIDS[index]) << 42 | 1;
    block.incarnation = block.epoch;
    machine.defer(index as u64 + 1);
    if let Some(first) = first {
        (machine.block().words, machine.block().cells) = (first.words, first.cells);
    }
    machine
}

/// Accesses of a thread: for each the time before it and its epoch; and the records in its ring.
#[derive(Debug, Default)]
struct Done {
    times: Vec<u64>,
    epochs: Vec<u64>,
    records: Vec<(u64, OwnerRecord)>,
    voids: usize,
}

/// Record of an access, or of the deferred ones of a thread up to an epoch.
#[derive(Clone, Copy, Debug)]
enum OwnerRecord {
    Access(u64),
    Owned { word: u64, thread: usize, epoch: u64, kind: AccessKind },
}

fn run(machine: &mut Machine, words: &[AtomicU64], progress: &AtomicU64) -> Done {
    machine.enter_thread();
    let count = WORDS * ACCESSES;
    let (mut times, mut epochs) = (vec![0_u64; count + 1], vec![0_u64; count + 1]);
    let mut start = registers(machine, 1);
    start.general[3] = words.as_ptr() as u64;
    start.general[5] = 0;
    start.general[6] = progress.as_ptr() as u64;
    start.general[7] = times.as_mut_ptr() as u64;
    start.general[12] = epochs.as_mut_ptr() as u64;
    start.general[15] = count as u64;
    machine.run(&start);
    let mut done = Done::default();
    for list in [&mut times, &mut epochs] {
        list.remove(0);
        list.reverse();
    }
    epochs.iter_mut().for_each(|epoch| *epoch &= (1 << 42) - 1);
    (done.times, done.epochs) = (times, epochs);
    for slot in machine.take() {
        let record = match slot.site() {
            VOID => {
                done.voids += 1;
                continue;
            }
            OWNED => {
                let (kind, deferred) = decode_owned(&slot).expect("a deferred access");
                let (word, thread) = (deferred.word, deferred.thread as usize - 1);
                OwnerRecord::Owned { word, thread, epoch: deferred.epoch, kind }
            }
            _ => OwnerRecord::Access(slot.argument >> 3),
        };
        done.records.push((slot.order, record));
    }
    assert_eq!(machine.block().lost, 0);
    done
}

/// Numbers of deferred accesses, and of those whose record is not where it must be.
fn misplaced(all: &[Done; 2], words: &[AtomicU64], kinds: [AccessKind; 2]) -> (usize, usize) {
    let (mut deferred, mut wrong) = (0, 0);
    for (place, word) in words.iter().enumerate() {
        let address = word.as_ptr() as u64 >> 3;
        // Each with its thread: of a deferred access the owner.
        let mut records: Vec<(u64, usize, OwnerRecord)> = Vec::new();
        for (thread, done) in all.iter().enumerate() {
            for &(order, record) in &done.records {
                match record {
                    OwnerRecord::Access(word) if word == address => {
                        records.push((order, thread, record));
                    }
                    OwnerRecord::Owned { word, thread: owner, kind, .. } if word == address => {
                        assert!(kind == kinds[owner] && owner != thread);
                        records.push((order, owner, record));
                    }
                    _ => {}
                }
            }
        }
        records.sort_by_key(|&(order, ..)| order);
        for (thread, done) in all.iter().enumerate() {
            let mut before = None;
            for number in place * ACCESSES..(place + 1) * ACCESSES {
                let next = done.times.get(number + 1).copied().unwrap_or(u64::MAX);
                let during = done.times[number]..next;
                let own = records.iter().position(|(order, of, record)| {
                    *of == thread
                        && during.contains(order)
                        && matches!(record, OwnerRecord::Access(_))
                });
                if own.is_some() {
                    before = own;
                    continue;
                }
                deferred += 1;
                let flush = records.iter().position(|(_, of, record)| {
                    matches!(record, OwnerRecord::Owned { epoch, .. }
                        if *of == thread && *epoch >= done.epochs[number])
                });
                let between = before.map(|before| {
                    let to = flush.unwrap_or(records.len()).max(before);
                    let others = |(_, of, record): &&(u64, usize, OwnerRecord)| {
                        *of != thread && matches!(record, OwnerRecord::Access(_))
                    };
                    records[before..to].iter().filter(others).count()
                });
                wrong += usize::from(between != Some(0));
            }
        }
    }
    (deferred, wrong)
}

fn check(flags: [u8; 2], kinds: [AccessKind; 2]) {
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let (progress, barrier) = (AtomicU64::new(0), Barrier::new(2));
    let (sender, receiver) = mpsc::channel();
    let all = thread::scope(|scope| {
        let (words, progress, barrier) = (&words, &progress, &barrier);
        let other = scope.spawn(move || {
            let mut machine = machine(1, flags[1], receiver.recv().ok());
            barrier.wait();
            let done = run(&mut machine, words, progress);
            barrier.wait();
            done
        });
        let mut machine = machine(0, flags[0], None);
        sender.send(*machine.block()).unwrap();
        barrier.wait();
        let done = run(&mut machine, words, progress);
        barrier.wait();
        [done, other.join().unwrap()]
    });
    assert_eq!(progress.load(Ordering::Relaxed), 2 * WORDS as u64);
    let (deferred, wrong) = misplaced(&all, &words, kinds);
    let [first, second] = all.each_ref().map(|done| (done.records.len(), done.voids));
    println!("{deferred} deferred, {wrong} misplaced; records {first:?} {second:?}");
    assert_eq!(wrong, 0);
    assert_ne!(deferred, 0);
}

#[test]
fn writes_are_recorded_before_other_threads_writes() {
    check([AccessDescriptor::WRITE; 2], [AccessKind::Write; 2]);
}

#[test]
fn writes_are_recorded_before_other_threads_reads() {
    check([AccessDescriptor::WRITE, AccessDescriptor::READ], [AccessKind::Write, AccessKind::Read]);
}
