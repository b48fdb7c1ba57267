//! The straight lines that a function's code consists of: stretches that control enters at the first
//! instruction only, and in which nothing orders memory but the first.

use std::{collections::HashSet, ops::Range};

use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::instruction::{RSP, decode, is_direct};
use super::{
    control_flow::writes,
    dataflow::{Dataflow, ValueOrigin},
    exits::Part,
};
use super::{
    operands::{Unsupported, is_fence, is_locked, lets_stack_escape},
    symbolic::{AccessLocation, Line, Located},
};

/// A function's code, of which it is known where control goes.
pub struct BasicBlocks {
    values: Dataflow,
    escapes: bool,
    downwards: bool,
}

impl BasicBlocks {
    /// Looks into a function, from all of its parts, the start first; `None` where it is not known where
    /// control goes.
    pub fn analyze(parts: &[Part<'_>], word_at: &dyn Fn(u64) -> Option<u32>) -> Option<Self> {
        if overlaps(parts) {
            return None;
        }
        let values = Dataflow::analyze(parts, &|_| false, word_at)?;
        let escapes = lets_stack_escape(values.instructions());
        let turns = |instruction: &Instruction| instruction.mnemonic() == Mnemonic::Std;
        let downwards = values.instructions().iter().any(turns);
        let code = Self { values, escapes, downwards };
        code.is_known(parts).then_some(code)
    }

    /// The instructions, and the values of registers at each.
    #[must_use]
    pub const fn dataflow(&self) -> &Dataflow {
        &self.values
    }

    /// Returns true if every jump leads to the start of an instruction or certainly out of the function.
    fn is_known(&self, parts: &[Part<'_>]) -> bool {
        let inside = |address: u64| {
            parts.iter().any(|part| {
                address.checked_sub(part.start).is_some_and(|at| at < part.code.len() as u64)
            })
        };
        self.values.instructions().iter().enumerate().all(|(index, instruction)| {
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::XbeginXabortXend
                    if is_direct(instruction) =>
                {
                    let target = instruction.near_branch_target();
                    if inside(target) {
                        self.values.at(target).is_some()
                    } else {
                        // With the frame still there, it is to a part of the function that is not among these, from
                        // where control may come back anywhere.
                        !self.is_reached(index) || self.depth(index) == Some(0)
                    }
                }
                FlowControl::IndirectBranch => {
                    !self.values.successors(index).is_empty() || self.leaves(index)
                }
                _ => true,
            }
        })
    }

    /// Returns true if control is known to reach an instruction.
    fn is_reached(&self, index: usize) -> bool {
        self.values.before(index, &|_| false).is_some()
    }

    /// Returns the distance in bytes of the stack pointer below its value at the start, before an instruction.
    fn depth(&self, index: usize) -> Option<i64> {
        let value = self.values.before(index, &|_| false)?.register(RSP);
        (value.base == Some(ValueOrigin::Entry(RSP)) && value.index.is_none())
            .then(|| value.plus.wrapping_neg())
    }

    /// Returns true if an indirect jump certainly leaves the function: through a pointer at a fixed place, or
    /// in an object. Jump tables are read with an index.
    fn leaves(&self, index: usize) -> bool {
        let instructions = self.values.instructions();
        let jump = &instructions[index];
        if jump.op0_kind() == OpKind::Memory {
            return jump.memory_index() == Register::None;
        }
        let mut wanted = jump.op0_register().full_register();
        let mut info = InstructionInfoFactory::new();
        let mut at = index;
        loop {
            let straight = match self.values.predecessors(at) {
                [one] => at.checked_sub(1).filter(|before| before == one),
                _ => None,
            };
            let Some(before) = straight else { break };
            at = before;
            let instruction = &instructions[at];
            if instruction.flow_control() == FlowControl::Call {
                break;
            }
            if !writes(&mut info, instruction, &[wanted]) {
                continue;
            }
            let is_move = matches!(instruction.code(), Opcode::Mov_r64_rm64 | Opcode::Mov_rm64_r64)
                && instruction.op0_kind() == OpKind::Register;
            match instruction.op1_kind() {
                OpKind::Memory if is_move => {
                    return instruction.memory_index() == Register::None;
                }
                OpKind::Register if is_move => wanted = instruction.op1_register(),
                _ => return false,
            }
        }
        // It comes from further up, such as an argument: a way out, if no code is left that it could lead to.
        self.depth(index) == Some(0) && self.orphans().next().is_none()
    }

    /// Instructions that nothing is known to lead to, without what fills gaps.
    fn orphans(&self) -> impl Iterator<Item = usize> {
        (1..self.values.instructions().len()).filter(|&index| {
            let mnemonic = self.values.instructions()[index].mnemonic();
            self.values.predecessors(index).is_empty()
                && !matches!(mnemonic, Mnemonic::Nop | Mnemonic::Int3)
        })
    }

    /// The lines, by the numbers of their instructions. Each is inside a restartable sequence or outside of all.
    pub fn lines(
        &self,
        taken: &dyn Fn(u64) -> bool,
        is_restartable: &dyn Fn(u64) -> bool,
    ) -> Vec<Range<usize>> {
        let instructions = self.values.instructions();
        let mut lines = Vec::new();
        let mut start = 0;
        for index in 1..=instructions.len() {
            let is_divided = || {
                is_restartable(instructions[index - 1].ip())
                    != is_restartable(instructions[index].ip())
            };
            if index == instructions.len() || self.begins_line(index, taken) || is_divided() {
                lines.push(start..index);
                start = index;
            }
        }
        lines
    }

    fn begins_line(&self, index: usize, taken: &dyn Fn(u64) -> bool) -> bool {
        let instructions = self.values.instructions();
        let (before, here) = (&instructions[index - 1], &instructions[index]);
        self.values.predecessors(index) != [index - 1]
            || before.flow_control() != FlowControl::Next
            || before.next_ip() != here.ip()
            || is_locked(here)
            || is_fence(here)
            || is_fence(before)
            || taken(here.ip())
    }

    /// Evaluates the instructions of a line.
    pub fn follow(&self, range: Range<usize>, info: &mut InstructionInfoFactory) -> Line<'_> {
        let start = self.values.before(range.start, &|_| false);
        let mut line =
            Line::follow(&self.values.instructions()[range], start.as_ref(), self.escapes, info);
        for found in &mut line.found {
            if let AccessLocation::Shared(Located { instruction, operand, .. }) = found
                && self.downwards
                && operand.is_repeated
                && line.instructions[*instruction].is_string_instruction()
            {
                *found = AccessLocation::Unsupported(Unsupported::DataDependent);
            }
        }
        line
    }
}

/// Returns true if two parts of the code overlap, or instructions do.
fn overlaps(parts: &[Part<'_>]) -> bool {
    let mut seen = HashSet::new();
    parts
        .iter()
        .any(|part| decode(part.code, part.start).any(|instruction| !seen.insert(instruction.ip())))
}
