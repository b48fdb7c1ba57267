//! Rules of the two back ends for the places of probes: permitted instructions, the cost of a hit, and the best place
//! at a function's entry. Reads bytes only, without files or processes.
//!
//! A probe of the kernel costs least on an instruction that the kernel emulates. One in the process costs the same
//! on all: it is a part of a jump's trampoline.
//!
//! The kernel emulates some instructions instead of single-stepping them (x86-64): `arch/x86/kernel/uprobes.c`,
//! `branch_setup_xol_insn` and `push_setup_xol_insn`.

use std::collections::HashSet;

use iced_x86::{
    Code, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};
use serde::{Deserialize, Serialize};

use super::instruction::{decode, decode_first};
use super::{control_flow::writes, optimized_nops};

/// Cost of a probe on an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cost {
    /// A jump to a trampoline displaces the instruction: some nanoseconds.
    Displaced,
    /// The kernel emulates the instruction: about half a microsecond.
    Emulated,
    /// The kernel executes a copy of it and traps again: nearly twenty times that.
    SingleStepped,
}

impl Cost {
    /// Returns true if another place would not cost less by much.
    #[must_use]
    pub const fn is_cheap(self) -> bool {
        matches!(self, Self::Displaced | Self::Emulated)
    }
}

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset from the start of the code that was given.
    pub offset: u64,
    /// Distance in bytes of the stack pointer below its value at the start.
    pub depth: u16,
    /// Cost of a hit.
    pub cost: Cost,
}

/// State that must be intact at the place of a probe at a function's entry.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Argument registers.
    pub arguments: &'static [Register],
    /// The stack pointer: a return probe finds the return address by it.
    pub stack: bool,
}

/// Rules of a back end for the places of its probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaceRules {
    /// Breakpoints of the kernel.
    #[default]
    Kernel,
    /// Jumps in the process. Any instruction may be displaced as far as it alone decides; if there is room for a jump
    /// follows from the code around it, and is decided for all probes of a function at once ([`super::patching`]).
    InProcess,
}

impl PlaceRules {
    /// Returns whether there are probes that act when a function returns. Without them each `ret` has a probe.
    #[must_use]
    pub const fn has_return_probes(self) -> bool {
        matches!(self, Self::Kernel)
    }

    /// Returns the cost of a probe on an instruction; `None` if there can be none. The kernel refuses some, takes some
    /// for others, and replaces some by a call ([`optimized_nops`]).
    #[must_use]
    pub fn cost(self, instruction: &Instruction) -> Option<Cost> {
        match self {
            Self::Kernel => kernel_cost(instruction),
            Self::InProcess => (!instruction.is_invalid()).then_some(Cost::Displaced),
        }
    }

    /// Cost of a probe on the first instruction of `code`.
    ///
    /// # Errors
    ///
    /// When a probe is impossible.
    pub fn cost_at(self, code: &[u8]) -> Result<Cost, Refusal> {
        let instruction = decode_first(code, 0);
        self.cost(&instruction).ok_or_else(|| match self {
            Self::InProcess => Refusal::Undecodable,
            Self::Kernel if optimized_nops::may_become_call(&instruction) => Refusal::BecomesCall,
            Self::Kernel => Refusal::Kernel(instruction.mnemonic()),
        })
    }

    /// The place for a probe at a function's entry: the first instruction with a cheap probe, in the straight line from
    /// the start on, before which nothing changes that is needed, and which is executed once a call. Where there is
    /// none, the first instruction that can be probed at all.
    ///
    /// `code` is the whole function, from its first instruction on. `None` when every place is refused, or executed
    /// more than once: the function jumps back to its start.
    #[must_use]
    pub fn entry(self, code: &[u8], needs: Needs) -> Option<Placement> {
        self.first_place(code, !needs.stack, |info, instruction| {
            // The frame pointer leads to the callers.
            !writes(info, instruction, needs.arguments)
                && !writes(info, instruction, &[Register::RBP])
        })
    }

    /// The place for a probe where a function begins as a region.
    ///
    /// As [`Self::entry`], but arguments may have changed, and what lies before must touch no memory that threads
    /// share: it would be left out of the region. Where there is no such place, the first instruction that can be
    /// probed; where there is none of these either, the start.
    #[must_use]
    pub fn frame_entry(self, code: &[u8]) -> Placement {
        let own = |memory: &UsedMemory| {
            memory.access() == OpAccess::NoMemAccess
                || memory.base() == Register::RSP
                || memory.segment() == Register::FS
        };
        let place = self.first_place(code, true, |info, instruction| {
            info.info(instruction).used_memory().iter().all(own)
        });
        place.unwrap_or_else(|| self.start(code))
    }

    /// The start of a function, whether it can be probed or not.
    #[must_use]
    pub fn start(self, code: &[u8]) -> Placement {
        let cost = self.cost_at(code).unwrap_or(Cost::SingleStepped);
        Placement { offset: 0, depth: 0, cost }
    }

    /// The first instruction with a cheap probe, or else the first that can be probed at all, in the straight line from
    /// the start of the code on; what lies before it satisfies `may_precede`, and lowers the stack pointer only if
    /// `may_reserve` and by a constant.
    fn first_place(
        self,
        code: &[u8],
        may_reserve: bool,
        mut may_precede: impl FnMut(&mut InstructionInfoFactory, &Instruction) -> bool,
    ) -> Option<Placement> {
        let targets = branch_targets(code);
        let mut info = InstructionInfoFactory::new();
        let (mut first, mut depth) = (None, 0_u16);
        for instruction in decode(code, 0) {
            let offset = instruction.ip();
            if instruction.is_invalid() || targets.contains(&offset) {
                break;
            }
            if let Some(cost) = self.cost(&instruction) {
                let place = Placement { offset, depth, cost };
                if cost.is_cheap() {
                    return Some(place);
                }
                first = first.or(Some(place));
            }
            if !may_precede(&mut info, &instruction)
                || instruction.flow_control() != FlowControl::Next
            {
                break;
            }
            if writes(&mut info, &instruction, &[Register::RSP]) {
                let deeper = reserved(&instruction).filter(|_| may_reserve);
                let Some(sum) = deeper.and_then(|more| depth.checked_add(more)) else { break };
                depth = sum;
            }
        }
        first
    }
}

/// Returns the number of bytes of stack that a `sub rsp, …` reserves.
fn reserved(instruction: &Instruction) -> Option<u16> {
    let is_sub = matches!(instruction.code(), Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32);
    let bytes = (is_sub && instruction.op0_register() == Register::RSP)
        .then(|| instruction.immediate(1))?;
    u16::try_from(bytes).ok()
}

/// Reason why no probe goes on an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The kernel does not accept one, or takes the instruction for another one.
    #[error("the kernel refuses probes on `{0:?}`")]
    Kernel(#[serde(with = "mnemonic_number")] Mnemonic),
    /// The kernel would replace it by a call, which harms the program.
    #[error(
        "the kernel would replace the nop by a call, which may overwrite memory below the stack pointer and does not \
         exist in child processes"
    )]
    BecomesCall,
    /// The kernel would no longer notice when the thread is interrupted there.
    #[error(
        "it is inside a restartable sequence (rseq), which the kernel can restart only while nothing of it is \
         executed elsewhere"
    )]
    Restartable,
    /// The bytes are no instruction.
    #[error("the bytes there are no instruction")]
    Undecodable,
}

/// Mnemonics as numbers, for values that are stored.
mod mnemonic_number {
    use iced_x86::Mnemonic;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub fn serialize<S: Serializer>(mnemonic: &Mnemonic, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u16(*mnemonic as u16)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mnemonic, D::Error> {
        let number = u16::deserialize(from)?;
        Mnemonic::try_from(usize::from(number)).map_err(|_| D::Error::custom("no mnemonic"))
    }
}

/// Returns the cost of a probe of the kernel on an instruction; `None` if it refuses one, takes the instruction for
/// another one, or replaces it by a call (`optimized_nops`).
///
/// The kernel decides by the first byte of the opcode whether it emulates an instruction, whatever comes
/// before: of AVX instructions `vmovdqu` to memory is a jump to it, and of exchanges `xchg r8, rax` does
/// nothing (`arch/x86/kernel/uprobes.c`, `branch_setup_xol_insn`, `push_setup_xol_insn`).
fn kernel_cost(instruction: &Instruction) -> Option<Cost> {
    let is_mistaken = instruction.encoding() != EncodingKind::Legacy
        || matches!(
            instruction.code(),
            Code::Xchg_r16_AX | Code::Xchg_r32_EAX | Code::Xchg_r64_RAX
        );
    if instruction.is_invalid()
        || instruction.has_lock_prefix()
        || is_mistaken
        || optimized_nops::may_become_call(instruction)
    {
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
    decode(code, 0)
        .filter(|instruction| {
            instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near()
        })
        .map(|instruction| instruction.near_branch_target())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{PlaceRules::Kernel, *};

    const FIRST: Needs = Needs { arguments: &[Register::RDI], stack: true };

    const fn at(offset: u64, cost: Cost) -> Option<Placement> {
        Some(Placement { offset, depth: 0, cost })
    }

    #[test]
    fn the_jump_after_reads_of_the_argument_is_taken() {
        // mov eax,[rdi+16]; mov edx,eax; and edx,0x17f; and eax,0x7c; jne +0x10
        let code =
            [0x8b, 0x47, 0x10, 0x89, 0xc2, 0x81, 0xe2, 0x7f, 1, 0, 0, 0x83, 0xe0, 0x7c, 0x75, 0x10];
        assert_eq!(Kernel.entry(&code, FIRST), at(14, Cost::Emulated));
    }

    #[test]
    fn a_push_at_the_start_is_taken() {
        assert_eq!(Kernel.entry(&[0x41, 0x56, 0xc3], FIRST), at(0, Cost::Emulated));
    }

    #[test]
    fn what_is_needed_ends_the_search_where_it_changes() {
        // mov rdi,rsi; jmp
        let changed = [0x48, 0x89, 0xf7, 0xeb, 0];
        assert_eq!(Kernel.entry(&changed, FIRST), at(0, Cost::SingleStepped));
        let second = Needs { arguments: &[Register::RSI], stack: true };
        assert_eq!(Kernel.entry(&changed, second), at(3, Cost::Emulated));
        // mov ebp,esi; jmp
        assert_eq!(Kernel.entry(&[0x89, 0xf5, 0xeb, 0], FIRST), at(0, Cost::SingleStepped));
        // ret
        assert_eq!(Kernel.entry(&[0xc3], FIRST), at(0, Cost::SingleStepped));
    }

    #[test]
    fn the_stack_may_be_deeper_where_only_the_depth_counts() {
        // sub rsp,8; jmp
        let code = [0x48, 0x83, 0xec, 8, 0xeb, 0];
        assert_eq!(Kernel.entry(&code, FIRST), at(0, Cost::SingleStepped));
        let deeper = Some(Placement { offset: 4, depth: 8, cost: Cost::Emulated });
        assert_eq!(Kernel.entry(&code, Needs { stack: false, ..FIRST }), deeper);
        // and rsp,-16; jmp
        let unknown = [0x48, 0x83, 0xe4, 0xf0, 0xeb, 0];
        assert_eq!(
            Kernel.entry(&unknown, Needs { stack: false, ..FIRST }),
            at(0, Cost::SingleStepped)
        );
    }

    #[test]
    fn a_region_may_begin_where_the_frame_is_being_made() {
        let at = |offset, depth, cost| Placement { offset, depth, cost };
        // mov rdi,rsi; jmp
        let changed = [0x48, 0x89, 0xf7, 0xeb, 0];
        assert_eq!(Kernel.frame_entry(&changed), at(3, 0, Cost::Emulated));
        // sub rsp,24; call
        let lowered = [0x48, 0x83, 0xec, 24, 0xe8, 0, 0, 0, 0];
        assert_eq!(Kernel.frame_entry(&lowered), at(4, 24, Cost::Emulated));
        // sub rsp,24; mov rax,fs:[0x28]; mov [rsp+8],rax; call
        let canary = [
            0x48, 0x83, 0xec, 24, 0x64, 0x48, 0x8b, 4, 0x25, 0x28, 0, 0, 0, 0x48, 0x89, 0x44, 0x24,
            8, 0xe8, 0, 0, 0, 0,
        ];
        assert_eq!(Kernel.frame_entry(&canary), at(18, 24, Cost::Emulated));
        // mov eax,[rdi]; call: the read belongs to the region
        let read = [0x8b, 7, 0xe8, 0, 0, 0, 0];
        assert_eq!(Kernel.frame_entry(&read), at(0, 0, Cost::SingleStepped));
        // sub rsp,24; ret
        assert_eq!(
            Kernel.frame_entry(&[0x48, 0x83, 0xec, 24, 0xc3]),
            at(0, 0, Cost::SingleStepped)
        );
    }

    #[test]
    fn a_place_inside_a_loop_is_not_taken() {
        // mov eax,1; (loop:) push rbx; pop rbx; jmp loop
        let code = [0xb8, 1, 0, 0, 0, 0x53, 0x5b, 0xeb, 0xfc];
        assert_eq!(Kernel.entry(&code, FIRST), at(0, Cost::SingleStepped));
        // (loop:) lock dec dword [rdi]; jne +3; xor eax,eax; ret; pause; jmp loop
        let spin = [0xf0, 0xff, 0x0f, 0x75, 3, 0x31, 0xc0, 0xc3, 0xf3, 0x90, 0xeb, 0xf4];
        assert_eq!(Kernel.entry(&spin, FIRST), None);
    }

    #[test]
    fn a_nop_that_becomes_a_call_is_passed_over() {
        let nop = [0x0f, 0x1f, 0x44, 0, 0];
        // nop; mov eax,[rdi]; ret
        let code = [&nop[..], &[0x8b, 7, 0xc3]].concat();
        assert_eq!(Kernel.entry(&code, FIRST), at(5, Cost::SingleStepped));
        assert_eq!(Some(Kernel.frame_entry(&code)), at(5, Cost::SingleStepped));
        assert_eq!(Kernel.cost_at(&nop), Err(Refusal::BecomesCall));
        assert_eq!(Kernel.cost_at(&[0xf0, 0xff, 0x07]), Err(Refusal::Kernel(Mnemonic::Inc)));
    }

    #[test]
    fn refused_instructions_are_passed_over() {
        // lock inc dword [rdi]; ret
        assert_eq!(Kernel.entry(&[0xf0, 0xff, 0x07, 0xc3], FIRST), at(3, Cost::SingleStepped));
    }

    #[test]
    fn costs_follow_the_kernel() {
        let cost = |code: &[u8]| Kernel.cost(&decode_first(code, 0));
        assert_eq!(cost(&[0x90]), Some(Cost::Emulated));
        assert_eq!(cost(&[0xe8, 0, 0, 0, 0]), Some(Cost::Emulated));
        assert_eq!(cost(&[0x0f, 0x84, 0, 0, 0, 0]), Some(Cost::Emulated));
        assert_eq!(cost(&[0xf3, 0x0f, 0x1e, 0xfa]), Some(Cost::SingleStepped), "endbr64");
        assert_eq!(cost(&[0xff, 0xe0]), Some(Cost::SingleStepped), "jmp rax");
        assert_eq!(cost(&[0xf0, 0x0f, 0xb1, 0x17]), None, "lock cmpxchg");
        assert_eq!(cost(&[0xc5, 0xfe, 0x7f, 0x37]), None, "vmovdqu [rdi],ymm6: 7f is `jg`");
        assert_eq!(cost(&[0xc5, 0xf8, 0x77]), None, "vzeroupper: 77 is `ja`");
        assert_eq!(cost(&[0xc4, 0xc1, 0x79, 0xe8, 0xc0]), None, "vpsubsb: e8 is `call`");
        assert_eq!(cost(&[0x49, 0x90]), None, "xchg r8,rax: 90 is `nop`");
        assert_eq!(cost(&[0x0f, 0x1f, 0x44, 0, 0]), None, "a nop of 5 bytes becomes a call");
        assert_eq!(cost(&[0x0f, 0x1f, 0x40, 0]), Some(Cost::SingleStepped), "a nop of 4 bytes");
        assert_eq!(cost(&[0x66, 0x0f, 0x7f, 0x07]), Some(Cost::SingleStepped), "movdqa [rdi],xmm0");
    }

    #[test]
    fn all_places_in_the_process_cost_the_same() {
        let first = Some(Placement { offset: 0, depth: 0, cost: Cost::Displaced });
        let nop = [0x0f, 0x1f, 0x44, 0, 0];
        let in_process = PlaceRules::InProcess;
        for code in [
            &[0xf0, 0x83, 0x07, 1, 0xc3][..], // lock add dword [rdi],1; ret
            &[0xc5, 0xfe, 0x7f, 0x37, 0xc3],  // vmovdqu [rdi],ymm6; ret
            &[0x49, 0x90, 0xc3],              // xchg r8,rax; ret
            &[0x62, 0xf1, 0x7c, 0x48, 0x28, 7, 0xc3], // vmovaps zmm0,[rdi]; ret
            &[0x8b, 0x47, 16, 0x75, 16, 0xc3], // mov eax,[rdi+16]; jne; ret
            &nop,
        ] {
            assert_eq!(in_process.entry(code, FIRST), first, "{code:x?}");
            assert_eq!(Some(in_process.frame_entry(code)), first, "{code:x?}");
            assert_eq!(in_process.cost_at(code), Ok(Cost::Displaced), "{code:x?}");
        }
        // push es
        assert_eq!(in_process.cost_at(&[0x06]), Err(Refusal::Undecodable));
        // (loop:) lock dec dword [rdi]; jne loop; ret
        assert_eq!(in_process.entry(&[0xf0, 0xff, 0x0f, 0x75, 0xfb, 0xc3], FIRST), None);
    }
}
