//! Decoding, and properties of single instructions and registers that several analyses ask for.

use abi::FlagCondition;
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, OpAccess, OpKind, Register,
};

/// Processor's number of `rax`.
pub const RAX: u8 = 0;
/// Processor's number of `rcx`.
pub const RCX: u8 = 1;
/// Processor's number of `rsp`.
pub const RSP: u8 = 4;
/// Processor's number of `rbp`.
pub const RBP: u8 = 5;
/// Registers of arguments in their order, by the processor's numbers (System V ABI, AMD64 supplement, 3.2.3).
pub const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];

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

/// Returns the condition of a conditional jump by the flags.
#[must_use]
pub fn jump_condition(jump: &Instruction) -> Option<FlagCondition> {
    if jump.is_jcc_short_or_near() { condition(jump.condition_code()) } else { None }
}

fn condition(code: ConditionCode) -> Option<FlagCondition> {
    // `iced` numbers them as the processor does, after `None`.
    (code as u8).checked_sub(1).map(FlagCondition::new)
}

#[cfg(test)]
mod tests {
    use iced_x86::RflagsBits;

    use super::*;

    #[test]
    fn numbers_are_the_processors() {
        let surviving: Vec<u8> = (0..16).filter(|&number| survives_call(number)).collect();
        assert_eq!(surviving, [3, RSP, RBP, 12, 13, 14, 15]);
        assert_eq!(Register::RDI.number(), usize::from(ARGUMENTS[0]));
    }

    /// Conditions have the names of the Intel SDM, volume 1, appendix B.
    fn holds(code: ConditionCode, flags: u32) -> bool {
        let is_set = |bit: u32| flags & bit != 0;
        let (carry, zero, sign) =
            (is_set(RflagsBits::CF), is_set(RflagsBits::ZF), is_set(RflagsBits::SF));
        let (overflow, parity) = (is_set(RflagsBits::OF), is_set(RflagsBits::PF));
        match code {
            ConditionCode::None => unreachable!("each jump has one"),
            ConditionCode::o => overflow,
            ConditionCode::no => !overflow,
            ConditionCode::b => carry,
            ConditionCode::ae => !carry,
            ConditionCode::e => zero,
            ConditionCode::ne => !zero,
            ConditionCode::be => carry || zero,
            ConditionCode::a => !carry && !zero,
            ConditionCode::s => sign,
            ConditionCode::ns => !sign,
            ConditionCode::p => parity,
            ConditionCode::np => !parity,
            ConditionCode::l => sign != overflow,
            ConditionCode::ge => sign == overflow,
            ConditionCode::le => zero || sign != overflow,
            ConditionCode::g => !zero && sign == overflow,
        }
    }

    #[test]
    fn all_conditions_hold_for_the_flags_by_which_jumps_are_taken() {
        // The decoder's bits of flags, and the processor's.
        let bits = [
            (RflagsBits::CF, 0),
            (RflagsBits::PF, 2),
            (RflagsBits::ZF, 6),
            (RflagsBits::SF, 7),
            (RflagsBits::OF, 11),
        ];
        for number in 0..16 {
            let jump = decode_first(&[0x70 + number, 0], 0);
            let condition = jump_condition(&jump).unwrap();
            assert_eq!(condition.number(), number);
            let mut other = jump;
            other.negate_condition_code();
            let opposite = jump_condition(&other).unwrap();
            for chosen in 0_u32..32 {
                let set = bits.iter().zip(0..).filter(|(_, index)| chosen >> index & 1 != 0);
                let (decoders, processors) = set
                    .fold((0, 0), |(ours, theirs), (&(bit, place), _)| {
                        (ours | bit, theirs | 1_u64 << place)
                    });
                let expected = holds(jump.condition_code(), decoders);
                assert_eq!(condition.holds(processors), expected, "{number}, {processors:#x}");
                assert_eq!(opposite.holds(processors), !expected, "{number}, {processors:#x}");
                // No other flag counts.
                for (bit, place) in bits.iter().filter(|(bit, _)| jump.rflags_read() & bit == 0) {
                    let changed = processors ^ 1 << place;
                    assert_eq!(condition.holds(changed), expected, "{number}, {bit:#x}");
                }
                let unread = !bits.iter().fold(0_u64, |all, (_, place)| all | 1 << place);
                assert_eq!(condition.holds(processors | unread), expected, "{number}");
            }
        }
        // jmp, jrcxz
        assert_eq!(jump_condition(&decode_first(&[0xeb, 0], 0)), None);
        assert_eq!(jump_condition(&decode_first(&[0xe3, 0], 0)), None);
    }
}
