//! Loops of a function: jumps back to code from which control comes to them again. Compilers place seldom executed code
//! behind the rest, and its jump back is no loop.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};

use super::{exits::Part, instruction::decode};

/// Returns whether control can come from one place to another one within a function. A jump whose targets are not known
/// may lead anywhere.
#[must_use]
pub fn comes_to(parts: &[Part<'_>], from: u64, to: u64) -> bool {
    let decoded = parts.iter().flat_map(|part| decode(part.code, part.start));
    let instructions: BTreeMap<u64, Instruction> = decoded.map(|one| (one.ip(), one)).collect();
    let (mut todo, mut known) = (vec![from], BTreeSet::from([from]));
    while let Some(at) = todo.pop() {
        if at == to {
            return true;
        }
        let Some(instruction) = instructions.get(&at) else { continue };
        let next = instruction.next_ip();
        let after: &[u64] = match instruction.flow_control() {
            FlowControl::Return | FlowControl::Exception => &[],
            FlowControl::UnconditionalBranch => &[instruction.near_branch_target()],
            FlowControl::ConditionalBranch => &[instruction.near_branch_target(), next],
            FlowControl::IndirectBranch => return true,
            _ => &[next],
        };
        todo.extend(after.iter().filter(|&&at| known.insert(at)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_behind_the_return_is_in_no_loop() {
        let comes = |code: &[u8], from, to| comes_to(&[Part { start: 0, code }], from, to);
        // nop; jne to the nop; ret
        assert!(comes(&[0x90, 0x75, 0xfd, 0xc3], 0, 1));
        // je to the end; nop; ret; the end: jmp to the nop
        assert!(!comes(&[0x74, 2, 0x90, 0xc3, 0xeb, 0xfc], 2, 4));
        // jmp rax; ret
        assert!(comes(&[0xff, 0xe0, 0xc3], 0, 2));
    }
}
