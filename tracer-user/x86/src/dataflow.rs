//! Values of registers and of places on the stack at each instruction of a function, as far as its code
//! determines them: enough to see that two expressions are one address, and to which function a register
//! points. Reads machine code only, without files or locks.

mod state;

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, Mnemonic};
use rustc_hash::FxHashMap;

pub use self::state::{DataPlace, DataState, Value, ValueOrigin, number};
use super::exits::Part;
use super::indirect_jump::{self, Destination, Policy};
use super::instruction::{RAX, decode, survives_call};

/// Instructions of a function, the control flow between them, and the known values before each.
#[derive(Debug)]
pub struct Dataflow {
    instructions: Vec<Instruction>,
    by_address: FxHashMap<u64, usize>,
    /// Targets of jumps through tables, by the jump.
    tables: FxHashMap<usize, Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// State at the start of each block.
    blocks: BTreeMap<usize, DataState>,
}

/// Functions of more instructions are not looked into.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// Maximum number of visits per block until the fixpoint.
const MAX_ROUNDS: usize = 64;

impl Dataflow {
    /// Analyzes a function from all of its parts. `is_slot` holds for addresses that the dynamic linker fills
    /// in with functions; `word_at` returns the four bytes of the file that are loaded to an address.
    ///
    /// Returns `None` if the bytes are no instructions, if there are too many, or if the target of a jump is
    /// unknown.
    #[must_use]
    pub fn analyze(
        parts: &[Part<'_>],
        is_slot: &dyn Fn(u64) -> bool,
        word_at: &dyn Fn(u64) -> Option<u32>,
    ) -> Option<Self> {
        let mut instructions: Vec<Instruction> = Vec::new();
        for part in parts {
            instructions.extend(decode(part.code, part.start));
        }
        let valid = instructions.iter().all(|instruction| !instruction.is_invalid());
        if instructions.is_empty() || !valid || instructions.len() > MAX_INSTRUCTIONS {
            return None;
        }
        let by_address: FxHashMap<u64, usize> =
            instructions.iter().enumerate().map(|(index, one)| (one.ip(), index)).collect();
        let mut values = Self {
            predecessors: vec![Vec::new(); instructions.len()],
            instructions,
            by_address,
            tables: FxHashMap::default(),
            blocks: BTreeMap::new(),
        };
        values.tables = values.find_tables(word_at)?;
        for index in 0..values.instructions.len() {
            for next in values.successors(index) {
                values.predecessors[next].push(index);
            }
        }
        values.analyse(is_slot)?;
        Some(values)
    }

    /// The instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The number of the instruction at an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Returns the predecessors of an instruction, as far as the code determines them.
    #[must_use]
    pub fn predecessors(&self, index: usize) -> &[usize] {
        &self.predecessors[index]
    }

    /// Returns the successors inside the function: the next instruction first, then the target of a jump.
    #[must_use]
    pub fn successors(&self, index: usize) -> Vec<usize> {
        let instruction = &self.instructions[index];
        let next = self.at(instruction.next_ip());
        let target = || self.at(instruction.near_branch_target());
        match instruction.flow_control() {
            FlowControl::Return => Vec::new(),
            FlowControl::IndirectBranch => self.tables.get(&index).cloned().unwrap_or_default(),
            FlowControl::Exception | FlowControl::Interrupt
                if instruction.mnemonic() != Mnemonic::Int3 =>
            {
                Vec::new()
            }
            FlowControl::UnconditionalBranch => target().into_iter().collect(),
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                next.into_iter().chain(target()).collect()
            }
            _ => next.into_iter().collect(),
        }
    }

    /// Finds the targets of jumps through tables; `None` if a table is not found.
    fn find_tables(
        &self,
        word_at: &dyn Fn(u64) -> Option<u32>,
    ) -> Option<FxHashMap<usize, Vec<usize>>> {
        let mut tables = FxHashMap::default();
        for (index, jump) in self.instructions.iter().enumerate() {
            if jump.flow_control() != FlowControl::IndirectBranch {
                continue;
            }
            let before = &self.instructions[..index];
            let table = match indirect_jump::destination(jump, before, Policy::Targets) {
                Destination::Table(table) => table,
                Destination::Inside | Destination::Outside => continue,
                Destination::Unknown => return None,
            };
            let targets =
                self.entries(indirect_jump::bound(before), |number| table.target(number, word_at));
            if targets.is_empty() {
                return None;
            }
            tables.insert(index, targets);
        }
        Some(tables)
    }

    /// The instructions that a table names, up to the first entry that is none. Where its end is not known,
    /// what follows may look like more of it: too many only make less known.
    fn entries(&self, bound: u64, entry: impl Fn(u64) -> Option<u64>) -> Vec<usize> {
        let mut targets: Vec<usize> =
            (0..bound).map_while(|number| self.at(entry(number)?)).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Returns true if a block begins at an instruction.
    fn is_leader(&self, index: usize) -> bool {
        match self.predecessors[index].as_slice() {
            [one] => *one + 1 != index || self.ends_block(*one),
            _ => true,
        }
    }

    fn ends_block(&self, index: usize) -> bool {
        !matches!(
            self.instructions[index].flow_control(),
            FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::Interrupt
        )
    }

    fn analyse(&mut self, is_slot: &dyn Fn(u64) -> bool) -> Option<()> {
        let is_leader: Vec<bool> =
            (0..self.instructions.len()).map(|index| self.is_leader(index)).collect();
        let leaders: Vec<usize> =
            (0..self.instructions.len()).filter(|&index| is_leader[index]).collect();
        // An exception that unwinds may lead to those that nothing else leads to, but for what fills gaps.
        let is_padding = |index: usize| {
            matches!(self.instructions[index].mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        };
        let orphans: Vec<usize> = leaders
            .iter()
            .copied()
            .filter(|&leader| leader != 0 && self.predecessors[leader].is_empty())
            .filter(|&leader| !is_padding(leader))
            .collect();
        let mut blocks = BTreeMap::from([(0, DataState::at_entry())]);
        let mut elsewhere: Option<DataState> = None;
        let mut todo = BTreeSet::from([0]);
        let mut rounds = leaders.len().saturating_mul(MAX_ROUNDS);
        while let Some(leader) = todo.pop_first() {
            rounds = rounds.checked_sub(1)?;
            let mut state = blocks.get(&leader)?.clone();
            let mut index = leader;
            loop {
                let instruction = &self.instructions[index];
                let control = instruction.flow_control();
                let is_call = matches!(control, FlowControl::Call | FlowControl::IndirectCall);
                state.step(instruction, is_slot);
                if is_call && !orphans.is_empty() {
                    let changed = match &mut elsewhere {
                        // Already has the registers that calls may change merged.
                        Some(known) => known.merge(&state, u64::MAX),
                        none => {
                            let mut after = state.clone();
                            for number in (0..16).filter(|number| !survives_call(*number)) {
                                let place = DataPlace::Register(number);
                                after.set(
                                    number,
                                    Value::origin(ValueOrigin::Merged(u64::MAX, place)),
                                );
                            }
                            none.replace(after).is_none()
                        }
                    };
                    if changed && let Some(known) = &elsewhere {
                        for &orphan in &orphans {
                            self.flow(known, orphan, &mut blocks, &mut todo);
                        }
                    }
                }
                // Within a block, control goes on to the next instruction.
                if !self.ends_block(index) && is_leader.get(index + 1) == Some(&false) {
                    index += 1;
                    continue;
                }
                for next in self.successors(index) {
                    self.flow(&state, next, &mut blocks, &mut todo);
                }
                break;
            }
        }
        self.blocks = blocks;
        Some(())
    }

    fn flow(
        &self,
        state: &DataState,
        to: usize,
        blocks: &mut BTreeMap<usize, DataState>,
        todo: &mut BTreeSet<usize>,
    ) {
        let changed = match blocks.get_mut(&to) {
            Some(known) => known.merge(state, self.instructions[to].ip()),
            None => blocks.insert(to, state.clone()).is_none(),
        };
        if changed {
            todo.insert(to);
        }
    }

    /// Returns the state before an instruction; `None` if control never reaches it.
    #[must_use]
    pub fn before(&self, index: usize, is_slot: &dyn Fn(u64) -> bool) -> Option<DataState> {
        let (&leader, state) = self.blocks.range(..=index).next_back()?;
        let mut state = state.clone();
        for instruction in &self.instructions[leader..index] {
            state.step(instruction, is_slot);
        }
        let straight = (leader + 1..=index).all(|index| !self.is_leader(index));
        straight.then_some(state)
    }

    /// Calls `visit` for each instruction that control reaches, with the state before it.
    pub(crate) fn walk(
        &self,
        is_slot: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(usize, &DataState),
    ) {
        for (&leader, state) in &self.blocks {
            let mut state = state.clone();
            let mut index = leader;
            loop {
                visit(index, &state);
                if self.ends_block(index)
                    || index + 1 == self.instructions.len()
                    || self.is_leader(index + 1)
                {
                    break;
                }
                state.step(&self.instructions[index], is_slot);
                index += 1;
            }
        }
    }

    /// The place that a value was merged in where paths meet at an instruction, when it was merged there.
    #[must_use]
    pub fn merged_at(&self, value: Value, index: usize) -> Option<DataPlace> {
        match value.base? {
            ValueOrigin::Merged(at, place) if at == self.instructions[index].ip() => Some(place),
            _ => None,
        }
    }
}

/// The register in which functions return numbers.
pub const RESULT: u8 = RAX;

#[cfg(test)]
mod tests;
