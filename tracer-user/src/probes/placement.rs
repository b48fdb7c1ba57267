//! Where in a function's machine code to put a probe: cheap instructions that the kernel emulates, the returns
//! that control flow can reach. Reads bytes, knows nothing of files or processes.
//!
//! What the kernel emulates instead of single-stepping (x86-64): `arch/x86/kernel/uprobes.c`,
//! `branch_setup_xol_insn` and `push_setup_xol_insn`.

use std::collections::{BTreeSet, HashSet};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register, UsedMemory,
};

/// What a probe at an instruction costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cost {
    /// The kernel emulates the instruction: about half a microsecond.
    Emulated,
    /// The kernel executes a copy of it and traps again: about ten times that.
    SingleStepped,
}

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset from the start of the code that was given.
    pub offset: u64,
    /// What it costs.
    pub cost: Cost,
}

/// Why returns could not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReturns {
    /// Control goes where the code does not tell.
    #[error("an indirect jump at +{0:#x} hides where it goes on")]
    IndirectJump(u64),
    /// Control leaves what could be read.
    #[error("control leaves the function at +{0:#x}")]
    LeavesCode(u64),
    /// An instruction is not valid.
    #[error("bytes at +{0:#x} are no instruction")]
    Invalid(u64),
}

/// The place for a probe at a function's entry: the first instruction that the kernel emulates, in the straight
/// line from the start on, before which neither the first argument register nor the stack pointer changes, and
/// which is executed once a call. Where there is none, the start itself.
///
/// `code` is the whole function, from its first instruction on.
#[must_use]
pub fn entry(code: &[u8]) -> Placement {
    let mut info = InstructionInfoFactory::new();
    first_emulated(code, |instruction| {
        !info.info(instruction).used_registers().iter().any(|used| {
            matches!(used.register().full_register(), Register::RDI | Register::RSP)
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        })
    })
}

/// The place for a probe where a function begins as a region, and how far the stack pointer is below its value at
/// the function's first instruction there, in bytes.
///
/// As [`entry`], but arguments may have changed, the stack pointer may have been lowered by a constant, and what lies
/// before must touch no memory that threads share: it would be left out of the region.
#[must_use]
pub fn frame_entry(code: &[u8]) -> (Placement, u64) {
    let mut info = InstructionInfoFactory::new();
    let mut lowered = 0;
    let placement = first_emulated(code, |instruction| {
        if matches!(instruction.code(), Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32)
            && instruction.op0_register() == Register::RSP
        {
            lowered += instruction.immediate(1);
            return lowered < u64::from(u32::MAX);
        }
        let info = info.info(instruction);
        let own = |memory: &UsedMemory| {
            memory.access() == OpAccess::NoMemAccess
                || memory.base() == Register::RSP
                || memory.segment() == Register::FS
        };
        let moves_stack = info.used_registers().iter().any(|used| {
            used.register().full_register() == Register::RSP
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        });
        !moves_stack && info.used_memory().iter().all(own)
    });
    match placement.cost {
        Cost::Emulated => (placement, lowered),
        Cost::SingleStepped => (placement, 0),
    }
}

/// The first emulated instruction in the straight line from the start on that only instructions precede of which
/// `harmless` holds; where there is none, the start.
fn first_emulated(code: &[u8], mut harmless: impl FnMut(&Instruction) -> bool) -> Placement {
    let targets = branch_targets(code);
    for instruction in &mut Decoder::new(64, code, DecoderOptions::NONE) {
        let offset = instruction.ip();
        if instruction.is_invalid() || (offset != 0 && targets.contains(&offset)) {
            break;
        }
        if let Some(cost @ Cost::Emulated) = probe_cost(&instruction) {
            return Placement { offset, cost };
        }
        if !harmless(&instruction) || instruction.flow_control() != FlowControl::Next {
            break;
        }
    }
    Placement { offset: 0, cost: Cost::SingleStepped }
}

/// What a probe at an instruction costs; `None` where the kernel refuses one.
#[must_use]
pub fn probe_cost(instruction: &Instruction) -> Option<Cost> {
    if instruction.is_invalid() || instruction.has_lock_prefix() {
        return None;
    }
    let emulated = instruction.is_jcc_short_or_near()
        || instruction.is_jmp_short_or_near()
        || instruction.is_call_near()
        || instruction.code() == Code::Nopd
        || (matches!(instruction.code(), Code::Push_r64) && instruction.len() <= 2);
    Some(if emulated { Cost::Emulated } else { Cost::SingleStepped })
}

/// Direct branch targets inside the code, as offsets.
fn branch_targets(code: &[u8]) -> HashSet<u64> {
    Decoder::new(64, code, DecoderOptions::NONE)
        .iter()
        .filter(|instruction| {
            instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near()
        })
        .map(|instruction| instruction.near_branch_target())
        .collect()
}

/// The `ret` instructions that control flow from `start` reaches, following direct jumps and skipping calls.
///
/// `code` is a stretch of machine code around the function, `start` the offset of its first instruction in it:
/// tail jumps into neighbours are followed as long as they stay inside.
///
/// # Errors
///
/// When control goes where the code does not tell, so that a return might be missed.
pub fn returns(code: &[u8], start: u64) -> Result<Vec<u64>, NoReturns> {
    let mut todo = vec![start];
    let mut seen = HashSet::new();
    let mut returns = BTreeSet::new();
    while let Some(mut at) = todo.pop() {
        while seen.insert(at) {
            let rest = usize::try_from(at).ok().and_then(|at| code.get(at..)).unwrap_or_default();
            if rest.is_empty() {
                return Err(NoReturns::LeavesCode(at));
            }
            let instruction = Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                return Err(NoReturns::Invalid(at));
            }
            match instruction.flow_control() {
                FlowControl::Return => {
                    returns.insert(at);
                    break;
                }
                FlowControl::UnconditionalBranch => {
                    at = instruction.near_branch_target();
                    continue;
                }
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    todo.push(instruction.near_branch_target());
                }
                FlowControl::IndirectBranch => return Err(NoReturns::IndirectJump(at)),
                // `ud2`, `hlt`: control ends here.
                FlowControl::Exception | FlowControl::Interrupt
                    if instruction.mnemonic() != Mnemonic::Int3 =>
                {
                    break;
                }
                // A call that does not return is followed by other code or padding: what is found there is
                // never executed, and a probe on it does no harm.
                _ => {}
            }
            at = instruction.next_ip();
        }
    }
    Ok(returns.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_after_reads_of_the_argument_is_taken() {
        // mov eax,[rdi+16]; mov edx,eax; and edx,0x17f; and eax,0x7c; jne +0x10
        let code =
            [0x8b, 0x47, 0x10, 0x89, 0xc2, 0x81, 0xe2, 0x7f, 1, 0, 0, 0x83, 0xe0, 0x7c, 0x75, 0x10];
        assert_eq!(entry(&code), Placement { offset: 14, cost: Cost::Emulated });
    }

    #[test]
    fn a_push_at_the_start_is_taken() {
        assert_eq!(entry(&[0x41, 0x56, 0xc3]), Placement { offset: 0, cost: Cost::Emulated });
    }

    #[test]
    fn a_changed_argument_or_stack_ends_the_search() {
        // mov rdi,rsi; jmp
        let changed = [0x48, 0x89, 0xf7, 0xeb, 0];
        assert_eq!(entry(&changed), Placement { offset: 0, cost: Cost::SingleStepped });
        // sub rsp,8; jmp
        let moved = [0x48, 0x83, 0xec, 8, 0xeb, 0];
        assert_eq!(entry(&moved), Placement { offset: 0, cost: Cost::SingleStepped });
        // ret
        assert_eq!(entry(&[0xc3]), Placement { offset: 0, cost: Cost::SingleStepped });
    }

    #[test]
    fn a_region_may_begin_where_the_frame_is_being_made() {
        let at = |offset, cost| Placement { offset, cost };
        // mov rdi,rsi; jmp
        let changed = [0x48, 0x89, 0xf7, 0xeb, 0];
        assert_eq!(frame_entry(&changed), (at(3, Cost::Emulated), 0));
        // sub rsp,24; call
        let lowered = [0x48, 0x83, 0xec, 24, 0xe8, 0, 0, 0, 0];
        assert_eq!(frame_entry(&lowered), (at(4, Cost::Emulated), 24));
        // sub rsp,24; mov rax,fs:[0x28]; mov [rsp+8],rax; call
        let canary = [
            0x48, 0x83, 0xec, 24, 0x64, 0x48, 0x8b, 4, 0x25, 0x28, 0, 0, 0, 0x48, 0x89, 0x44, 0x24,
            8, 0xe8, 0, 0, 0, 0,
        ];
        assert_eq!(frame_entry(&canary), (at(18, Cost::Emulated), 24));
        // mov eax,[rdi]; call: the read belongs to the region
        let read = [0x8b, 7, 0xe8, 0, 0, 0, 0];
        assert_eq!(frame_entry(&read), (at(0, Cost::SingleStepped), 0));
        // sub rsp,24; ret
        assert_eq!(frame_entry(&[0x48, 0x83, 0xec, 24, 0xc3]), (at(0, Cost::SingleStepped), 0));
    }

    #[test]
    fn a_place_inside_a_loop_is_not_taken() {
        // mov eax,1; (loop:) push rbx; pop rbx; jmp loop
        let code = [0xb8, 1, 0, 0, 0, 0x53, 0x5b, 0xeb, 0xfc];
        assert_eq!(entry(&code), Placement { offset: 0, cost: Cost::SingleStepped });
    }

    #[test]
    fn costs_follow_the_kernel() {
        let cost = |code: &[u8]| probe_cost(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        assert_eq!(cost(&[0x90]), Some(Cost::Emulated));
        assert_eq!(cost(&[0xe8, 0, 0, 0, 0]), Some(Cost::Emulated));
        assert_eq!(cost(&[0x0f, 0x84, 0, 0, 0, 0]), Some(Cost::Emulated));
        assert_eq!(cost(&[0xf3, 0x0f, 0x1e, 0xfa]), Some(Cost::SingleStepped), "endbr64");
        assert_eq!(cost(&[0xff, 0xe0]), Some(Cost::SingleStepped), "jmp rax");
        assert_eq!(cost(&[0xf0, 0x0f, 0xb1, 0x17]), None, "lock cmpxchg");
    }

    #[test]
    fn returns_are_found_through_jumps_and_not_in_what_lies_between() {
        // jmp +2; ret; nop; test eax,eax; je +1; ret; ret
        let code = [0xeb, 2, 0xc3, 0x90, 0x85, 0xc0, 0x74, 1, 0xc3, 0xc3];
        assert_eq!(returns(&code, 0), Ok(vec![8, 9]));
    }

    #[test]
    fn hidden_control_flow_is_an_error() {
        assert_eq!(returns(&[0xff, 0xe0], 0), Err(NoReturns::IndirectJump(0)));
        assert_eq!(returns(&[0x90], 0), Err(NoReturns::LeavesCode(1)));
        assert_eq!(returns(&[0x06], 0), Err(NoReturns::Invalid(0)));
        assert_eq!(returns(&[0xeb, 0x7f], 0), Err(NoReturns::LeavesCode(0x81)));
    }
}
