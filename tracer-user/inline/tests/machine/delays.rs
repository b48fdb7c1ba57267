//! Delays: registers, flags and the red zone are as before, and their number and their share of the time are kept.

use super::support::{Machine, registers};
use abi::{Cookie, DelayPlace, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    layout::{Clock, Mode},
    trampoline::{Point, Probe},
};
use x86::patching::Live;

/// Distance of the place from the control structure, in its page.
const PLACE: u64 = 1024;

/// Whole share, and certain chance.
const ALL: u64 = 1 << 32;

/// Machine of a program with a delay before its first instruction, which writes to the red zone.
fn machine(nanoseconds: u64, most: u64, chance: u64) -> Machine {
    let mut machine = Machine::new(64, Clock::Tsc);
    let mut code = CodeAssembler::new(64).unwrap();
    code.mov(qword_ptr(rsp - 64), rcx).unwrap();
    code.add(rcx, r11).unwrap();
    code.jmp(machine.exit()).unwrap();
    let code = code.assemble(machine.program()).unwrap();
    machine.load(&code);
    let place = DelayPlace { nanoseconds, most, chance, seed: 7, ..DelayPlace::default() };
    // SAFETY: aligned memory of the mapping, behind the control structure.
    unsafe {
        *place_of(&machine) = place;
        (*machine.control()).delay_share = ALL;
    }
    let before = machine.program();
    let probe = Probe {
        program: ProbeProgram::Delay,
        cookie: Cookie(PLACE << 32 | 3),
        access: None,
        group: None,
    };
    let point = Point { before, live: Live::ALL, red_zone: true, probes: vec![probe] };
    machine.patch(0, 8, &[point]);
    machine
}

fn place_of(machine: &Machine) -> *mut DelayPlace {
    (machine.control() as u64 + PLACE) as *mut DelayPlace
}

/// Runs the program several times, and returns the place afterwards.
fn runs(machine: &mut Machine, count: u64) -> DelayPlace {
    let start = registers(machine, 5);
    for _ in 0..count {
        let mut expected = start;
        expected.general[1] = start.general[1].wrapping_add(start.general[11]);
        let end = machine.run(&start);
        assert_eq!(end.general, expected.general);
    }
    // SAFETY: as in `machine`.
    unsafe { *place_of(machine) }
}

#[test]
fn a_delay_takes_its_time_and_leaves_the_state_alone() {
    let mut machine = machine(1_000_000, 3, ALL);
    let place = runs(&mut machine, 5);
    assert_eq!((place.hits, place.passages), (3, 3));
    assert!(place.delayed >= 3_000_000, "{place:?}");
    assert_eq!(machine.block().delayed, place.delayed);
    // SAFETY: the mapping begins with the control page.
    assert_eq!(unsafe { (*machine.control()).delayed }, place.delayed);
    assert!(machine.take().is_empty(), "a delay makes no record");
}

#[test]
fn chances_are_those_of_the_seed() {
    let place = runs(&mut machine(1, 1000, ALL / 2), 200);
    let expected = (0..200).filter(|&passage| abi::passes(7, passage, ALL / 2)).count() as u64;
    assert_eq!((place.hits, place.passages), (expected, 200));
}

#[test]
fn no_thread_is_delayed_beyond_a_share() {
    // The share of no time.
    let mut of_thread = machine(1, 1000, ALL);
    // SAFETY: the mapping begins with the control page.
    unsafe { (*of_thread.control()).delay_share = 1 };
    of_thread.block().delayed = u64::MAX / 2;
    assert_eq!(runs(&mut of_thread, 3).hits, 0);
    let mut of_all = machine(1, 1000, ALL);
    // SAFETY: as above.
    unsafe {
        (*of_all.control()).delay_share = 1;
        (*of_all.control()).delayed = u64::MAX / 2;
    }
    assert_eq!(runs(&mut of_all, 3).hits, 0);
    // SAFETY: as above. What was counted first is given back.
    assert_eq!(unsafe { (*of_all.control()).delayed }, u64::MAX / 2);
}

#[test]
fn neither_a_muted_thread_is_delayed_nor_one_without_avtrace() {
    let mut muted = machine(1, 1000, ALL);
    muted.block().mode = Mode::Muted as u64;
    assert_eq!(runs(&mut muted, 2).hits, 0);
    let mut alone = machine(1, 1000, ALL);
    // SAFETY: the mapping begins with the control page.
    unsafe { (*alone.control()).reader = 0 };
    assert_eq!(runs(&mut alone, 2).hits, 0);
}

#[test]
fn the_thread_that_comes_first_is_known_from_the_others() {
    for (threads, of_first, of_other) in
        [(abi::ALL_THREADS, 2, 2), (abi::FIRST_THREAD, 2, 0), (abi::OTHER_THREADS, 0, 2)]
    {
        let mut machine = machine(1, 1000, ALL);
        // SAFETY: as in `machine`.
        unsafe { (*place_of(&machine)).threads = threads };
        machine.block().tid = 7;
        assert_eq!(runs(&mut machine, 2).hits, of_first, "{threads}");
        machine.block().tid = 8;
        assert_eq!(runs(&mut machine, 2).hits, of_first + of_other, "{threads}");
    }
}
