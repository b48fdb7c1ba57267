//! Code of a function that control does not return from: whatever it does, it ends in a trap or in a call that
//! never returns, as failed assertions, panics and exits do. Reads machine code; which calls never return is
//! asked of the caller.

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, Mnemonic};

/// Marks the instructions of a part of a function from which all paths end in a trap or in a call that does not
/// return. `never_returns` says so of the call at an instruction. Control that leaves the part by a jump goes
/// on elsewhere.
pub(crate) fn dead_ends(
    instructions: &[Instruction],
    never_returns: impl Fn(&Instruction) -> bool,
) -> Vec<bool> {
    let places: HashMap<u64, usize> =
        (0..).zip(instructions).map(|(place, instruction)| (instruction.ip(), place)).collect();
    let mut dead = vec![false; instructions.len()];
    loop {
        let mut changed = false;
        // Most of it follows from what comes after.
        for (place, instruction) in instructions.iter().enumerate().rev() {
            if dead[place] {
                continue;
            }
            let at = |address: u64| places.get(&address).is_some_and(|&place| dead[place]);
            let next = || at(instruction.next_ip());
            let is_dead = match instruction.flow_control() {
                FlowControl::Next => next(),
                FlowControl::Call | FlowControl::IndirectCall => {
                    // The code after a call that does not return belongs to another function, or is padding.
                    let ends = place + 1 == instructions.len();
                    ends || never_returns(instruction) || next()
                }
                FlowControl::UnconditionalBranch => at(instruction.near_branch_target()),
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    at(instruction.near_branch_target()) && next()
                }
                // `ud2` and `hlt`; a debugger goes on after an `int3`.
                FlowControl::Exception | FlowControl::Interrupt => match instruction.mnemonic() {
                    Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 | Mnemonic::Hlt => true,
                    _ => next(),
                },
                FlowControl::Return | FlowControl::IndirectBranch => false,
            };
            if is_dead {
                dead[place] = true;
                changed = true;
            }
        }
        if !changed {
            return dead;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    /// Offsets of the instructions that are dead ends; calls of offset 0x100 do not return.
    fn dead(code: &[u8]) -> Vec<u64> {
        let instructions: Vec<_> = decode(code, 0).collect();
        let dead = dead_ends(&instructions, |call| call.near_branch_target() == 0x100);
        instructions.iter().zip(dead).filter(|(_, dead)| *dead).map(|(one, _)| one.ip()).collect()
    }

    #[test]
    fn a_failed_assertion_is_one() {
        // test edi,edi; je +1; ret; call …; call 0x100; ret
        let code = [0x85, 0xff, 0x74, 1, 0xc3, 0xe8, 0, 0, 0, 0, 0xe8, 0xf1, 0, 0, 0, 0xc3];
        assert_eq!(dead(&code), [5, 10]);
    }

    #[test]
    fn a_trap_is_one_and_so_is_what_jumps_to_it() {
        // je +4; call …(1); jmp +1; ret; nop; ud2: the call is before the jump to the trap
        let code = [0x74, 7, 0xe8, 0, 0, 0, 0, 0xeb, 1, 0xc3, 0x90, 0x0f, 0x0b];
        assert_eq!(dead(&code), [2, 7, 10, 11]);
    }

    #[test]
    fn a_call_at_the_end_does_not_return() {
        // je +1; ret; call …
        assert_eq!(dead(&[0x74, 1, 0xc3, 0xe8, 0, 0, 0, 0]), [3]);
    }

    #[test]
    fn loops_and_returns_are_none() {
        // call …; jmp -7
        assert_eq!(dead(&[0xe8, 0, 0, 0, 0, 0xeb, 0xf9]), [] as [u64; 0]);
        // call …; je +2; ud2; ret
        assert_eq!(dead(&[0xe8, 0, 0, 0, 0, 0x74, 2, 0x0f, 0x0b, 0xc3]), [7]);
        // int3; ret
        assert_eq!(dead(&[0xcc, 0xc3]), [] as [u64; 0]);
    }
}
