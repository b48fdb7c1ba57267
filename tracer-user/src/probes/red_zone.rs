//! The red zone: the 128 bytes below the stack pointer, where a function that calls none may keep values (System V ABI,
//! AMD64 supplement, 3.2.2). A probed nop of five bytes overwrites a part of it. Reads bytes, knows nothing of files.
//!
//! From Linux 6.18 on, the first hit of a probe on such a nop replaces it by a call of a trampoline, which pushes the
//! return address and registers (`arch/x86/kernel/uprobes.c`, `can_optimize`, `arch_uprobe_optimize`).

use std::collections::HashSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

use super::flow::writes;

/// Bytes below the stack pointer that signal handlers leave alone.
const SIZE: i64 = 128;

/// Whether a kernel may replace the instruction by a call when a probe on it is hit.
///
/// Linux 6.18 does so with `nop` and `nopl` of five bytes. Later kernels also take other instructions without an effect
/// for a nop (`arch/x86/lib/insn-eval.c`, `insn_is_nop`): all of them count.
#[must_use]
pub fn may_become_call(instruction: &Instruction) -> bool {
    if instruction.len() != 5 {
        return false;
    }
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Reservednop => true,
        Mnemonic::Jmp => {
            instruction.code() == Code::Jmp_rel32_64
                && instruction.near_branch_target() == instruction.next_ip()
        }
        Mnemonic::Lea => {
            instruction.memory_displacement64() == 0
                && instruction.memory_base() == instruction.op0_register()
        }
        Mnemonic::Mov => {
            instruction.op1_kind() == OpKind::Register
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register()
        }
        _ => false,
    }
}

/// Whether nothing of the function is in the red zone before the instruction at `offset`; `false` where that is not
/// certain. `code` is the whole function.
///
/// It is so in the straight line from the function's entry on, and from an instruction on that steps over the red zone,
/// as long as nothing is written that could lie below the stack pointer. That a function calls others says nothing: the
/// compiler may not know of the call.
#[must_use]
pub fn is_dead(code: &[u8], offset: u64) -> bool {
    let decoder = || Decoder::new(64, code, DecoderOptions::NONE).into_iter();
    let is_direct = |instruction: &Instruction| {
        instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near()
    };
    let targets: HashSet<u64> =
        decoder().filter(is_direct).map(|jump| jump.near_branch_target()).collect();
    // Where jump tables lead is not known, except that it is behind what every call begins with.
    let hides_targets =
        decoder().any(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
    let mut info = InstructionInfoFactory::new();
    let mut is_dead = true;
    for instruction in decoder() {
        is_dead &= !targets.contains(&instruction.ip());
        if instruction.ip() >= offset || instruction.is_invalid() {
            return is_dead && instruction.ip() == offset && !instruction.is_invalid();
        }
        let does_nothing = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64);
        is_dead = match lowers(&instruction) {
            Some(bytes) => !hides_targets && (is_dead || bytes >= SIZE),
            None => {
                is_dead && (does_nothing || !hides_targets && is_harmless(&mut info, &instruction))
            }
        };
    }
    false
}

/// How many bytes an instruction lowers the stack pointer by, if it does nothing else of importance.
fn lowers(instruction: &Instruction) -> Option<i64> {
    if instruction.op0_register() != Register::RSP {
        return None;
    }
    let bytes = match instruction.code() {
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 => instruction.immediate(1).cast_signed(),
        Code::Lea_r64_m
            if instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            instruction.memory_displacement64().cast_signed().checked_neg()?
        }
        _ => return None,
    };
    (bytes >= 0).then_some(bytes)
}

/// Whether an instruction goes on to the next, raises no stack pointer, and writes nothing below it.
fn is_harmless(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    if instruction.flow_control() != FlowControl::Next {
        return false;
    }
    if matches!(instruction.code(), Code::Push_r64 | Code::Pushq_imm8 | Code::Pushq_imm32) {
        return true;
    }
    let is_above = |memory: &iced_x86::UsedMemory| {
        matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
            || memory.base() == Register::RSP
                && memory.index() == Register::None
                && memory.displacement().cast_signed() >= 0
    };
    !writes(info, instruction, &[Register::RSP])
        && info.info(instruction).used_memory().iter().all(is_above)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

    fn dead_behind(before: &[u8]) -> bool {
        // ret
        is_dead(&[before, &NOP5, &[0xc3]].concat(), before.len() as u64)
    }

    #[test]
    fn every_nop_of_five_bytes_may_become_a_call() {
        let may = |code: &[u8]| {
            let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
            assert_eq!(instruction.len(), code.len(), "{code:x?}");
            may_become_call(&instruction)
        };
        assert!(may(&NOP5), "nopl 0(%rax,%rax,1)");
        assert!(may(&[0x66, 0x0f, 0x1f, 0x40, 0]), "nopw 0(%rax)");
        assert!(may(&[0x66, 0x66, 0x66, 0x66, 0x90]), "data16 nop");
        assert!(may(&[0x48, 0x8d, 0x74, 0x26, 0]), "lea 0(%rsi,%riz,1),%rsi");
        assert!(may(&[0x3e, 0x48, 0x8d, 0x76, 0]), "ds lea 0(%rsi),%rsi");
        assert!(may(&[0xe9, 0, 0, 0, 0]), "jmp to the next instruction");
        assert!(!may(&[0xe9, 1, 0, 0, 0]), "jmp elsewhere");
        assert!(!may(&[0x90]), "nop");
        assert!(!may(&[0x0f, 0x1f, 0x40, 0]), "nopl 0(%rax)");
        assert!(!may(&[0x66, 0x0f, 0x1f, 0x44, 0, 0]), "nopw 0(%rax,%rax,1)");
        assert!(!may(&[0xe8, 0, 0, 0, 0]), "call");
        assert!(!may(&[0xb8, 0, 0, 0, 0]), "mov $0,%eax");
        assert!(!may(&[0x48, 0x8d, 0x74, 0x24, 8]), "lea 8(%rsp),%rsi");
    }

    #[test]
    fn nothing_is_in_it_when_a_function_begins() {
        assert!(dead_behind(&[]));
        assert!(dead_behind(&[0xf3, 0x0f, 0x1e, 0xfa]), "endbr64");
        assert!(dead_behind(&[0x55, 0x48, 0x89, 0xe5]), "push %rbp; mov %rsp,%rbp");
        assert!(
            dead_behind(&[0x48, 0x83, 0xec, 24, 0x89, 0x44, 0x24, 8]),
            "sub $24,%rsp; mov %eax,8(%rsp)"
        );
    }

    #[test]
    fn what_was_written_may_be_in_it() {
        assert!(!dead_behind(&[0x89, 0x44, 0x24, 0xf8]), "mov %eax,-8(%rsp)");
        assert!(!dead_behind(&[0x89, 0x45, 0xf8]), "mov %eax,-8(%rbp)");
        assert!(!dead_behind(&[0x89, 0x04, 0x8c]), "mov %eax,(%rsp,%rcx,4)");
        assert!(!dead_behind(&[0x55, 0x5d]), "push %rbp; pop %rbp");
        assert!(!dead_behind(&[0x48, 0x83, 0xc4, 8]), "add $8,%rsp");
    }

    #[test]
    fn a_jump_may_lead_there_with_something_in_it() {
        // test %edi,%edi; je over the store; mov %eax,-8(%rsp)
        assert!(!dead_behind(&[0x85, 0xff, 0x74, 4, 0x89, 0x44, 0x24, 0xf8]));
        // The nop is at the head of a loop: mov %eax,-8(%rsp) behind it, jmp to it.
        let code = [&NOP5[..], &[0x89, 0x44, 0x24, 0xf8, 0xeb, 0xf5]].concat();
        assert!(!is_dead(&code, 0));
        // push %rbp, and a jump through a table that may lead behind it.
        let code = [&[0x55], &NOP5[..], &[0xff, 0x24, 0xc5, 0, 0, 0, 0]].concat();
        assert!(!is_dead(&code, 1));
        let code = [&NOP5[..], &[0xff, 0x24, 0xc5, 0, 0, 0, 0]].concat();
        assert!(is_dead(&code, 0), "a function's first instruction is behind no table");
    }

    #[test]
    fn code_may_step_over_it() {
        let store = [0x89, 0x44, 0x24, 0xf8];
        let behind = |step: &[u8]| dead_behind(&[&store, step].concat());
        assert!(behind(&[0x48, 0x8d, 0x64, 0x24, 0x80]), "lea -128(%rsp),%rsp");
        assert!(behind(&[0x48, 0x81, 0xec, 0x80, 0, 0, 0]), "sub $128,%rsp");
        assert!(!behind(&[0x48, 0x83, 0xec, 0x78]), "sub $120,%rsp");
        assert!(
            !dead_behind(&[0x48, 0x81, 0xec, 0, 1, 0, 0, 0x89, 0x44, 0x24, 0xf8]),
            "the new one is in use"
        );
    }

    #[test]
    fn a_place_between_instructions_is_none() {
        assert!(!is_dead(&[&[0x55], &NOP5[..]].concat(), 2));
        assert!(!is_dead(&NOP5, 5));
    }
}
