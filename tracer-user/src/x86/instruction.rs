//! Decoding, and properties of single instructions and registers that several analyses ask for.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, OpAccess, OpKind, Register,
};

/// Maximum distance of the load from a jump table before the indirect jump, in instructions.
pub(super) const TABLE_DISTANCE: usize = 12;

/// Processor's number of `rax`.
pub const RAX: u8 = 0;
/// Processor's number of `rcx`.
pub const RCX: u8 = 1;
/// Processor's number of `rsp`.
pub const RSP: u8 = 4;
/// Processor's number of `rbp`.
pub const RBP: u8 = 5;
/// Registers of the first three arguments, `rdi`, `rsi` and `rdx`, by the processor's numbers.
pub const ARGUMENTS: [u8; 3] = [7, 6, 2];

/// Registers that a function restores before it returns, besides the stack pointer (System V ABI, AMD64 supplement,
/// 3.2.1).
pub const CALLEE_SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Returns true if a register has its value after a call, by the processor's number.
pub(super) fn survives_call(number: u8) -> bool {
    number == RSP || CALLEE_SAVED.iter().any(|saved| saved.number() == usize::from(number))
}

/// Decodes code from its first instruction on, which lies at `address`.
pub fn decode(code: &[u8], address: u64) -> impl Iterator<Item = Instruction> + '_ {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter()
}

/// Decodes the first instruction of some code, which lies at `address`.
#[must_use]
pub fn decode_first(code: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode()
}

/// Returns true if a call or jump has its target in the instruction.
#[must_use]
pub fn is_direct(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// Returns true if an instruction is a jump with its target in it.
#[must_use]
pub fn is_direct_jump(instruction: &Instruction) -> bool {
    is_direct(instruction)
        && matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
        )
}

/// Returns true if an access may write.
#[must_use]
pub fn may_write(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None)
}

/// Returns the number of a condition in the processor's encoding, 0 to 15.
#[must_use]
pub fn condition_number(code: ConditionCode) -> Option<u8> {
    // `iced` numbers them as the processor does, after `None`.
    (code as u8).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_processors() {
        assert_eq!(condition_number(ConditionCode::None), None);
        assert_eq!(condition_number(ConditionCode::o), Some(0));
        assert_eq!(condition_number(ConditionCode::g), Some(15));
        let surviving: Vec<u8> = (0..16).filter(|&number| survives_call(number)).collect();
        assert_eq!(surviving, [3, RSP, RBP, 12, 13, 14, 15]);
        assert_eq!(Register::RDI.number(), usize::from(ARGUMENTS[0]));
    }
}
