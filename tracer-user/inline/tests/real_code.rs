//! Patches and trampolines for the memory instructions of real code: the C library, and this test.

use std::{collections::BTreeMap, path::Path};

use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register,
};
use inline::{
    layout::Clock,
    trampoline::{CommonCode, Displaced, Point, Probe, Trampoline, call_patch},
};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    functions::Functions,
    instruction::decode,
    operands,
    patching::{Convention, Function, Jump, Live, Padding, Patch, Refusal, Targets},
    restartable::restartable_sequences,
};

/// Functions of a file that are looked at.
const MOST: usize = 300;

/// Numbers of places with and without a patch.
#[derive(Debug, Default)]
struct FileCounts {
    patched: usize,
    short: usize,
    called: usize,
    pushed: usize,
    without_points: usize,
    redirected: usize,
    refused: BTreeMap<String, usize>,
    patches: usize,
    bytes: usize,
    flags_live: usize,
    red_zones: usize,
}

fn probe() -> Probe {
    let none = Operand::NONE as u8;
    let descriptor = AccessDescriptor {
        size: 8,
        flags: AccessDescriptor::READ,
        base: 0,
        index: 1,
        scale: 3,
        rounds: none,
        ..AccessDescriptor::default()
    };
    let access = Some(descriptor);
    Probe {
        program: ProbeProgram::Access,
        cookie: Cookie::new(Kind::Access, 1),
        access,
        group: None,
    }
}

/// Checks a trampoline by its disassembly.
fn inspect(trampoline: &Trampoline, common: &CommonCode) {
    let decoder = Decoder::with_ip(64, &trampoline.code, trampoline.address, DecoderOptions::NONE);
    let mut last = None;
    for instruction in decoder {
        assert!(!instruction.is_invalid(), "{:#x}", instruction.ip());
        let target = instruction.near_branch_target();
        match instruction.flow_control() {
            FlowControl::Call => {
                let offset = target.checked_sub(common.address).unwrap();
                assert!(offset < common.code.len() as u64);
            }
            FlowControl::IndirectCall => panic!("a call is displaced at {:#x}", instruction.ip()),
            _ => {}
        }
        last = Some(instruction);
    }
    let ends = matches!(
        last.unwrap().flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::IndirectBranch
    );
    assert!(ends || !trampoline.contains(last.unwrap().next_ip()));
}

/// Checks that a call leads to its trampoline, returns to the same place, and that nothing is done before it.
fn inspect_call(displaced: &Displaced<'_>, patched: &[u8], trampoline: u64) {
    let end = displaced.address + displaced.code.len() as u64;
    let mut at = displaced.address;
    loop {
        let rest = &patched[(at - displaced.address) as usize..];
        let instruction = decode(rest, at).next().unwrap();
        match instruction.mnemonic() {
            Mnemonic::Nop => at = instruction.next_ip(),
            Mnemonic::Jmp => at = instruction.near_branch_target(),
            _ => {
                assert_eq!(instruction.flow_control(), FlowControl::Call);
                assert_eq!(
                    (instruction.near_branch_target(), instruction.next_ip()),
                    (trampoline, end)
                );
                return;
            }
        }
    }
}

fn measure(path: &Path) -> FileCounts {
    let file = ElfFile::open(path).unwrap();
    let functions = Functions::from_file(&file);
    let targets = Targets::of_file(&file, &functions);
    let common = CommonCode::emit(0x4000_0000, Clock::Tsc).unwrap();
    let starts: Vec<u64> = functions.iter().map(|function| function.start.0).collect();
    let mut info = InstructionInfoFactory::new();
    let mut counts = FileCounts::default();
    let step = (starts.len() / MOST).max(1);
    for function in functions.iter().step_by(step) {
        let Some(parts) = function.parts(&file) else { continue };
        let mut points = Vec::new();
        for instruction in parts.iter().flat_map(|part| decode(part.code, part.start)) {
            let on_stack = |register| matches!(register, Register::RSP | Register::RBP);
            let accesses = !instruction.is_invalid()
                && operands::accesses(&mut info, &instruction).iter().any(
                    |access| matches!(access, operands::OperandAccess::Plain(at) if !on_stack(at.base)),
                );
            if accesses {
                points.push(instruction.ip());
            }
        }
        let mut padding = Padding::default();
        let end = function.end;
        let next = starts.partition_point(|start| *start < end.0);
        if let Some(room) = starts.get(next).map(|next| (next - end.0).min(64)) {
            padding.add(end.0, file.bytes_at(end, room as usize).unwrap_or_default());
        }
        let chosen = Function {
            parts: &parts,
            word_at: &|address| {
                let bytes = file.bytes_at(LinkAddr(address), 4)?;
                Some(u32::from_le_bytes(*bytes.first_chunk()?))
            },
            is_target: &|address| address != function.start.0 && targets.contains(address),
            is_restartable: &|address| restartable_sequences(&file).contains(LinkAddr(address)),
            reads: &|_| Live::NONE,
            convention: Convention::SystemV,
        }
        .patches(&points, &mut padding);
        for (_, refusal) in &chosen.refused {
            let name = match refusal {
                Refusal::NoRoom(_) => "no room".to_owned(),
                other => other.to_string(),
            };
            *counts.refused.entry(name).or_default() += 1;
        }
        let mut ends = 0;
        let mut all: Vec<&Patch> = chosen.patches.iter().chain(&chosen.redirected).collect();
        all.sort_by_key(|patch| patch.range.start);
        let redirected: BTreeMap<u64, u64> =
            chosen.redirected.iter().map(|patch| (patch.range.start, 0x4000_8000)).collect();
        counts.redirected += redirected.len();
        for patch in all {
            assert!(patch.range.start >= ends, "patches do not overlap");
            ends = patch.range.end;
            counts.patches += 1;
            counts.patched += patch.points.len();
            counts.short += usize::from(matches!(patch.jump, Jump::Short(_)));
            counts.without_points += usize::from(patch.points.is_empty());
            let length = (patch.range.end - patch.range.start) as usize;
            let code = file.bytes_at(LinkAddr(patch.range.start), length).unwrap();
            let points = patch.points.iter().map(|point| Point::new(point, 0, vec![probe()]));
            let points: Vec<Point> = points.collect();
            counts.flags_live += points.iter().filter(|point| point.live.flags()).count();
            counts.red_zones += points.iter().filter(|point| point.red_zone).count();
            let displaced = Displaced {
                address: patch.range.start,
                code,
                points: &points,
                redirected: &redirected,
            };
            let at = 0x4000_4000;
            let trampoline = if patch.jump == Jump::Call {
                counts.called += 1;
                inspect_call(&displaced, &call_patch(patch.range.start, code, at).unwrap(), at);
                Trampoline::emit_called(&common, at, &displaced).unwrap()
            } else {
                let ends = |call: &Instruction| call.next_ip() == patch.range.end;
                let is_call = |call: &Instruction| {
                    matches!(call.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
                };
                let pushes =
                    decode(code, patch.range.start).any(|last| ends(&last) && is_call(&last));
                counts.pushed += usize::from(pushes);
                Trampoline::emit(&common, at, &displaced).unwrap()
            };
            inspect(&trampoline, &common);
            counts.bytes += trampoline.code.len();
        }
    }
    counts
}

fn check(path: &Path, least: f64) {
    let counts = measure(path);
    let refused: usize = counts.refused.values().sum();
    let share = counts.patched as f64 / (counts.patched + refused) as f64;
    println!("{}: {:.1} % {counts:?}", path.display(), share * 100.0);
    assert!(share >= least, "{share} of the places of {}", path.display());
}

#[test]
fn most_memory_instructions_have_room_for_a_patch() {
    check(&std::env::current_exe().unwrap(), 0.97);
    let libraries = ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib64/libc.so.6"];
    match libraries.iter().map(Path::new).find(|path| path.exists()) {
        Some(library) => check(library, 0.97),
        None => println!("skipped: no C library at a known place"),
    }
}

/// Includes the files that `AVTRACE_REAL_CODE` names.
#[test]
fn so_have_those_of_an_interpreter_and_of_other_files() {
    let python = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0";
    let others = std::env::var_os("AVTRACE_REAL_CODE").unwrap_or_default();
    let files = std::iter::once(python.into()).chain(std::env::split_paths(&others));
    for file in files.filter(|file| file.exists()) {
        check(&file, 0.97);
    }
}
