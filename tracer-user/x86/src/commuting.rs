//! Updates of memory that commute: their order does not change the result, and the code does not use intermediate
//! results. Reference counts and statistics consist of such updates. What the code does with a result is followed for a
//! few instructions only; a result whose use is unknown counts as used.

use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, RflagsBits,
};
use serde::{Deserialize, Serialize};

use crate::instruction::decode_first;

/// Maximal number of instructions that are followed after an update.
const MAX_INSTRUCTIONS: usize = 48;

/// Instruction that updates memory and commutes with others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommutingUpdate {
    /// The change that it makes.
    pub change: CommutingChange,
    /// Set if it reads and writes in one step, as with a `lock` prefix.
    pub is_atomic: bool,
}

/// Changes that commute with one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CommutingChange {
    /// An addition or a subtraction.
    Adds,
    /// A change of bits. Setting and clearing the same bit do not commute, which is not distinguished.
    Bits,
}

/// Values that an instruction has left and that a later one may use.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Live {
    /// Register with the value before the update, if it is still there.
    register: Option<Register>,
    /// Set if the flags are the update's.
    flags: bool,
    /// Set if the flags come from a comparison of the register with a number, and not from the update.
    compared: bool,
    /// Set once the register was compared. In a function's result register it is then taken for dead at the return:
    /// whoever releases a reference mostly returns nothing.
    was_compared: bool,
}

/// Returns what an instruction does to memory if it commutes with others of its kind: it adds to memory or changes bits
/// there, and its result is unused, or used only in comparisons with zero and, for the number from before an exchanging
/// addition, in comparisons with 0, 1 or -1.
///
/// `code_at` returns the code from an address on, 15 bytes if there are as many.
#[must_use]
pub fn commuting_update<'code>(
    instruction: &Instruction,
    code_at: &dyn Fn(u64) -> Option<&'code [u8]>,
) -> Option<CommutingUpdate> {
    if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Memory {
        return None;
    }
    let change = match instruction.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xadd => {
            CommutingChange::Adds
        }
        Mnemonic::Or | Mnemonic::And | Mnemonic::Xor => CommutingChange::Bits,
        _ => return None,
    };
    let is_exchanging = instruction.mnemonic() == Mnemonic::Xadd;
    let is_atomic = instruction.has_lock_prefix();
    if is_exchanging && !is_atomic {
        return None;
    }
    let register = is_exchanging.then(|| instruction.op1_register().full_register());
    let live = Live { register, flags: true, compared: false, was_compared: false };
    let is_unused =
        UseSearch { code_at, seen: Vec::new(), left: MAX_INSTRUCTIONS, is_private: false }
            .is_unused(instruction.next_ip(), live);
    is_unused.then_some(CommutingUpdate { change, is_atomic })
}

/// Returns true if an instruction reads two reference counts at once, only to compare both with one: whether the owner
/// is the last (`_Sp_counted_base::_M_release` in `bits/shared_ptr_base.h` of GCC's library). Then nothing is
/// subtracted. The test commutes with what other owners do, as a subtraction does: nobody comes to own what has one
/// owner but through that one. `function` has the instructions of its function.
#[must_use]
pub fn is_last_owner_test<'code>(
    load: &Instruction,
    code_at: &dyn Fn(u64) -> Option<&'code [u8]>,
    function: impl IntoIterator<Item = Instruction>,
) -> bool {
    /// Both counts, of four bytes each.
    const BOTH_ONE: u64 = 1 << 32 | 1;
    if load.code() != Code::Mov_r64_rm64 || load.op1_kind() != OpKind::Memory {
        return false;
    }
    let loaded = load.op0_register();
    let Some(compare) = instruction_at(code_at, load.next_ip()) else { return false };
    let registers = [compare.op0_register(), compare.op1_register()];
    let constant = match registers {
        _ if compare.mnemonic() != Mnemonic::Cmp || compare.op1_kind() != OpKind::Register => {
            return false;
        }
        [first, second] if first == loaded => second,
        [first, second] if second == loaded => first,
        _ => return false,
    };
    let live = Live { register: Some(loaded), flags: false, compared: false, was_compared: true };
    let mut search =
        UseSearch { code_at, seen: Vec::new(), left: MAX_INSTRUCTIONS, is_private: true };
    let sets_constant = |instruction: Instruction| {
        instruction.code() == Code::Mov_r64_imm64
            && instruction.op0_register() == constant
            && instruction.immediate64() == BOTH_ONE
    };
    search.is_unused(compare.next_ip(), live) && function.into_iter().any(sets_constant)
}

/// Search for uses of a result, on all ways from the update on.
struct UseSearch<'search, 'code> {
    code_at: &'search dyn Fn(u64) -> Option<&'code [u8]>,
    /// Places that were reached, with the live values there.
    seen: Vec<(u64, Live)>,
    /// Number of instructions that may still be followed.
    left: usize,
    /// Set if no function gets the register as an argument.
    is_private: bool,
}

impl UseSearch<'_, '_> {
    fn is_unused(&mut self, mut at: u64, mut live: Live) -> bool {
        let mut info = InstructionInfoFactory::new();
        loop {
            if live.register.is_none() && !live.flags {
                return true;
            }
            if self.seen.contains(&(at, live)) {
                return true;
            }
            self.seen.push((at, live));
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
            let Some(instruction) = instruction_at(self.code_at, at) else { return false };
            if !live.step(&mut info, &instruction) {
                return false;
            }
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => at = next,
                FlowControl::UnconditionalBranch => at = instruction.near_branch_target(),
                FlowControl::ConditionalBranch => {
                    if !self.is_unused(instruction.near_branch_target(), live) {
                        return false;
                    }
                    at = next;
                }
                // No function gets or returns flags.
                FlowControl::Return => {
                    return live.was_compared || live.register.is_none_or(is_dead_at_return);
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let passed = live.register.filter(|&register| !is_dead_at_call(register));
                    return self.is_private || passed.is_none();
                }
                // A jump to another function, or through a table, neither of which gets flags.
                FlowControl::IndirectBranch => return live.register.is_none(),
                // The program stops there.
                FlowControl::Exception => return true,
                _ => return false,
            }
        }
    }
}

impl Live {
    /// Follows an instruction. Returns false if it uses the result otherwise than in a comparison.
    fn step(&mut self, info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
        if self.flags && instruction.rflags_read() & ARITHMETIC != 0 {
            let compares = self.compared || is_comparison_with_zero(instruction);
            if !compares {
                return false;
            }
        }
        let mut compares_register = false;
        if let Some(register) = self.register {
            match register_use(info, instruction, register) {
                Use::Reads if is_comparison_with_number(instruction) => compares_register = true,
                Use::Reads => return false,
                Use::Overwrites => self.register = None,
                Use::None => {}
            }
        }
        let modified = instruction.rflags_modified();
        if compares_register {
            (self.flags, self.compared, self.was_compared) = (true, true, true);
        } else if modified & ARITHMETIC == ARITHMETIC {
            (self.flags, self.compared) = (false, false);
        }
        true
    }
}

/// Flags by which a comparison of a result with zero is decided.
const COMPARISON: u32 = RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// All flags that say something of a result.
const ARITHMETIC: u32 = COMPARISON | RflagsBits::CF | RflagsBits::PF;

/// Returns true if an instruction uses flags only as a comparison of the result with zero has them.
fn is_comparison_with_zero(instruction: &Instruction) -> bool {
    instruction.condition_code() != ConditionCode::None
        && instruction.rflags_read() & ARITHMETIC & !COMPARISON == 0
}

/// Returns true if an instruction compares a register with 0, 1 or -1: the number before an update whose result is 0.
fn is_comparison_with_number(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Cmp => {
            instruction.op0_kind() == OpKind::Register
                && !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
                && matches!(instruction.immediate(1).cast_signed(), -1..=1)
        }
        Mnemonic::Test => {
            instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register()
        }
        _ => false,
    }
}

/// Use of a register by an instruction.
pub(crate) enum Use {
    None,
    Reads,
    /// Overwrites the value.
    Overwrites,
}

pub(crate) fn register_use(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> Use {
    let mut result = Use::None;
    for used in info.info(instruction).used_registers() {
        if used.register().full_register() != register {
            continue;
        }
        match used.access() {
            // A part of it may remain.
            OpAccess::Write if used.register().size() >= 4 => result = Use::Overwrites,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess | OpAccess::None => {}
            _ => return Use::Reads,
        }
    }
    result
}

pub(crate) fn instruction_at<'code>(
    code_at: &dyn Fn(u64) -> Option<&'code [u8]>,
    at: u64,
) -> Option<Instruction> {
    let instruction = decode_first(code_at(at)?, at);
    (!instruction.is_invalid()).then_some(instruction)
}

pub(crate) const fn is_dead_at_return(register: Register) -> bool {
    use Register::{R8, R9, R10, R11, RCX, RDI, RSI};
    matches!(register, RCX | RSI | RDI | R8 | R9 | R10 | R11)
}

pub(crate) const fn is_dead_at_call(register: Register) -> bool {
    use Register::{R10, R11, RAX};
    // A variadic function gets a count in a part of `rax`, which is set for it.
    matches!(register, RAX | R10 | R11)
}

#[cfg(test)]
mod tests;
