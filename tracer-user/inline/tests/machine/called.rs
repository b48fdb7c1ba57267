//! Calls that lead to trampolines: what they call finds the registers, the flags and the stack as without the probes.

use abi::{AllocCookie, Cookie, Kind, ProbeProgram};
use iced_x86::{FlowControl, Instruction, code_asm::*};
use inline::{
    layout::Clock,
    trampoline::{Point, Probe},
};
use proptest::prelude::*;
use x86::{
    exits::Part,
    patching::{Convention, Function, Jump, Live, Padding},
};

use super::support::{Machine, registers};

/// Random numbers that make an instruction.
type Choice = (u8, u8, u8);

const CHANGED: [AsmRegister64; 8] = [rax, rcx, rdx, rbp, rsi, rdi, r11, r15];

/// Emits an instruction that uses the stack, or registers alone.
fn instruction(code: &mut CodeAssembler, (kind, a, b): Choice) -> Result<(), IcedError> {
    let (to, from) = (CHANGED[usize::from(a) % 8], CHANGED[usize::from(b) % 8]);
    let above = i32::from(b % 16) * 8;
    match kind % 16 {
        0 | 1 => code.push(from),
        2 => code.push(i32::from(b as i8)),
        3 => code.push(qword_ptr(rsp + above)),
        4 => code.push(qword_ptr(rbx + above)),
        5 => code.pop(to),
        // The function writes its stack before it reads it.
        6 => code.sub(rsp, 8).and_then(|()| code.mov(qword_ptr(rsp), i32::from(a))),
        7 => code.add(rsp, i32::from(b % 4) * 8),
        8 => {
            code.lea(rsp, qword_ptr(rsp - 16))?;
            code.mov(qword_ptr(rsp), i32::from(a))?;
            code.mov(qword_ptr(rsp + 8), i32::from(b))
        }
        9 => code.mov(to, rsp),
        10 => code.lea(to, qword_ptr(rsp + above)),
        11 => code.mov(to, qword_ptr(rsp + above)),
        12 => code.mov(qword_ptr(rsp + above), from),
        13 => code.mov(to, from),
        14 => code.add(qword_ptr(rsp + above), i32::from(a)),
        _ => code.lea(to, qword_ptr(from + to * 2_u32 + 5)),
    }
}

/// Assembles instructions, a call by a register or of an address, and what it calls. Returns the code, and the offset
/// of what is called.
fn assemble(machine: &Machine, choices: &[Choice], by_register: bool) -> (Vec<u8>, u64) {
    let mut code = CodeAssembler::new(64).unwrap();
    let mut emit = || -> Result<(Vec<u8>, usize), IcedError> {
        let (mut called, mut start) = (code.create_label(), code.create_label());
        if by_register {
            code.lea(r12, ptr(called))?;
            code.jmp(start)?;
            code.set_label(&mut start)?;
        }
        for &choice in choices {
            instruction(&mut code, choice)?;
        }
        if by_register {
            code.call(r12)?;
        } else {
            code.call(called)?;
        }
        code.jmp(machine.exit())?;
        let at = code.instructions().len();
        code.set_label(&mut called)?;
        // The return address, its place, and what lies above it.
        code.mov(r8, qword_ptr(rsp))?;
        code.lea(r9, qword_ptr(rsp))?;
        code.mov(r10, qword_ptr(rsp + 8))?;
        code.ret()?;
        let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let result = code.assemble_options(machine.program(), options)?;
        let offset = result.inner.new_instruction_offsets[at] as usize;
        Ok((result.inner.code_buffer, offset))
    };
    let (code, offset) = emit().unwrap();
    (code, offset as u64)
}

fn probe(number: u8) -> Probe {
    let (program, cookie) = match number % 3 {
        0 => (ProbeProgram::Region, Cookie::new(Kind::Begin, 7)),
        1 => (ProbeProgram::Free, AllocCookie::new(Cookie::new(Kind::Free, 7), 0, 0).0),
        _ => (ProbeProgram::Shared, Cookie::new(Kind::Shared, 7)),
    };
    Probe { program, cookie, access: None, group: None }
}

fn check(choices: &[Choice], by_register: bool, point: usize, number: u8, seed: u64) {
    let mut machine = Machine::new(64, Clock::Tsc);
    let (code, called) = assemble(&machine, choices, by_register);
    let mut data = [7_u64; 16];
    let mut start = registers(&machine, seed);
    start.general[3] = data.as_mut_ptr() as u64;
    start.general[4] -= 1024;
    machine.load(&code);
    let stack = machine.stack.clone();
    let plain = machine.run(&start);
    let plain_stack = machine.stack.clone();
    machine.stack.copy_from_slice(&stack);

    let base = machine.program();
    let parts = [Part { start: base, code: &code }];
    let function = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target: &|address| address == base + called,
        is_restartable: &|_| false,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    let instructions: Vec<_> = x86::instruction::decode(&code, base).collect();
    let first = if by_register { 2 } else { 0 };
    let is_call = |one: &Instruction| {
        matches!(one.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    };
    let call = instructions.iter().position(is_call).unwrap();
    let address = instructions[first + point % (call + 1 - first)].ip();
    let place = instructions[call].ip();
    let chosen = function.patches(&[address, place], &mut Padding::default());
    assert!(chosen.refused.is_empty(), "{chosen:?}");
    // With a red zone in use, a call by a register may be too short for the machine.
    if chosen.patches.iter().any(|patch| matches!(patch.jump, Jump::Short(_))) {
        return;
    }
    for patch in &chosen.patches {
        let points = patch.points.iter().map(|point| Point::new(point, 0, vec![probe(number)]));
        let points: Vec<Point> = points.collect();
        let (offset, length) = (patch.range.start - base, patch.range.end - patch.range.start);
        if patch.jump == Jump::Call {
            machine.patch_call(offset as usize, length as usize, &points);
        } else {
            machine.patch(offset as usize, length as usize, &points);
        }
    }
    let patched = machine.run(&start);
    // Flags do not survive a call.
    assert_eq!(patched.general, plain.general, "registers");
    let is_above = |word: &usize| machine.stack_bounds().0 + 8 * *word as u64 >= plain.general[4];
    let from = (0..stack.len()).find(is_above).unwrap();
    assert!(machine.stack[from..] == plain_stack[from..], "stack");
    let count = 1 + usize::from(address != place);
    let slots = machine.take();
    if number.is_multiple_of(3) {
        assert_eq!(slots.len(), count, "{slots:?}");
        let is_first = address == instructions[first].ip();
        assert!(
            !is_first || slots[0].stack_pointer() == start.general[4],
            "the stack pointer is the program's"
        );
    }
}

proptest! {
    #[test]
    fn a_call_that_leads_to_a_trampoline_changes_nothing(
        choices in prop::collection::vec(any::<Choice>(), 3..12),
        by_register in any::<bool>(),
        point in any::<usize>(),
        number in any::<u8>(),
        seed in any::<u64>(),
    ) {
        check(&choices, by_register, point, number, seed);
    }
}
