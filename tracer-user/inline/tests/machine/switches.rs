//! Switches of probes: what is off records nothing and changes nothing, and what is on is as without a switch.

use super::support::{Machine, registers};
use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    layout::{Clock, Slot},
    trampoline::{Point, Probe, SwitchGroup, Trampoline},
};
use x86::patching::Live;

const SEVEN: SwitchGroup = SwitchGroup::Accesses(7);
const EIGHT: SwitchGroup = SwitchGroup::Accesses(8);

/// Probe of a write of eight bytes at an offset from `rbx`, in a group if it can be switched off.
fn access(site: u32, offset: i64, group: Option<SwitchGroup>) -> Probe {
    let none = Operand::NONE as u8;
    let descriptor = AccessDescriptor {
        size: 8,
        flags: AccessDescriptor::WRITE,
        base: 3,
        index: none,
        rounds: none,
        displacement: offset,
        ..AccessDescriptor::default()
    };
    let cookie = Cookie::new(Kind::Access, site);
    Probe { program: ProbeProgram::Access, cookie, access: Some(descriptor), group }
}

fn region(site: u32) -> Probe {
    let cookie = Cookie::new(Kind::Begin, site);
    Probe { program: ProbeProgram::Region, cookie, access: None, group: None }
}

/// Machine of a program with these probes at its first instruction.
fn machine(probes: Vec<Probe>, red_zone: bool) -> (Machine, Trampoline) {
    let mut machine = Machine::new(64, Clock::Tsc);
    let mut code = CodeAssembler::new(64).unwrap();
    code.mov(r8, r9).unwrap();
    code.mov(r9, r8).unwrap();
    code.jmp(machine.exit()).unwrap();
    let code = code.assemble(machine.program()).unwrap();
    machine.load(&code);
    let before = machine.program();
    let trampoline = machine.patch(0, 6, &[Point { before, live: Live::ALL, red_zone, probes }]);
    (machine, trampoline)
}

/// Runs the program, and returns the sites of its records.
fn run(machine: &mut Machine, data: &[u64]) -> Vec<u32> {
    let mut start = registers(machine, 5);
    start.general[3] = data.as_ptr() as u64;
    let end = machine.run(&start);
    let mut expected = start;
    expected.general[8] = start.general[9];
    expected.flags = start.flags & super::support::FLAGS;
    assert_eq!(end, expected, "all registers and flags are as without probes");
    let site = |slot: &Slot| slot.site().0;
    machine.take().iter().map(site).collect()
}

#[test]
fn what_is_off_records_nothing_and_what_is_on_records_all() {
    let data = [0_u64; 8];
    for red_zone in [false, true] {
        let probes = vec![access(1, 0, Some(SEVEN)), access(2, 16, Some(SEVEN))];
        let (mut machine, trampoline) = machine(probes, red_zone);
        assert_eq!(trampoline.switches().len(), 1, "one for all");
        assert_eq!(run(&mut machine, &data), [1, 2]);
        machine.switch(&trampoline, SEVEN, true);
        let block = *machine.block();
        machine.block().epoch += 1;
        assert_eq!(run(&mut machine, &data), [0_u32; 0]);
        assert_eq!(machine.block().reserved, block.reserved);
        machine.switch(&trampoline, SEVEN, false);
        machine.block().epoch += 1;
        assert_eq!(run(&mut machine, &data), [1, 2]);
    }
}

#[test]
fn probes_of_other_groups_and_kinds_at_the_same_place_go_on() {
    let data = [0_u64; 8];
    let probes =
        vec![access(1, 0, Some(SEVEN)), region(2), access(3, 16, Some(EIGHT)), access(4, 32, None)];
    let (mut machine, trampoline) = machine(probes, true);
    let mut check = |changes: &[(SwitchGroup, bool)], expected: &[u32]| {
        for &(group, is_off) in changes {
            machine.switch(&trampoline, group, is_off);
        }
        assert_eq!(run(&mut machine, &data), expected, "{changes:?}");
    };
    check(&[], &[1, 2, 3, 4]);
    check(&[(SEVEN, true)], &[2, 3, 4]);
    check(&[(SEVEN, false), (EIGHT, true)], &[1, 2, 4]);
    check(&[(SEVEN, true)], &[2, 4]);
}

/// An access of a thread that is not recorded is as one that is not made: neither is a later one taken for a repetition
/// of it, nor does the thread come to own what it accesses.
#[test]
fn a_silent_access_leaves_no_trace_in_tables() {
    let data = [0_u64; 8];
    let probes = vec![access(1, 0, Some(SEVEN)), region(2)];
    let (mut machine, trampoline) = machine(probes, true);
    machine.defer(1);
    machine.switch(&trampoline, SEVEN, true);
    let owned = |machine: &Machine| {
        let slot = inline::layout::word_slot(data.as_ptr() as u64 >> 3);
        machine.cells(slot.into()).map(|cell| cell.owner)
    };
    assert_eq!(run(&mut machine, &data), [2]);
    assert_eq!(owned(&machine), [0, 0], "nobody owns the word");
    machine.switch(&trampoline, SEVEN, false);
    assert_eq!(run(&mut machine, &data), [1, 2], "it is no repetition");
    assert_ne!(owned(&machine), [0, 0]);
    let before = owned(&machine);
    assert_eq!(run(&mut machine, &data), [2], "it is deferred");
    machine.switch(&trampoline, SEVEN, true);
    assert_eq!(run(&mut machine, &data), [2]);
    assert_eq!(owned(&machine), before, "the owner stays the owner");
}

/// Between windows of capture a point is passed by one jump, whatever probes it has.
#[test]
fn all_probes_of_a_point_are_off_between_windows() {
    let data = [0_u64; 8];
    let begin = Probe { group: Some(SwitchGroup::Capture), ..region(2) };
    let probes = vec![access(1, 0, Some(SEVEN)), begin, access(3, 16, Some(SwitchGroup::Capture))];
    let (mut machine, trampoline) = machine(probes, true);
    assert_eq!(run(&mut machine, &data), [1, 2, 3]);
    machine.switch(&trampoline, SEVEN, true);
    machine.block().epoch += 1;
    assert_eq!(run(&mut machine, &data), [2, 3]);
    machine.switch(&trampoline, SEVEN, false);
    machine.switch(&trampoline, SwitchGroup::Capture, true);
    machine.block().epoch += 1;
    assert_eq!(run(&mut machine, &data), [0_u32; 0], "also the access of a group that is on");
}
