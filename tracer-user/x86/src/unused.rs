//! Values in registers that no code uses: the result of an exchange that only stores.

use std::collections::HashSet;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use crate::commuting::{Use, instruction_at, is_dead_at_call, is_dead_at_return, register_use};

/// Maximal number of instructions that are looked at, on all ways together.
const MAX_INSTRUCTIONS: usize = 96;

/// Returns true if the value in a register is certainly unused in the code of a function from an address on, which ends
/// before `end` where that is known: a call there does not return.
#[must_use]
pub fn is_unused<'code>(
    code_at: &dyn Fn(u64) -> Option<&'code [u8]>,
    at: u64,
    end: Option<u64>,
    register: Register,
) -> bool {
    let mut info = InstructionInfoFactory::new();
    let mut seen = HashSet::new();
    // Code that is not optimised keeps values in its frame, and takes all of a result from there.
    let mut ways = vec![(at, false)];
    while let Some((at, is_result_from_frame)) = ways.pop() {
        if !seen.insert((at, is_result_from_frame)) {
            continue;
        }
        if seen.len() > MAX_INSTRUCTIONS {
            return false;
        }
        let Some(instruction) = instruction_at(code_at, at) else { return false };
        let sets_result = instruction.op0_register().full_register() == Register::RAX;
        let from_frame =
            if sets_result { is_load_from_frame(&instruction) } else { is_result_from_frame };
        match register_use(&mut info, &instruction, register) {
            Use::Reads => return false,
            Use::Overwrites => continue,
            Use::None => {}
        }
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next => ways.push((next, from_frame)),
            FlowControl::UnconditionalBranch => {
                ways.push((instruction.near_branch_target(), from_frame));
            }
            FlowControl::ConditionalBranch => {
                ways.extend([next, instruction.near_branch_target()].map(|at| (at, from_frame)));
            }
            FlowControl::Return => {
                let is_dead =
                    is_dead_at_return(register) || register == Register::RDX && from_frame;
                if !is_dead {
                    return false;
                }
            }
            FlowControl::Call | FlowControl::IndirectCall if is_dead_at_call(register) => {}
            FlowControl::Call | FlowControl::IndirectCall if is_preserved(register) => {
                if end != Some(next) {
                    ways.push((next, from_frame));
                }
            }
            // The program stops there.
            FlowControl::Exception => {}
            _ => return false,
        }
    }
    true
}

fn is_load_from_frame(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RBP
        && instruction.memory_index() == Register::None
}

/// Returns whether functions leave a register as it is, whoever calls them (System V ABI for x86-64, 3.2.1).
const fn is_preserved(register: Register) -> bool {
    use Register::{R12, R13, R14, R15, RBP, RBX};
    matches!(register, RBX | RBP | R12 | R13 | R14 | R15)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;
    const RET: &[u8] = &[0xc3];
    const CALL: &[u8] = &[0xe8, 0, 1, 0, 0];
    const XOR_EAX: &[u8] = &[0x31, 0xc0];
    /// `mov [rdi], rax`.
    const STORE_RAX: &[u8] = &[0x48, 0x89, 0x07];
    const POP_RBP: &[u8] = &[0x5d];
    /// `je` over two bytes.
    const JE: &[u8] = &[0x74, 2];

    fn unused(code: &[&[u8]], register: Register) -> bool {
        let code = code.concat();
        let code_at = |at: u64| code.get(usize::try_from(at.checked_sub(START)?).ok()?..);
        is_unused(&code_at, START, Some(START + code.len() as u64), register)
    }

    #[test]
    fn a_register_is_unused_when_it_is_overwritten_or_dead() {
        assert!(unused(&[XOR_EAX, RET], Register::RAX));
        assert!(unused(&[RET], Register::RCX));
        assert!(!unused(&[RET], Register::RAX));
        assert!(!unused(&[STORE_RAX, XOR_EAX, RET], Register::RAX));
        assert!(!unused(&[CALL], Register::RDI) && unused(&[CALL], Register::RAX));
        assert!(!unused(&[], Register::RAX));
        // A pair of results: the second half is not used where the first one comes from the frame.
        assert!(!unused(&[XOR_EAX, RET], Register::RDX));
        let from_frame: [&[u8]; 3] = [&[0x48, 0x8b, 0x45, 0xf8], POP_RBP, RET];
        assert!(unused(&from_frame, Register::RDX), "mov rax, [rbp-8]");
        assert!(!unused(&[from_frame[0], XOR_EAX, RET], Register::RDX));
    }

    #[test]
    fn a_register_is_unused_when_it_is_so_on_all_ways() {
        let both = [JE, POP_RBP, RET, POP_RBP, RET];
        assert!(unused(&both, Register::RBP));
        let used: &[u8] = &[0x89, 0x2f, 0xc3]; // mov [rdi], ebp; ret
        assert!(!unused(&[JE, POP_RBP, RET, used], Register::RBP));
        assert!(!unused(&[JE, POP_RBP, RET, RET], Register::RAX));
        let endless: &[u8] = &[0xeb, 0xfe];
        assert!(unused(&[JE, POP_RBP, RET, endless], Register::RBP));
    }

    #[test]
    fn a_preserved_register_is_as_it_was_behind_a_call_that_returns() {
        assert!(unused(&[CALL, POP_RBP, RET], Register::RBP));
        assert!(!unused(&[CALL, &[0x89, 0xe8], RET], Register::RBP), "mov eax, ebp");
        // The last call does not return, as of a panic.
        assert!(unused(&[JE, POP_RBP, RET, CALL], Register::RBP));
        assert!(!unused(&[JE, POP_RBP, RET, CALL], Register::RDI), "it may be an argument");
        let code = CALL;
        let code_at = |at: u64| code.get(usize::try_from(at.checked_sub(START)?).ok()?..);
        assert!(!is_unused(&code_at, START, None, Register::RBP), "where it ends is not known");
    }
}
