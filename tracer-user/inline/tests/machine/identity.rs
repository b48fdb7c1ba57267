//! Random code with random patches: registers, flags and memory are the same as without them.

use super::support::{Machine, Registers, registers};
use abi::{
    AccessDescriptor, AllocCookie, CallCookie, Cookie, FlagCondition, InlinedCookie, Kind, Operand,
    ProbeProgram,
};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, code_asm::*};
use inline::{
    layout::Clock,
    trampoline::{Point, Probe, Trampoline},
};
use proptest::prelude::*;
use x86::{
    exits::Part,
    patching::{Convention, Function, Jump, Live, Padding},
};

/// Most bytes below the stack pointer that code with probes writes to, as `docs/capture.md` says. Here the code itself
/// pushes 8.
const MOST_BELOW: u64 = 512 + 8;

/// Random numbers that make an instruction or a probe.
pub type Choice = (u8, u8, u8, u8, i32);

/// Registers that the code changes: all but `rsp` and `rbx`, which point to memory.
const CHANGED: [AsmRegister64; 14] =
    [rax, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15];
const HALVES: [AsmRegister32; 14] =
    [eax, ecx, edx, esi, edi, ebp, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d];
const BYTES: [AsmRegister8; 14] =
    [al, cl, dl, sil, dil, bpl, r8b, r9b, r10b, r11b, r12b, r13b, r14b, r15b];

fn wide(number: u8) -> AsmRegister64 {
    CHANGED[usize::from(number) % 14]
}

/// Eight bytes of data, of the stack, or of the red zone.
fn memory(choice: u8) -> AsmMemoryOperand {
    let offset = 8 * i32::from(choice % 15);
    match choice % 4 {
        0 => qword_ptr(rsp - 128 + offset),
        1 => qword_ptr(rsp + offset),
        _ => qword_ptr(rbx + offset),
    }
}

/// Emits a random instruction. Jumps go to `end`.
pub fn instruction(
    code: &mut CodeAssembler,
    (kind, a, b, c, number): Choice,
    start: CodeLabel,
    end: CodeLabel,
) -> Result<(), IcedError> {
    let (to, from) = (wide(a), wide(b));
    let (half, byte) = (HALVES[usize::from(a) % 14], BYTES[usize::from(a) % 14]);
    match kind % 32 {
        0 => code.mov(to, from),
        1 => code.add(to, from),
        2 => code.adc(to, from),
        3 => code.sbb(half, HALVES[usize::from(b) % 14]),
        4 => code.xor(half, HALVES[usize::from(b) % 14]),
        5 => code.mov(to, memory(c)),
        6 => code.mov(memory(c), from),
        7 => code.add(memory(c), from),
        8 => code.cmp(to, memory(c)),
        9 => code.test(to, from),
        10 => code.sete(byte),
        11 => code.setb(byte),
        12 => code.cmovo(to, from),
        13 => code.cmovs(to, memory(c)),
        14 => code.lea(to, qword_ptr(from + wide(c) * 4_u32 + number)),
        15 => code.lea(to, ptr(start)),
        16 => code.mov(half, number),
        17 => code.imul_2(to, from),
        18 => code.shl(to, cl),
        19 => code.rcr(to, 1),
        20 => code.inc(half),
        21 => code.neg(to),
        22 => code.push(from).and_then(|()| code.pop(to)),
        23 => code.lock().xadd(memory(c | 2), to),
        24 => code.lock().cmpxchg(memory(c | 2), to),
        25 => code.bt(to, u32::from(c % 64)),
        26 => code.jp(end),
        27 => code.jle(end),
        28 => code.jrcxz(end),
        29 => code.setp(byte),
        30 => code.nop_1(dword_ptr(rax + 0x100)),
        _ => code.xchg(to, from),
    }
}

/// Random program of a probe, which faults nowhere but at the value of an access.
fn probe((kind, a, b, _, number): Choice) -> Probe {
    let site = u32::from(b) + 1;
    let cookie = |kind| Cookie::new(kind, site);
    let argument = a % 4 + 1;
    let none = Operand::NONE as u8;
    let mut access = None;
    let (program, cookie) = match kind % 12 {
        0 => (ProbeProgram::Region, cookie(Kind::Begin)),
        1 => (ProbeProgram::Call, CallCookie::new(cookie(Kind::Release), 0, argument, 8).0),
        2 => (ProbeProgram::CallPair, CallCookie::new(cookie(Kind::Init), a & 4, 1, 0).0),
        3 => (ProbeProgram::CallEnter, CallCookie::new(cookie(Kind::Acquire), 0, argument, 0).0),
        4 => {
            let flags = [0, CallCookie::LEAF, CallCookie::INSIDE][usize::from(a % 3)];
            (ProbeProgram::CallEnd, CallCookie::new(cookie(Kind::Acquire), flags, argument, 0).0)
        }
        5 => {
            let operand = Operand::new(u16::from(a) & 15, u16::from(b) & 15, 2);
            let condition = FlagCondition::new(b >> 4);
            let flags = if a & 1 == 0 { InlinedCookie::CONDITIONAL } else { 0 };
            let operand = operand.with_condition(condition);
            (ProbeProgram::Inlined, InlinedCookie::new(cookie(Kind::Inlined), flags, operand).0)
        }
        6 => (ProbeProgram::AllocEnter, AllocCookie::new(cookie(Kind::Alloc), a & 0x1f, 0).0),
        7 => (ProbeProgram::AllocEnd, cookie(Kind::Alloc)),
        8 => (ProbeProgram::Free, AllocCookie::new(cookie(Kind::Free), a & 16, 0).0),
        9 => (ProbeProgram::Shared, cookie(Kind::Shared)),
        10 => {
            let flags = a & 0x2f & !16;
            let descriptor = AccessDescriptor {
                displacement: number.into(),
                size: [1, 2, 4, 8, 16, 12][usize::from(a) % 6],
                flags,
                base: b & 15,
                index: b >> 4,
                scale: a & 3,
                rounds: none,
                ..AccessDescriptor::default()
            };
            access = Some(descriptor);
            (ProbeProgram::Access, cookie(Kind::Access))
        }
        _ => {
            let descriptor = AccessDescriptor {
                displacement: i64::from(a & 0x3f),
                size: [1, 2, 4, 8][usize::from(a) % 4],
                flags: [1, 2, 3, 7, 15][usize::from(b) % 5],
                base: 3,
                index: none,
                rounds: none,
                ..AccessDescriptor::default()
            };
            access = Some(descriptor);
            (ProbeProgram::Access, cookie(Kind::Access))
        }
    };
    Probe { program, cookie, access, group: None }
}

/// Code, probes with the instructions that they are at, and the registers at the start.
#[derive(Clone, Debug)]
struct IdentityCase {
    code: Vec<Choice>,
    probes: Vec<(prop::sample::Index, Choice)>,
    seed: u64,
}

fn case() -> impl Strategy<Value = IdentityCase> {
    let choice = || any::<Choice>();
    let probe = (any::<prop::sample::Index>(), choice());
    (prop::collection::vec(choice(), 3..24), prop::collection::vec(probe, 1..6), any::<u64>())
        .prop_map(|(code, probes, seed)| IdentityCase { code, probes, seed })
}

fn assemble(machine: &Machine, choices: &[Choice]) -> Vec<u8> {
    let mut code = CodeAssembler::new(64).unwrap();
    let mut emit = || -> Result<Vec<u8>, IcedError> {
        let (mut start, mut end) = (code.create_label(), code.create_label());
        code.set_label(&mut start)?;
        code.nop()?;
        for &choice in choices {
            instruction(&mut code, choice, start, end)?;
        }
        code.nop()?;
        code.set_label(&mut end)?;
        code.jmp(machine.exit())?;
        code.assemble(machine.program())
    };
    emit().unwrap()
}

pub fn decode(code: &[u8], address: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter().collect()
}

/// Checks a trampoline by its disassembly: whole instructions, no vector register, calls of common code alone, and a
/// jump back or a way out at the end.
fn inspect(machine: &Machine, trampoline: &Trampoline, end: u64) {
    let instructions = decode(&trampoline.code, trampoline.address);
    let common = machine.common.address..machine.common.address + machine.common.code.len() as u64;
    for instruction in &instructions {
        assert!(!instruction.is_invalid());
        for operand in 0..instruction.op_count() {
            let register = instruction.op_register(operand);
            assert!(!register.is_vector_register() && !register.is_st() && !register.is_mm());
        }
        match instruction.flow_control() {
            FlowControl::Call => assert!(common.contains(&instruction.near_branch_target())),
            FlowControl::IndirectCall => panic!("an indirect call"),
            _ => {}
        }
    }
    let last = instructions.last().unwrap();
    assert_eq!(last.mnemonic(), Mnemonic::Jmp);
    let out = last.near_branch_target();
    assert!(out == end || out == machine.exit(), "{out:#x}");
}

fn check(case: &IdentityCase) {
    let mut machine = Machine::new(256, Clock::Tsc);
    let code = assemble(&machine, &case.code);
    let mut data: Vec<u64> = (0..64).map(|n| n * 0x0101_0101_0203_0405).collect();
    let start = {
        let mut start: Registers = registers(&machine, case.seed);
        start.general[3] = data.as_ptr() as u64;
        start
    };
    machine.load(&code);
    let (stack, before) = (machine.stack.clone(), data.clone());
    let plain = machine.run(&start);
    let (plain_stack, plain_data) = (machine.stack.clone(), data.clone());
    machine.stack.copy_from_slice(&stack);
    data.copy_from_slice(&before);

    let base = machine.program();
    let instructions = decode(&code, base);
    let mut places: Vec<(u64, Choice)> = case
        .probes
        .iter()
        .map(|(index, choice)| {
            // Not the first one: the red zone counts as unused there, and the code may read it.
            (instructions[1 + index.index(instructions.len() - 1)].ip(), *choice)
        })
        .collect();
    places.sort_by_key(|place| place.0);
    let mut addresses: Vec<u64> = places.iter().map(|place| place.0).collect();
    addresses.dedup();
    let parts = [Part { start: base, code: &code }];
    let function = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target: &|_| false,
        is_restartable: &|_| false,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    let chosen = function.patches(&addresses, &mut Padding::default());
    for patch in &chosen.patches {
        assert_eq!(patch.jump, Jump::Near);
        let points = patch.points.iter().map(|point| {
            let here = places.iter().filter(|place| place.0 == point.address);
            Point::new(point, 0, here.map(|place| probe(place.1)).collect())
        });
        let points: Vec<Point> = points.collect();
        let (offset, length) = (patch.range.start - base, patch.range.end - patch.range.start);
        let trampoline = machine.patch(offset as usize, length as usize, &points);
        inspect(&machine, &trampoline, patch.range.end);
        for instruction in &instructions {
            let moved = trampoline.moved(instruction.ip());
            assert_eq!(moved.is_some(), patch.range.contains(&instruction.ip()));
            if let Some(moved) = moved {
                assert_eq!(trampoline.original(moved), Some(instruction.ip()));
                if instruction.ip() != patch.range.start {
                    assert_eq!(trampoline.next(moved), Some(instruction.ip()));
                }
            }
        }
    }
    let patched = machine.run(&start);
    assert_eq!(patched, plain, "registers");
    assert!(data == plain_data, "memory");
    let uses = |point: &x86::patching::Point| point.red_zone;
    let is_used = chosen.patches.iter().flat_map(|patch| &patch.points).any(uses);
    let below = if is_used { 128 } else { 0 };
    let from = (start.general[4] - below - machine.stack_bounds().0) as usize / 8;
    assert!(machine.stack[from..] == plain_stack[from..], "stack");
    let deep = (start.general[4] - MOST_BELOW - machine.stack_bounds().0) as usize / 8;
    assert!(machine.stack[..deep] == plain_stack[..deep], "far below the stack pointer");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 2))]

    #[test]
    fn a_patch_changes_nothing(case in case()) {
        check(&case);
    }
}
