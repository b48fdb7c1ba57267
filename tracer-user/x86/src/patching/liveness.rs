//! Liveness of general registers and of the flags: which of them may be read before they are written again.
//!
//! What probes at an instruction read counts before it as if the instruction read it: a probe may compute the address
//! of an access from a register that the program itself does not use any more, and between the two other probes act.
//!
//! Conservative where code may differ from the calling convention. A caller that knows a function may rely on registers
//! that it leaves alone or restores, so a register is dead at a return only if the function writes it, and never from
//! the stack. Of all lives, calls end only the flags'.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    RflagsBits,
};

use super::{Convention, code::FunctionCode};
use crate::dataflow::number;

/// Registers and flags that count at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live(u32);

/// Flags that instructions compute, in the order of their bits in [`Live`].
const FLAGS: [u32; 6] = [
    RflagsBits::OF,
    RflagsBits::SF,
    RflagsBits::ZF,
    RflagsBits::AF,
    RflagsBits::CF,
    RflagsBits::PF,
];

const ALL_FLAGS: u32 = 0x3f << 16;

/// Registers that a function may leave changed, and that no compiler returns anything in: `rsi`, `rdi` and `r8` to
/// `r11`.
const SCRATCH: u32 = 1 << 6 | 1 << 7 | 0xf << 8;

impl Live {
    /// All registers and flags.
    pub const ALL: Self = Self(ALL_FLAGS | 0xffff);

    /// None of them.
    pub const NONE: Self = Self(0);

    /// Returns whether the register with the processor's number counts.
    #[must_use]
    pub const fn register(self, number: u8) -> bool {
        self.0 >> (number & 15) & 1 != 0
    }

    /// Returns whether any of the flags counts.
    #[must_use]
    pub const fn flags(self) -> bool {
        self.0 & ALL_FLAGS != 0
    }

    /// Returns the same flags, and these registers by the processor's numbers, one bit each.
    #[must_use]
    pub const fn with_registers(self, registers: u16) -> Self {
        Self(self.0 & ALL_FLAGS | registers as u32)
    }

    /// Returns the union.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the same registers, with all flags or without flags.
    #[must_use]
    pub const fn with_flags(self, live: bool) -> Self {
        Self(self.0 & 0xffff | if live { ALL_FLAGS } else { 0 })
    }
}

/// Live registers and flags before each instruction of a function.
pub struct Liveness(Vec<u32>);

/// Effect of an instruction: the registers that it reads, and the registers that it overwrites.
struct Effect {
    reads: u32,
    kills: u32,
    touches: u32,
}

impl Liveness {
    /// Follows the control flow of a function backwards until nothing changes. `read` has what the probes before each
    /// instruction read.
    pub fn analyze(flow: &FunctionCode, convention: Convention, read: &[Live]) -> Self {
        let instructions = flow.instructions();
        let mut info = InstructionInfoFactory::new();
        let effects: Vec<Effect> =
            instructions.iter().map(|instruction| effect(&mut info, instruction)).collect();
        let touched = effects.iter().fold(0, |all, effect| all | effect.touches);
        let restored = instructions.iter().fold(0, |all, instruction| all | restores(instruction));
        let after_return = match convention {
            Convention::SystemV => Live::ALL.0 & !(touched & !restored & (SCRATCH | ALL_FLAGS)),
            Convention::Unknown => Live::ALL.0,
        };
        let mut live = vec![0; instructions.len()];
        let mut todo: Vec<usize> = (0..instructions.len()).collect();
        let mut is_queued = vec![true; instructions.len()];
        while let Some(at) = todo.pop() {
            is_queued[at] = false;
            let successors = flow.successors(at);
            let outside = match instructions[at].flow_control() {
                _ if flow.is_open(at) => Live::ALL.0,
                FlowControl::Return => after_return,
                FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::UnconditionalBranch
                    if successors.len() == 1 =>
                {
                    0
                }
                FlowControl::ConditionalBranch if successors.len() == 2 => 0,
                // A jump through a table has all of its targets.
                FlowControl::IndirectBranch if !successors.is_empty() => 0,
                _ => Live::ALL.0,
            };
            let after = successors.iter().fold(outside, |all, &next| all | live[next]);
            let before = after & !effects[at].kills | effects[at].reads | read[at].0;
            if before != live[at] {
                live[at] = before;
                for &previous in flow.predecessors(at) {
                    if !is_queued[previous] {
                        is_queued[previous] = true;
                        todo.push(previous);
                    }
                }
            }
        }
        Self(live)
    }

    /// Returns the live registers before an instruction. The stack pointer is always live.
    pub fn before(&self, at: usize) -> Live {
        Live(self.0[at] | 1 << Register::RSP.number())
    }
}

fn effect(info: &mut InstructionInfoFactory, instruction: &Instruction) -> Effect {
    if !matches!(
        instruction.flow_control(),
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
    ) {
        // The callee may read any register; no flag keeps its value.
        return Effect { reads: 0xffff, kills: ALL_FLAGS, touches: ALL_FLAGS };
    }
    let (mut reads, mut kills, mut touches) = (0, 0, 0);
    for used in info.info(instruction).used_registers() {
        let Some(number) = number(used.register()) else { continue };
        let bit = 1 << number;
        match used.access() {
            // Writing a half of a register clears the rest of it.
            OpAccess::Write if used.register().size() >= 4 => {
                kills |= bit;
                touches |= bit;
            }
            OpAccess::Write | OpAccess::CondWrite => {
                reads |= bit;
                touches |= bit;
            }
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                reads |= bit;
                touches |= bit;
            }
            OpAccess::None | OpAccess::NoMemAccess => {}
            OpAccess::Read | OpAccess::CondRead => reads |= bit,
        }
    }
    let modified = flags(instruction.rflags_modified());
    touches |= modified;
    if !may_keep_flags(instruction) {
        // Processors clear the undefined flag of these, and leave some of others as they are.
        let clears = matches!(
            instruction.mnemonic(),
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test
        );
        let undefined = if clears { 0 } else { flags(instruction.rflags_undefined()) };
        kills |= modified & !undefined;
    }
    reads |= flags(instruction.rflags_read());
    Effect { reads, kills, touches }
}

/// Returns the register or flags that an instruction may restore from the stack.
fn restores(instruction: &Instruction) -> u32 {
    if matches!(instruction.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) {
        return ALL_FLAGS;
    }
    let loads = instruction.mnemonic() == Mnemonic::Pop
        || instruction.mnemonic() == Mnemonic::Mov
            && instruction.op1_kind() == OpKind::Memory
            && matches!(instruction.memory_base(), Register::RSP | Register::RBP);
    let register = (loads && instruction.op0_kind() == OpKind::Register)
        .then(|| number(instruction.op0_register()))
        .flatten();
    register.map_or(0, |number| 1 << number)
}

/// Returns true if an instruction leaves the flags alone for some inputs: a shift by 0, a repetition of no rounds.
fn may_keep_flags(instruction: &Instruction) -> bool {
    let shifts = matches!(
        instruction.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Sal
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd
    );
    let by_register = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == Register::CL
    });
    shifts && by_register
        || (instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix()))
}

fn flags(bits: u32) -> u32 {
    FLAGS.iter().zip(16..).fold(0, |all, (&flag, place)| all | u32::from(bits & flag != 0) << place)
}
