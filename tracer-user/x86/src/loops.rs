//! Natural loops of a function: the code from which control comes back to the loop's first instruction. Compilers
//! place foreign code between the ends of a loop, and seldom executed code behind the rest, whose jump back is no loop.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};

use super::{exits::Part, instruction::decode, jump_tables::JumpTables};

/// Control flow of a function, in which loops are looked for.
#[derive(Debug)]
pub struct Flow {
    before: BTreeMap<u64, Vec<u64>>,
    after: BTreeMap<u64, Vec<u64>>,
}

impl Flow {
    /// Finds where control goes in a function. A jump through the table of a `switch` leads to its cases, of which
    /// `word_at` returns four bytes that the file has at an address, and no control comes back from a call that `ends`
    /// the program or thread. Any other jump without known targets counts as an end of the function: what is found is
    /// certain.
    #[must_use]
    pub fn new(
        parts: &[Part<'_>],
        word_at: &dyn Fn(u64) -> Option<u32>,
        ends: &dyn Fn(u64) -> bool,
    ) -> Self {
        let instructions: Vec<Instruction> =
            parts.iter().flat_map(|part| decode(part.code, part.start)).collect();
        let tables = JumpTables::new(&instructions);
        let mut flow = Self { before: BTreeMap::new(), after: BTreeMap::new() };
        for (index, instruction) in instructions.iter().enumerate() {
            if ends(instruction.ip()) {
                continue;
            }
            let is_indirect = instruction.flow_control() == FlowControl::IndirectBranch;
            let cases = is_indirect.then(|| tables.targets(index, word_at)).flatten();
            for next in successors(instruction).chain(cases.unwrap_or_default()) {
                flow.before.entry(next).or_default().push(instruction.ip());
                flow.after.entry(instruction.ip()).or_default().push(next);
            }
        }
        flow
    }

    /// Returns the instructions of the loop from `first` to the jump back at `last`; none if control does not come from
    /// one to the other. Each loop has a jump back to the lowest of its instructions: what comes there by lower ones is
    /// a loop around it.
    #[must_use]
    pub fn body(&self, first: u64, last: u64) -> BTreeSet<u64> {
        // A loop may be entered behind its first instruction, at its condition: what comes before it reaches the jump
        // as well, but not from the first instruction.
        let reached = reach(&self.after, first, last, first);
        if reached.contains(&last) {
            reach(&self.before, last, first, first).intersection(&reached).copied().collect()
        } else {
            BTreeSet::new()
        }
    }
}

/// Returns the addresses that the edges lead to from one address, itself included, without going on at the other one,
/// and never below the lowest one.
fn reach(edges: &BTreeMap<u64, Vec<u64>>, from: u64, until: u64, lowest: u64) -> BTreeSet<u64> {
    let mut known = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(at) = todo.pop() {
        let next = edges.get(&at).filter(|_| at != until);
        let next = next.into_iter().flatten().filter(|&&next| next >= lowest);
        todo.extend(next.filter(|&&next| known.insert(next)));
    }
    known
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
        let flow = Flow::new(&[Part { start: 0, code }], &|_| None, &|_| false);
        flow.body(first, last).into_iter().collect()
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
    fn a_loop_around_code_behind_the_rest_makes_no_loop_of_its_jump_back() {
        // 0: nop; 1: je 7; 3: nop; 4: jne 0; 6: ret; 7: nop; 8: jmp 3
        let code = [0x90, 0x74, 4, 0x90, 0x75, 0xfa, 0xc3, 0x90, 0xeb, 0xf9];
        assert_eq!(of(&code, 3, 8), [0; 0]);
        assert_eq!(of(&code, 0, 4), [0, 1, 3, 4, 7, 8]);
    }

    #[test]
    fn code_between_its_ends_that_does_not_come_back_is_in_no_loop() {
        // 0: nop; 1: je 5; 3: jmp 8; 5: nop; 6: jmp 12; 8: nop; 9: jne 0; 11: ret; 12: ret
        let code = [0x90, 0x74, 2, 0xeb, 3, 0x90, 0xeb, 4, 0x90, 0x75, 0xf5, 0xc3, 0xc3];
        assert_eq!(of(&code, 0, 9), [0, 1, 3, 8, 9]);
    }

    #[test]
    fn code_before_a_loop_that_is_entered_at_its_condition_is_not_in_it() {
        // 0: nop; 1: jmp 4; 3: nop; 4: nop; 5: jne 3; 7: ret
        assert_eq!(of(&[0x90, 0xeb, 1, 0x90, 0x90, 0x75, 0xfc, 0xc3], 3, 5), [3, 4, 5]);
    }

    #[test]
    fn a_call_that_does_not_come_back_is_an_end() {
        // 0: nop; 1: call 0; 6: jmp to the nop
        let code = [0x90, 0xe8, 0xfa, 0xff, 0xff, 0xff, 0xeb, 0xf8];
        assert_eq!(of(&code, 0, 6), [0, 1, 6]);
        let parts = [Part { start: 0, code: &code }];
        let flow = Flow::new(&parts, &|_| None, &|at| at == 1);
        assert_eq!(flow.body(0, 6), BTreeSet::new());
    }

    #[test]
    fn a_jump_without_known_targets_is_an_end() {
        // nop; jmp rax; nop; jmp to the first; ret
        assert_eq!(of(&[0x90, 0xff, 0xe0, 0x90, 0xeb, 0xfa, 0xc3], 0, 4), [0; 0]);
        // je behind it; jmp [rip]; nop; jmp to the first nop, through which no loop goes
        assert_eq!(of(&[0x74, 7, 0x90, 0xff, 0x25, 0, 0, 0, 0, 0x90, 0xeb, 0xf6], 2, 10), [0; 0]);
    }

    #[test]
    fn a_loop_goes_through_the_cases_of_a_switch() {
        // 0: lea rdx, [rip + 0x100]; 7: cmp eax, 1; 10: ja 32; 12: movsxd rax, [rdx + rax * 4]; 16: add rax, rdx;
        // 19: jmp rax; 21: nop; 22: jmp 7; 24: ret; 32: ret
        let mut code = vec![0x48, 0x8d, 0x15, 0, 1, 0, 0, 0x83, 0xf8, 1, 0x77, 20];
        code.extend([0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0, 0x90, 0xeb, 0xef]);
        code.resize(33, 0xc3);
        let word_at = |address: u64| {
            let targets = [21, 24];
            let number = usize::try_from(address.checked_sub(0x107)? / 4).ok()?;
            Some((targets.get(number)? - 0x107_i32).cast_unsigned())
        };
        let of =
            |word_at| Flow::new(&[Part { start: 0, code: &code }], word_at, &|_| false).body(7, 22);
        assert_eq!(Vec::from_iter(of(&word_at)), [7, 10, 12, 16, 19, 21, 22]);
        assert_eq!(of(&|_| None), BTreeSet::new(), "the table is not in the file");
    }
}
