//! Records of the programs, made by executing patched functions.

use super::support::{FLAGS, Machine, Registers, registers};
use abi::{
    CallCookie, Cookie, FlagCondition, Header, InlinedCookie, Kind, Operand, ProbeProgram, Record,
    SiteId,
};
use iced_x86::code_asm::*;
use inline::{
    encoding::{RecordSite, decode},
    layout::{Clock, Slot},
    trampoline::{Point, Probe},
};
use x86::{
    exits::Part,
    patching::{Convention, Function, Jump, Live, Padding},
};

/// Assembles a program for a machine.
fn assemble(
    machine: &Machine,
    emit: impl FnOnce(&mut CodeAssembler, u64) -> Result<(), IcedError>,
) -> Vec<u8> {
    let mut code = CodeAssembler::new(64).unwrap();
    emit(&mut code, machine.exit()).unwrap();
    code.assemble(machine.program()).unwrap()
}

fn probe(program: ProbeProgram, cookie: Cookie) -> Probe {
    Probe { program, cookie, access: None, group: None }
}

fn point(before: u64, probes: Vec<Probe>) -> Point {
    Point { before, live: Live::ALL, red_zone: true, probes }
}

#[test]
fn a_call_that_is_displaced_returns_behind_the_patch() {
    let mut machine = Machine::new(16, Clock::Tsc);
    let code = assemble(&machine, |code, exit| {
        let mut called = code.create_label();
        code.push(rbx)?;
        code.call(called)?;
        code.pop(rbx)?;
        code.jmp(exit)?;
        code.set_label(&mut called)?;
        code.mov(rax, qword_ptr(rsp))?;
        code.ret()
    });
    let begin = probe(ProbeProgram::Region, Cookie::new(Kind::Begin, 7));
    let start = registers(&machine, 5);
    let slots = compare(&mut machine, &code, 6, vec![begin], &start);
    assert_eq!(slots.len(), 1);
}

/// Executes a program without and with a patch of its first bytes, and compares. Returns the slots.
fn compare(
    machine: &mut Machine,
    code: &[u8],
    length: usize,
    probes: Vec<Probe>,
    start: &Registers,
) -> Vec<Slot> {
    machine.load(code);
    let before = machine.stack.clone();
    let plain = machine.run(start);
    let stack = machine.stack.clone();
    machine.stack.copy_from_slice(&before);
    let at = machine.program();
    machine.patch(0, length, &[point(at, probes)]);
    assert_eq!(machine.run(start), plain);
    let above = (start.general[4] - 128 - machine.stack_bounds().0) as usize / 8;
    assert_eq!(machine.stack[above..], stack[above..]);
    machine.take()
}

#[test]
fn a_region_has_the_stack_pointer_and_the_flags() {
    let mut machine = Machine::new(16, Clock::Tsc);
    let code = assemble(&machine, |code, exit| {
        code.add(rax, rbx)?;
        code.mov(rcx, rax)?;
        code.jmp(exit)
    });
    let start = registers(&machine, 0x1234_5678_9abc_def1);
    let cookie = Cookie::new(Kind::Begin, 7);
    let region = vec![probe(ProbeProgram::Region, cookie)];
    let slots = compare(&mut machine, &code, 6, region, &start);
    assert_eq!(slots.len(), 1);
    let (stack, flags) = (start.general[4], start.flags & FLAGS);
    assert_eq!(
        (slots[0].site(), slots[0].stack_pointer(), slots[0].extra & FLAGS),
        (SiteId(7), stack, flags)
    );
    assert!(slots[0].order > 0);
    assert_eq!(machine.block().epoch & 0xffff, 1001, "a record ends the epoch");
}

#[test]
fn a_call_has_its_argument_and_its_callers() {
    let mut machine = Machine::new(16, Clock::Counter);
    let code = assemble(&machine, |code, exit| {
        code.mov(rax, rdi)?;
        code.mov(rdi, rsi)?;
        code.jmp(exit)
    });
    let mut start = registers(&machine, 3);
    let (low, high) = machine.stack_bounds();
    let place = |address: u64| ((address - low) / 8) as usize;
    let stack = high - 2048;
    start.general[4] = stack;
    start.general[5] = stack + 0x100;
    machine.stack[place(stack)] = 0x1111;
    machine.stack[place(stack + 0x100)] = stack + 0x200;
    machine.stack[place(stack + 0x108)] = 0x2222;
    machine.stack[place(stack + 0x200)] = high;
    machine.stack[place(stack + 0x208)] = 0x3333;
    let cookie = CallCookie::new(Cookie::new(Kind::Release, 9), 0, 1, 0);
    let decoded = |slots: &[Slot]| {
        let site = RecordSite { kind: Kind::Release, point: 0 };
        match decode(&slots[0], &slots[1..], &site, Header::default(), 0) {
            Some(Record::Call(_, call)) => (slots.len(), call.argument, call.frames),
            other => panic!("{other:?}"),
        }
    };
    for number in 1..=4_u8 {
        let cookie = CallCookie::new(Cookie::new(Kind::Release, 9), 0, number, 0);
        machine.load(&code);
        let at = machine.program();
        machine.patch(0, 6, &[point(at, vec![probe(ProbeProgram::Call, cookie.0)])]);
        machine.run(&start);
        let slots = machine.take();
        assert_eq!(slots.len(), 1);
        let argument = start.general[[7, 6, 2, 1][usize::from(number) - 1]];
        assert_eq!((slots[0].site(), slots[0].argument), (SiteId(9), argument));
        assert_eq!(
            (slots[0].stack_pointer(), slots[0].frames),
            (stack + 8, [0x1111, 0x2222, 0x3333])
        );
        assert_eq!(slots[0].order, u64::from(number) - 1, "the counter");
    }
    machine.load(&code);
    let at = machine.program();
    machine.patch(0, 6, &[point(at, vec![probe(ProbeProgram::Call, cookie.0)])]);
    // Each frame more that is there.
    let all = [0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666, 0x7777];
    for count in 3..=all.len() {
        let last = stack + 0x100 * (count as u64 - 1);
        machine.stack[place(last - 0x100)] = last;
        machine.stack[place(last)] = 8;
        machine.stack[place(last + 8)] = all[count - 1];
        machine.run(&start);
        let slots = machine.take();
        let mut frames = [0; 6];
        frames[..count.min(6)].copy_from_slice(&all[..count.min(6)]);
        let expected = (if count > 3 { 2 } else { 1 }, start.general[7], frames);
        assert_eq!(decoded(&slots), expected, "{slots:x?}");
    }
    start.general[5] = 0x1000;
    machine.run(&start);
    assert_eq!(decoded(&machine.take()).2, [0x1111, 0, 0, 0, 0, 0], "no frame pointer");
}

#[test]
fn a_return_counts_for_the_call_that_was_entered_there() {
    let mut machine = Machine::new(16, Clock::Tsc);
    // The "function" begins at +0 and returns at +6.
    let code = assemble(&machine, |code, exit| {
        code.nop_1(dword_ptr(rax + 0x100))?;
        code.mov(rdi, rsi)?;
        code.mov(rsi, rdi)?;
        code.jmp(exit)
    });
    let ends = code.len() - 11;
    let cookie = CallCookie::new(Cookie::new(Kind::Acquire, 5), 0, 1, 0);
    let other = Cookie::new(Kind::Acquire, 6);
    machine.load(&code);
    let at = machine.program();
    machine.patch(0, ends, &[point(at, vec![probe(ProbeProgram::CallEnter, cookie.0)])]);
    let end = at + ends as u64;
    machine.patch(ends, 6, &[point(end, vec![probe(ProbeProgram::CallEnd, other)])]);
    let mut start = registers(&machine, 99);
    for (result, counts) in [(0, true), (130, true), (16, false), (1 << 32, true)] {
        start.general[0] = result;
        machine.run(&start);
        let slots = machine.take();
        assert_eq!(slots.len(), usize::from(counts), "{result}");
        if counts {
            let slot = slots[0];
            assert_eq!((slot.site(), slot.argument), (SiteId(5), start.general[7]));
            assert_eq!(
                (slot.stack_pointer(), slot.extra as u32),
                (start.general[4] + 8, result as u32)
            );
        }
    }
}

#[test]
fn an_inline_lock_counts_where_its_condition_holds() {
    let mut machine = Machine::new(16, Clock::Tsc);
    let code = assemble(&machine, |code, exit| {
        code.mov(r8, r9)?;
        code.mov(r9, r10)?;
        code.jmp(exit)
    });
    let operand = Operand::new(3, 10, 3).with_condition(FlagCondition::EQUAL);
    let cookie =
        InlinedCookie::new(Cookie::new(Kind::Inlined, 4), InlinedCookie::CONDITIONAL, operand);
    let mut start = registers(&machine, 17);
    for flags in [0, 0x40] {
        start.flags = flags;
        let probes = vec![probe(ProbeProgram::Inlined, cookie.0)];
        let slots = compare(&mut machine, &code, 6, probes, &start);
        assert_eq!(slots.len(), usize::from(flags != 0));
        for slot in slots {
            let address = start.general[3].wrapping_add(start.general[10] << 3);
            assert_eq!((slot.argument, slot.extra as u32), (address, start.general[0] as u32));
        }
    }
}

#[test]
fn a_short_jump_leads_through_padding() {
    let mut machine = Machine::new(16, Clock::Tsc);
    let start = machine.program();
    let mut code = assemble(&machine, |code, exit| {
        code.test(edi, edi)?;
        code.jmp(exit)
    });
    let end = code.len();
    code.extend([0xcc; 9]);
    machine.load(&code);
    let mut padding = Padding::default();
    padding.add(start + end as u64, &code[end..]);
    let function = Function {
        parts: &[Part { start, code: &code[..end] }],
        word_at: &|_| None,
        is_target: &|address| address == start + 2,
        is_restartable: &|_| false,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    let chosen = function.patches(&[start], &mut padding);
    let [patch] = &chosen.patches[..] else { panic!("{chosen:?}") };
    let Jump::Short(through) = patch.jump else { panic!("{patch:?}") };
    let mut state = registers(&machine, 12);
    state.general[7] = 0;
    let plain = machine.run(&state);
    let cookie = Cookie::new(Kind::Begin, 7);
    let points = [point(patch.points[0].before, vec![probe(ProbeProgram::Region, cookie)])];
    machine.patch_through(2, &points, through);
    assert_eq!(machine.run(&state), plain);
    assert_eq!(machine.take().len(), 1);
}
