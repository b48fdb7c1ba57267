//! Two threads that access a word at once: none of them drops an access behind another one's record.

use std::{
    sync::{Barrier, mpsc},
    thread,
};

use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    layout::{Clock, ThreadBlock},
    trampoline::{Point, Probe},
};
use x86::patching::Live;

use super::support::{Machine, registers};

const ROUNDS: usize = 400_000;

/// Times by which a time stamp may be off from the access that it belongs to.
const SLACK: u64 = 3_000;

/// Machine of a loop that stores the time stamp before each access to the word at `rbx`.
fn machine(words: Option<u64>, tid: u32) -> Machine {
    let mut machine = Machine::new(1 << 19, Clock::Tsc);
    let exit = machine.exit();
    let mut code = CodeAssembler::new(64).unwrap();
    let mut at = 0;
    let mut assemble = || -> Result<(), IcedError> {
        let mut again = code.create_label();
        code.set_label(&mut again)?;
        code.rdtsc()?;
        code.shl(rdx, 32)?;
        code.or(rax, rdx)?;
        code.mov(qword_ptr(rdi + r15 * 8), rax)?;
        at = code.assemble(machine.program())?.len();
        code.mov(r8, r9)?;
        code.mov(r10, r8)?;
        // Some work of its own, so that the threads alternate.
        code.mov(ecx, r15d)?;
        code.and(ecx, 63)?;
        let mut wait = code.create_label();
        code.set_label(&mut wait)?;
        code.dec(ecx)?;
        code.jns(wait)?;
        code.dec(r15)?;
        code.jne(again)?;
        code.jmp(exit)
    };
    assemble().unwrap();
    let program = code.assemble(machine.program()).unwrap();
    machine.load(&program);
    let none = Operand::NONE as u8;
    let descriptor = AccessDescriptor {
        size: 8,
        flags: AccessDescriptor::WRITE,
        base: 3,
        index: none,
        rounds: none,
        ..AccessDescriptor::default()
    };
    let access = Some(descriptor);
    let probe = Probe {
        program: ProbeProgram::Access,
        cookie: Cookie::new(Kind::Access, 1),
        access,
        group: None,
    };
    let before = machine.program() + at as u64;
    let point = Point { before, live: Live::ALL, red_zone: true, probes: vec![probe] };
    machine.patch(at, 6, &[point]);
    let block = machine.block();
    block.tid = tid.into();
    block.tag = ThreadBlock::tag_of(tid);
    block.epoch = u64::from(tid) << 42 | 1;
    block.incarnation = block.epoch;
    block.words = words.unwrap_or(block.words);
    machine
}

/// Moves the calling thread to a processor, if there is one with this number.
fn move_to(processor: usize) {
    // SAFETY: the set is a value of its own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Executes the loop; returns the times of the rounds and the orders of the records.
fn run(machine: &mut Machine, word: u64) -> (Vec<u64>, Vec<u64>) {
    machine.enter_thread();
    let mut times = vec![0_u64; ROUNDS + 1];
    let mut start = registers(machine, 1);
    start.general[3] = word;
    start.general[7] = times.as_mut_ptr() as u64;
    start.general[15] = ROUNDS as u64;
    machine.run(&start);
    times.remove(0);
    times.reverse();
    let orders = machine.take().iter().map(|slot| slot.order).collect();
    (times, orders)
}

/// Numbers of dropped accesses, and of those that another thread's record lies before.
fn dropped(times: &[u64], own: &[u64], others: &[u64]) -> (usize, usize) {
    let (mut all, mut wrong) = (0, 0);
    for (number, &time) in times.iter().enumerate() {
        let next = times.get(number + 1).copied().unwrap_or(u64::MAX);
        let record = own.partition_point(|&order| order < time);
        if own.get(record).is_some_and(|&order| order < next) {
            continue;
        }
        all += 1;
        let last = record.checked_sub(1).map_or(0, |record| own[record]);
        let from = others.partition_point(|&order| order <= last + SLACK);
        wrong += usize::from(others.get(from).is_some_and(|&order| order + SLACK < time));
    }
    (all, wrong)
}

#[test]
fn no_access_is_dropped_behind_another_threads_record() {
    let word = [0_u64; 8];
    let word = word.as_ptr() as u64;
    let barrier = &Barrier::new(2);
    let (sender, receiver) = mpsc::channel();
    let results: Vec<(Vec<u64>, Vec<u64>)> = thread::scope(|scope| {
        let other = scope.spawn(move || {
            // It has the table of the first one.
            let mut machine = machine(receiver.recv().ok(), 93);
            move_to(1);
            barrier.wait();
            let result = run(&mut machine, word);
            barrier.wait();
            result
        });
        let mut machine = machine(None, 77);
        sender.send(machine.block().words).unwrap();
        move_to(0);
        barrier.wait();
        let result = run(&mut machine, word);
        barrier.wait();
        vec![result, other.join().unwrap()]
    });
    let [(times, own), (other_times, others)] = &results[..] else { panic!("two threads") };
    let first = dropped(times, own, others);
    let second = dropped(other_times, others, own);
    println!("{first:?} {second:?} of {ROUNDS}, records {} {}", own.len(), others.len());
    assert_eq!((first.1, second.1), (0, 0));
}
