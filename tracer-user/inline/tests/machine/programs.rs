//! Records of the rarer programs, as `encoding` reads them.

use super::support::{Machine, Registers, registers};
use abi::{
    AccessDescriptor, AllocCookie, CallCookie, Cookie, Header, Kind, Operand, ProbeProgram, Record,
    SiteId,
};
use iced_x86::code_asm::*;
use inline::{
    encoding::{RecordSite, decode},
    layout::{Clock, Slot},
    trampoline::{Point, Probe},
};
use x86::patching::Live;

/// Offset of the second patch in the program of [`machine`].
const SECOND: usize = 6;

/// Machine of a program with room for two patches, with these probes.
fn machine(first: Vec<Probe>, second: Vec<Probe>) -> Machine {
    let mut machine = Machine::new(64, Clock::Tsc);
    let mut code = CodeAssembler::new(64).unwrap();
    code.mov(r8, r9).unwrap();
    code.mov(r9, r8).unwrap();
    code.mov(r10, r11).unwrap();
    code.mov(r11, r10).unwrap();
    code.jmp(machine.exit()).unwrap();
    let code = code.assemble(machine.program()).unwrap();
    machine.load(&code);
    let start = machine.program();
    for (offset, probes) in [(0, first), (SECOND, second)] {
        if !probes.is_empty() {
            let before = start + offset as u64;
            machine.patch(offset, 6, &[Point { before, live: Live::ALL, red_zone: true, probes }]);
        }
    }
    machine
}

fn probe(program: ProbeProgram, cookie: Cookie) -> Vec<Probe> {
    vec![Probe { program, cookie, access: None, group: None }]
}

fn record(slots: &[Slot], kind: Kind) -> Record {
    let site = RecordSite { kind, point: 0x1234 };
    decode(&slots[0], &slots[1..], &site, Header::default(), 0).unwrap()
}

#[test]
fn an_allocation_has_the_size_of_its_entry_and_the_address_of_its_return() {
    let run = |flags: u8, change: &dyn Fn(&mut Registers)| {
        let cookie = AllocCookie::new(Cookie::new(Kind::Alloc, 3), flags, 0);
        let mut machine = machine(
            probe(ProbeProgram::AllocEnter, cookie.0),
            probe(ProbeProgram::AllocEnd, Cookie::new(Kind::Alloc, 4)),
        );
        let mut start = registers(&machine, 5);
        (start.general[7], start.general[6], start.general[2]) = (48, 10, 7);
        start.general[0] = 0x5555_0000;
        change(&mut start);
        let stack = start.general[4];
        machine.run(&start);
        let slots = machine.take();
        slots
            .iter()
            .map(|slot| {
                assert_eq!((slot.site(), slot.stack_pointer()), (SiteId(3), stack + 8));
                match record(&[*slot], Kind::Alloc) {
                    Record::Block(kind, block) => (kind, block.address, block.size),
                    other => panic!("{other:?}"),
                }
            })
            .collect::<Vec<_>>()
    };
    let plain = |_: &mut Registers| {};
    let fails = |registers: &mut Registers| registers.general[0] = 0;
    let address = 0x5555_0000;
    assert_eq!(run(0, &plain), [(Kind::Alloc, address, 48)]);
    assert_eq!(run(0, &fails), []);
    assert_eq!(run(AllocCookie::SECOND, &plain), [(Kind::Alloc, address, 10)]);
    assert_eq!(run(AllocCookie::THIRD, &plain), [(Kind::Alloc, address, 7)]);
    assert_eq!(run(AllocCookie::PRODUCT, &plain), [(Kind::Alloc, address, 480)]);
    let both = AllocCookie::PRODUCT | AllocCookie::SECOND;
    assert_eq!(run(both, &plain), [(Kind::Alloc, address, 70)]);
    let realloc = AllocCookie::SECOND | AllocCookie::OLD;
    assert_eq!(run(realloc, &plain), [(Kind::Free, 48, 0), (Kind::Alloc, address, 10)]);
    assert_eq!(run(realloc, &fails), [(Kind::Free, 48, 0), (Kind::ReallocFailure, 48, 0)]);
    let none = |registers: &mut Registers| registers.general[7] = 0;
    assert_eq!(run(realloc, &none), [(Kind::Alloc, address, 10)], "no old block");
    let to_none = |registers: &mut Registers| {
        registers.general[0] = 0;
        registers.general[6] = 0;
    };
    assert_eq!(run(realloc, &to_none), [(Kind::Free, 48, 0)], "no failure");
    let remap = AllocCookie::THIRD | AllocCookie::OLD | AllocCookie::OLD_SIZE | AllocCookie::MAPS;
    assert_eq!(run(remap, &plain), [(Kind::Free, 48, 10), (Kind::Alloc, address, 7)]);
    let unmapped = |registers: &mut Registers| registers.general[0] = u64::MAX;
    assert_eq!(run(remap, &unmapped), [(Kind::Free, 48, 10), (Kind::ReallocFailure, 48, 10)]);
    let block = [0x7777_0000_u64];
    let into = AllocCookie::SECOND | AllocCookie::INTO;
    let succeeds = |registers: &mut Registers| {
        registers.general[7] = block.as_ptr() as u64;
        registers.general[0] = 1 << 32;
    };
    assert_eq!(run(into, &succeeds), [(Kind::Alloc, block[0], 10)]);
    assert_eq!(run(into, &plain), [], "an error number");
}

#[test]
fn a_free_has_its_block() {
    let cookie = AllocCookie::new(Cookie::new(Kind::Free, 8), AllocCookie::OLD_SIZE, 16);
    let mut machine = machine(probe(ProbeProgram::Free, cookie.0), Vec::new());
    let mut start = registers(&machine, 6);
    let (stack, argument, size) = (start.general[4], start.general[7], start.general[6] & 0xffff);
    start.general[6] = size;
    machine.run(&start);
    let slots = machine.take();
    let Record::Block(Kind::Free, block) = record(&slots, Kind::Free) else { panic!("{slots:?}") };
    assert_eq!((block.address, block.size, block.sp), (argument, size, stack + 24));
    start.general[7] = 0;
    machine.run(&start);
    assert!(machine.take().is_empty());
}

/// Probes are off between windows of capture: a call that has returned meanwhile is not the one that returns now.
#[test]
fn a_call_of_an_earlier_window_has_no_record_at_a_return() {
    let call = CallCookie::new(Cookie::new(Kind::Acquire, 3), 0, 2, 0).0;
    let alloc = AllocCookie::new(Cookie::new(Kind::Alloc, 3), 0, 0).0;
    let calls = [
        (ProbeProgram::CallEnter, ProbeProgram::CallEnd, call, 0),
        (ProbeProgram::AllocEnter, ProbeProgram::AllocEnd, alloc, 0x5555_0000),
    ];
    for (enter, end, cookie, result) in calls {
        let records = |windows: u32| {
            let mut machine = machine(probe(enter, cookie), Vec::new());
            let mut start = registers(&machine, 7);
            machine.run(&start);
            assert!(machine.take().is_empty());
            // SAFETY: the page of control is in the machine's memory, and no code runs that reads it.
            unsafe { (*machine.control()).window += windows };
            load_again(&mut machine, probe(end, cookie));
            start.general[0] = result;
            machine.run(&start);
            machine.take().len()
        };
        assert_eq!(records(0), 1, "{enter:?}");
        assert_eq!(records(1), 0, "{enter:?}");
    }
}

/// Replaces the program by one with these probes.
fn load_again(machine: &mut Machine, probes: Vec<Probe>) {
    machine.reset();
    let before = machine.program();
    let mut code = CodeAssembler::new(64).unwrap();
    code.mov(r8, r9).unwrap();
    code.mov(r9, r8).unwrap();
    code.jmp(machine.exit()).unwrap();
    let code = code.assemble(before).unwrap();
    machine.load(&code);
    machine.patch(0, 6, &[Point { before, live: Live::ALL, red_zone: true, probes }]);
}

#[test]
fn returns_count_by_their_cookies() {
    let enter = |flags| CallCookie::new(Cookie::new(Kind::Wait, 3), flags, 2, 0).0;
    let end = |flags, depth| CallCookie::new(Cookie::new(Kind::Wait, 4), flags, 3, depth).0;
    let count = |enter: Cookie, end: Cookie, result: u64| {
        let mut machine =
            machine(probe(ProbeProgram::CallEnter, enter), probe(ProbeProgram::CallEnd, end));
        let mut start = registers(&machine, 7);
        start.general[0] = result;
        machine.run(&start);
        let slots = machine.take();
        slots
            .iter()
            .map(|slot| {
                let argument = (0..16).find(|&n| start.general[n] == slot.argument).unwrap();
                (slot.site().0, argument)
            })
            .collect::<Vec<_>>()
    };
    const RSI: usize = 6;
    const RDX: usize = 2;
    assert_eq!(count(enter(0), end(0, 0), 0), [(3, RSI)]);
    assert_eq!(count(enter(0), end(0, 0), 1), []);
    assert_eq!(count(enter(0), end(0, 8), 0), [], "another call");
    assert_eq!(count(enter(CallCookie::ANY_RESULT), end(0, 0), 1), [(3, RSI)]);
    assert_eq!(count(enter(CallCookie::IF_TRUE), end(0, 0), 0x101), [(3, RSI)]);
    assert_eq!(count(enter(CallCookie::IF_TRUE), end(0, 0), 0x100), []);
    assert_eq!(count(enter(0), end(CallCookie::LEAF, 0), 0), [(4, RDX)]);
    assert_eq!(count(enter(0), end(CallCookie::LEAF, 0), 130), [], "no mutex");
    let leaf = CallCookie::LEAF | CallCookie::IF_TRUE;
    assert_eq!(count(enter(0), end(leaf, 0), 0x101), [(4, RDX)]);
    assert_eq!(count(enter(0), end(CallCookie::INSIDE, 0), 5), [(4, RSI)]);
    assert_eq!(count(enter(0), end(CallCookie::INSIDE, 8), 5), []);
}

#[test]
fn a_call_inside_another_one_does_not_take_its_place() {
    let enter = CallCookie::new(Cookie::new(Kind::Acquire, 3), 0, 1, 0).0;
    let end = Cookie::new(Kind::Acquire, 4);
    let mut machine = machine(probe(ProbeProgram::CallEnter, enter), Vec::new());
    let mut start = registers(&machine, 8);
    start.general[0] = 0;
    let (_, high) = machine.stack_bounds();
    // More calls than there are entries in a group are open at once, each deeper than the one before.
    let depths: Vec<u64> = (0..40).map(|number| high - 4096 - 64 * number).collect();
    for &stack in &depths {
        start.general[4] = stack;
        start.general[7] = stack | 1;
        machine.run(&start);
    }
    let lost = machine.block().lost;
    load_again(&mut machine, probe(ProbeProgram::CallEnd, end));
    let mut found = 0;
    for &stack in depths.iter().rev() {
        start.general[4] = stack;
        machine.run(&start);
        for slot in machine.take() {
            assert_eq!(slot.argument, stack | 1, "its own argument");
            found += 1;
        }
    }
    assert_eq!(found + lost, depths.len() as u64, "each is found, or lost and counted");
    assert!(found >= 32, "{found}");
    // A deeper call that has not returned gives way without a loss.
    assert!(lost <= 8, "{lost}");
}

#[test]
fn a_pair_and_a_jump_have_their_words() {
    let pair = |flags| CallCookie::new(Cookie::new(Kind::Init, 3), flags, 1, 0).0;
    for (flags, other) in [(0, 6), (CallCookie::OTHER_IS_THIRD, 2)] {
        let mut machine = machine(probe(ProbeProgram::CallPair, pair(flags)), Vec::new());
        let start = registers(&machine, 9);
        machine.run(&start);
        let slot = machine.take()[0];
        assert_eq!((slot.argument, slot.extra), (start.general[7], start.general[other]));
    }
    let mut machine = machine(probe(ProbeProgram::Jump, Cookie::new(Kind::Jump, 3)), Vec::new());
    let mut start = registers(&machine, 9);
    let target = start.general[4] + 0x40;
    let buffer = [0, 0, 0, 0, 0, 0, target];
    start.general[7] = buffer.as_ptr() as u64;
    machine.run(&start);
    let slots = machine.take();
    let Record::Jump(jump) = record(&slots, Kind::Jump) else { panic!("{slots:?}") };
    assert_eq!(jump.target_sp, target);
}

#[test]
fn a_shared_variable_has_all_registers() {
    let mut machine =
        machine(probe(ProbeProgram::Shared, Cookie::new(Kind::Shared, 3)), Vec::new());
    let start = registers(&machine, 10);
    machine.run(&start);
    let slots = machine.take();
    let Record::Shared(shared) = record(&slots, Kind::Shared) else { panic!("{slots:?}") };
    let g = start.general;
    let expected = [
        g[0], g[3], g[1], g[2], g[6], g[7], g[5], g[4], g[8], g[9], g[10], g[11], g[12], g[13],
        g[14], g[15], 0x1234,
    ];
    assert_eq!(shared.registers, expected);
}

/// Access of eight bytes at `rbx`.
fn access(flags: u8, slot: Option<i32>, rounds: Option<u8>, most: u8) -> Vec<Probe> {
    let none = Operand::NONE as u8;
    let descriptor = AccessDescriptor {
        size: 8,
        flags: flags | slot.map_or(0, |_| AccessDescriptor::INDIRECT),
        base: 3,
        slot: slot.unwrap_or_default(),
        index: none,
        rounds: rounds.unwrap_or(none),
        most,
        displacement: 8,
        ..AccessDescriptor::default()
    };
    let access = Some(descriptor);
    vec![Probe {
        program: ProbeProgram::Access,
        cookie: Cookie::new(Kind::Access, 3),
        access,
        group: None,
    }]
}

#[test]
fn accesses_are_as_their_descriptors_say() {
    let data = [0x11_u64, 0x22, 0x33, 0x44];
    let pointer = [0, data.as_ptr() as u64];
    let run = |probes: Vec<Probe>, flags: u64| {
        let mut machine = machine(probes, Vec::new());
        let mut start = registers(&machine, 11);
        start.general[3] = pointer.as_ptr() as u64;
        start.general[13] = 0xffff << 32 | 3;
        start.flags = flags;
        machine.run(&start);
        let slots = machine.take();
        let Record::Access(access) = record(&slots, Kind::Access) else { panic!("{slots:?}") };
        assert_eq!(access.frames[0], 0x1234);
        (access.address, access.size, access.flags as u8, access.value)
    };
    const READ: u8 = AccessDescriptor::READ;
    let exchanges = READ | AccessDescriptor::WRITE | AccessDescriptor::ATOMIC;
    let compares = exchanges | AccessDescriptor::WRITES_IF_ZERO;
    let (base, target) = (pointer.as_ptr() as u64, data.as_ptr() as u64);
    assert_eq!(run(access(READ, None, None, 0), 0), (base + 8, 8, READ, target));
    assert_eq!(run(access(READ, Some(8), None, 0), 0), (target + 8, 8, READ, 0x22));
    assert_eq!(run(access(READ, None, Some(13), 0), 0), (base + 8, 24, READ, 0));
    assert_eq!(run(access(READ, None, Some(13), 20), 0), (base + 8, 20, READ, 0));
    assert_eq!(run(access(compares, None, None, 0), 0x40).2, exchanges);
    assert_eq!(run(access(compares, None, None, 0), 0).2, READ);
}

#[test]
fn a_load_that_faults_is_left_out() {
    let mut machine = Machine::new(16, Clock::Tsc);
    machine.load(&[0x4d, 0x89, 0xc8, 0x4d, 0x89, 0xc1]);
    let before = machine.program();
    let probes = access(AccessDescriptor::READ, Some(8), None, 0);
    let point = Point { before, live: Live::ALL, red_zone: true, probes };
    let trampoline = machine.patch(0, 6, &[point]);
    let bytes = &trampoline.code;
    let mut decoder =
        iced_x86::Decoder::with_ip(64, bytes, trampoline.address, iced_x86::DecoderOptions::NONE);
    let instructions: Vec<iced_x86::Instruction> = decoder.iter().collect();
    let load = instructions
        .iter()
        .find(|one| {
            one.memory_base() == iced_x86::Register::RCX && one.memory_displacement64() == 8
        })
        .unwrap();
    let resume = trampoline.fault(load.ip()).unwrap();
    // The thread restores its state at the address at which it goes on.
    let next = instructions.iter().find(|one| one.ip() == resume).unwrap();
    assert_eq!(next.mnemonic(), iced_x86::Mnemonic::Pop);
    assert_eq!(trampoline.fault(load.ip() + 1), None);
}
