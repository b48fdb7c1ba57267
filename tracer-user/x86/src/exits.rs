//! The instructions by which control can leave a function: returns and tail jumps, in all parts that a compiler has
//! made of it. Reads machine code only, without files or processes.

use std::collections::HashSet;

use abi::FlagCondition;
use iced_x86::{FlowControl, Instruction};
use serde::{Deserialize, Serialize};

use super::indirect_jump::{Destination, Policy, destination};
use super::instruction::{decode, decode_first, is_direct_jump, jump_condition};

/// A stretch of a function's code.
#[derive(Clone, Copy, Debug)]
pub struct Part<'code> {
    /// The link-time address of its first byte.
    pub start: u64,
    /// Machine code.
    pub code: &'code [u8],
}

impl Part<'_> {
    /// Returns whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.start).is_some_and(|offset| offset < self.code.len() as u64)
    }
}

/// An instruction by which control may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Link-time address.
    pub address: u64,
    /// Condition for leaving.
    pub leaves: Leaves,
    /// Target of a jump, if the instruction has it.
    pub target: Option<u64>,
}

impl Exit {
    /// Returns true if this is a jump to a jump back into the function, so that control never leaves.
    #[must_use]
    pub fn comes_back<'code>(
        &self,
        parts: &[Part<'_>],
        entry: u64,
        code_at: &dyn Fn(u64) -> Option<&'code [u8]>,
    ) -> bool {
        let Some((target, code)) =
            self.target.filter(|&target| target != entry).and_then(|at| Some((at, code_at(at)?)))
        else {
            return false;
        };
        let jump = decode_first(code, target);
        let back = jump.near_branch_target();
        jump.is_jmp_short_or_near() && back != entry && parts.iter().any(|part| part.contains(back))
    }
}

/// Condition under which an instruction leaves the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaves {
    /// Always: a jump to other code.
    Always,
    /// The flags decide: a conditional jump to other code.
    If(FlagCondition),
    /// The frame is gone already. True of a return; for a jump with an unknown target it distinguishes a tail
    /// call from a jump within the function.
    WithoutFrame,
    /// Always: a tail call of a function that releases a lock on behalf of this one.
    IntoRelease,
}

/// Reason why the exits of a function are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ExitsError {
    /// Bytes that are no instructions.
    #[error("the bytes at {0:#x} are no instruction")]
    Invalid(u64),
    /// Overlapping instructions, or one that crosses the function's end: its data is not known.
    #[error(
        "its code cannot be distinguished from data: a jump leads into an instruction at {0:#x}"
    )]
    Overlapping(u64),
}

/// Finds the exits of a function, by address, from all of its parts.
///
/// All bytes are taken for instructions, one after the other, so that what only a jump table reaches is found too.
/// Jumps between the parts are none that leave; one to the function's own start is a call of itself.
///
/// # Errors
///
/// When the code cannot be taken apart for certain: a probe in the middle of an instruction would change it.
pub fn exits(parts: &[Part<'_>], entry: u64) -> Result<Vec<Exit>, ExitsError> {
    let mut starts = HashSet::new();
    let mut jumps = Vec::new();
    let mut exits = Vec::new();
    for part in parts {
        let mut before: Vec<Instruction> = Vec::new();
        for instruction in decode(part.code, part.start) {
            let address = instruction.ip();
            if instruction.is_invalid() {
                return Err(ExitsError::Invalid(address));
            }
            starts.insert(address);
            if let Some(leaves) = leaves(&instruction, &before, parts, entry) {
                let target = is_direct_jump(&instruction).then(|| instruction.near_branch_target());
                exits.push(Exit { address, leaves, target });
            }
            if is_direct_jump(&instruction) {
                jumps.push(instruction.near_branch_target());
            }
            before.push(instruction);
        }
    }
    let inside = |&target: &u64| parts.iter().any(|part| part.contains(target));
    if let Some(target) = jumps.into_iter().filter(inside).find(|target| !starts.contains(target)) {
        return Err(ExitsError::Overlapping(target));
    }
    exits.sort_by_key(|exit| exit.address);
    exits.dedup_by_key(|exit| exit.address);
    Ok(exits)
}

fn leaves(
    instruction: &Instruction,
    before: &[Instruction],
    parts: &[Part<'_>],
    entry: u64,
) -> Option<Leaves> {
    match instruction.flow_control() {
        FlowControl::Return => Some(Leaves::WithoutFrame),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            if is_direct_jump(instruction) =>
        {
            let target = instruction.near_branch_target();
            if target != entry && parts.iter().any(|part| part.contains(target)) {
                return None;
            }
            Some(jump_condition(instruction).map_or(Leaves::Always, Leaves::If))
        }
        FlowControl::IndirectBranch
            if destination(instruction, before, Policy::Exits) == Destination::Inside =>
        {
            None
        }
        // A far jump or a system return is as good as unknown.
        FlowControl::IndirectBranch | FlowControl::UnconditionalBranch => {
            Some(Leaves::WithoutFrame)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8]) -> Vec<(u64, Leaves)> {
        let part = Part { start: 0x1000, code };
        let exits = exits(&[part], 0x1000).unwrap();
        exits.into_iter().map(|exit| (exit.address - 0x1000, exit.leaves)).collect()
    }

    #[test]
    fn returns_and_jumps_to_other_code_leave() {
        // test edi,edi; je +1; ret; jmp +0x100
        let code = [0x85, 0xff, 0x74, 1, 0xc3, 0xe9, 0, 1, 0, 0];
        assert_eq!(found(&code), [(4, Leaves::WithoutFrame), (5, Leaves::Always)]);
        // jne +0x100; ret
        let code = [0x0f, 0x85, 0, 1, 0, 0, 0xc3];
        assert_eq!(
            found(&code),
            [(0, Leaves::If(FlagCondition::NOT_EQUAL)), (6, Leaves::WithoutFrame)]
        );
    }

    #[test]
    fn a_jump_to_the_own_start_is_a_call() {
        // nop; jmp -3
        assert_eq!(found(&[0x90, 0xeb, 0xfd]), [(1, Leaves::Always)]);
        // nop; nop; jmp -3: a loop
        assert_eq!(found(&[0x90, 0x90, 0xeb, 0xfd]), []);
    }

    #[test]
    fn a_part_elsewhere_belongs_to_the_function() {
        // je to 0x2000; ret   and   0x2000: jmp to 0x1006
        let hot = [0x0f, 0x84, 0xfa, 0xf, 0, 0, 0xc3];
        let cold = [0xe9, 0x01, 0xf0, 0xff, 0xff];
        let parts = [Part { start: 0x1000, code: &hot }, Part { start: 0x2000, code: &cold }];
        assert_eq!(
            exits(&parts, 0x1000),
            Ok(vec![Exit { address: 0x1006, leaves: Leaves::WithoutFrame, target: None }])
        );
        assert_eq!(found(&hot)[0], (0, Leaves::If(FlagCondition::EQUAL)));
    }

    #[test]
    fn a_jump_to_a_jump_back_does_not_leave() {
        // jne +0x100; nop; ret
        let code = [0x0f, 0x85, 0, 1, 0, 0, 0x90, 0xc3];
        let parts = [Part { start: 0x1000, code: &code }];
        let exit = exits(&parts, 0x1000).unwrap()[0];
        let comes_back = |code: &'static [u8]| {
            exit.comes_back(&parts, 0x1000, &|at| (at == 0x1106).then_some(code))
        };
        assert!(comes_back(&[0xe9, 0xfb, 0xfe, 0xff, 0xff]), "jmp to the nop");
        assert!(!comes_back(&[0xe9, 0xf5, 0xfe, 0xff, 0xff]), "jmp to the start: a call");
        assert!(!comes_back(&[0xe9, 0, 0, 0, 0]), "jmp elsewhere");
        assert!(!comes_back(&[0x90]), "nop");
        assert!(!comes_back(&[]));
    }

    #[test]
    fn jump_tables_stay_inside_and_other_indirect_jumps_may_leave() {
        // movsxd rax,[rdx+rax*4]; add rax,rdx; jmp rax
        let table = [0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0];
        assert_eq!(found(&table), []);
        // jmp [rax*8+0x404000]
        assert_eq!(found(&[0xff, 0x24, 0xc5, 0, 0x40, 0x40, 0]), []);
        assert_eq!(found(&[0xff, 0xe0]), [(0, Leaves::WithoutFrame)], "jmp rax");
        let through_got = [0xff, 0x25, 0, 0, 0, 0];
        assert_eq!(found(&through_got), [(0, Leaves::WithoutFrame)]);
    }

    #[test]
    fn code_that_may_be_data_is_refused() {
        let refused = |code: &[u8]| exits(&[Part { start: 0, code }], 0).unwrap_err();
        assert_eq!(refused(&[0x90, 0x06]), ExitsError::Invalid(1));
        // jmp into the immediate of mov eax,0
        assert_eq!(refused(&[0xeb, 1, 0xb8, 0, 0, 0, 0, 0xc3]), ExitsError::Overlapping(3));
    }
}
