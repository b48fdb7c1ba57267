//! Natural loops of a function: the code from which control comes back to the loop's first instruction. Compilers place
//! code of no loop between its ends, and seldom executed code behind the rest, whose jump back is no loop.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};

use super::{exits::Part, instruction::decode};

/// Returns the instructions of the loop from `first` to the jump back at `last`; none if control does not come from one
/// to the other. A jump whose targets are not known counts as an end of the function: what is found is certain.
#[must_use]
pub fn body(parts: &[Part<'_>], first: u64, last: u64) -> BTreeSet<u64> {
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for instruction in parts.iter().flat_map(|part| decode(part.code, part.start)) {
        for after in successors(&instruction) {
            before.entry(after).or_default().push(instruction.ip());
        }
    }
    let mut known = BTreeSet::from([first, last]);
    let mut todo: Vec<u64> = if first == last { Vec::new() } else { vec![last] };
    let mut is_loop = first == last;
    while let Some(at) = todo.pop() {
        for &from in before.get(&at).into_iter().flatten() {
            is_loop |= from == first;
            if known.insert(from) {
                todo.push(from);
            }
        }
    }
    if is_loop { known } else { BTreeSet::new() }
}

fn successors(instruction: &Instruction) -> impl Iterator<Item = u64> {
    let next = instruction.next_ip();
    let target = || Some(instruction.near_branch_target());
    let (one, other) = match instruction.flow_control() {
        FlowControl::Return | FlowControl::Exception | FlowControl::IndirectBranch => (None, None),
        FlowControl::UnconditionalBranch => (target(), None),
        FlowControl::ConditionalBranch => (target(), Some(next)),
        _ => (None, Some(next)),
    };
    one.into_iter().chain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &[u8], first: u64, last: u64) -> Vec<u64> {
        body(&[Part { start: 0, code }], first, last).into_iter().collect()
    }

    #[test]
    fn code_behind_the_return_is_in_no_loop() {
        // nop; jne to the nop; ret
        assert_eq!(of(&[0x90, 0x75, 0xfd, 0xc3], 0, 1), [0, 1]);
        // je to the end; nop; ret; the end: jmp to the nop
        assert_eq!(of(&[0x74, 2, 0x90, 0xc3, 0xeb, 0xfc], 2, 4), [0; 0]);
        // jmp to itself
        assert_eq!(of(&[0xeb, 0xfe], 0, 0), [0]);
    }

    #[test]
    fn code_between_its_ends_that_does_not_come_back_is_in_no_loop() {
        // 0: nop; 1: je 5; 3: jmp 8; 5: nop; 6: jmp 12; 8: nop; 9: jne 0; 11: ret; 12: ret
        let code = [0x90, 0x74, 2, 0xeb, 3, 0x90, 0xeb, 4, 0x90, 0x75, 0xf5, 0xc3, 0xc3];
        assert_eq!(of(&code, 0, 9), [0, 1, 3, 8, 9]);
    }

    #[test]
    fn a_jump_without_known_targets_is_an_end() {
        // nop; jmp rax; nop; jmp to the first; ret
        assert_eq!(of(&[0x90, 0xff, 0xe0, 0x90, 0xeb, 0xfa, 0xc3], 0, 4), [0; 0]);
        // je behind it; jmp [rip]; nop; jmp to the first nop, through which no loop goes
        assert_eq!(of(&[0x74, 7, 0x90, 0xff, 0x25, 0, 0, 0, 0, 0x90, 0xeb, 0xf6], 2, 10), [0; 0]);
    }
}
