//! Control flow of a function as patches need it: where control may enter each instruction, so that no byte is
//! displaced that something leads to.
//!
//! An indirect jump leads to the entries of its table where these are certain. Any other may lead to each address in
//! the function that anything names: an address that [`Function::is_target`] holds for, an entry of a table of
//! distances whose address or base an instruction of the function computes, or an address that one computes itself.
//! This takes for granted that code gets addresses inside of a function from its file, not by arithmetic; a function
//! with a jump to a computed address, as `lea rdx, [rdx + rcx * 8]; jmp rdx`, is not known.

use std::collections::BTreeSet;

use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use rustc_hash::FxHashMap;

use super::Function;
use crate::{
    control_flow::writes,
    dataflow::Dataflow,
    indirect_jump::{JumpTable, MAX_ENTRIES},
    instruction::{decode, is_direct},
    jump_tables::JumpTables,
};

/// Functions of more instructions are not looked into.
const MAX_INSTRUCTIONS: usize = 1 << 17;

/// Origin of the target of an indirect jump whose table is not certain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TableTarget {
    /// A word of memory, or another function's argument.
    Word,
    /// A distance that is added to an address.
    Distance,
}

/// Instructions of a function, and how control goes from one to the next.
pub struct FunctionCode {
    instructions: Vec<Instruction>,
    by_address: FxHashMap<u64, usize>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// Jumps of which not all targets are known.
    open: Vec<bool>,
    /// Instructions that an indirect jump may lead to.
    named: Vec<bool>,
    /// Instructions that a jump enters behind their first byte.
    split: Vec<bool>,
}

impl FunctionCode {
    /// Reads a function. `flow` is what is known of its control flow otherwise. Returns `None` if its bytes are no
    /// instructions, or if control may come to any of them.
    pub fn read(function: &Function<'_>, flow: Option<&Dataflow>) -> Option<Self> {
        let instructions: Vec<Instruction> =
            function.parts.iter().flat_map(|part| decode(part.code, part.start)).collect();
        let is_valid = instructions.iter().all(|instruction| !instruction.is_invalid());
        if instructions.is_empty() || !is_valid || instructions.len() > MAX_INSTRUCTIONS {
            return None;
        }
        let by_address: FxHashMap<u64, usize> =
            instructions.iter().enumerate().map(|(index, one)| (one.ip(), index)).collect();
        if by_address.len() < instructions.len() {
            return None;
        }
        let none = || vec![false; instructions.len()];
        let mut code = Self {
            successors: vec![Vec::new(); instructions.len()],
            predecessors: vec![Vec::new(); instructions.len()],
            open: none(),
            named: none(),
            split: none(),
            by_address,
            instructions,
        };
        code.connect(function, flow)?;
        for from in 0..code.instructions.len() {
            for at in 0..code.successors[from].len() {
                let to = code.successors[from][at];
                code.predecessors[to].push(from);
            }
        }
        Some(code)
    }

    /// Finds the successors of each instruction.
    fn connect(&mut self, function: &Function<'_>, flow: Option<&Dataflow>) -> Option<()> {
        let mut unproven = Vec::new();
        let tables = JumpTables::new(&self.instructions);
        let mut targets_of = FxHashMap::default();
        for (index, jump) in self.instructions.iter().enumerate() {
            if jump.flow_control() != FlowControl::IndirectBranch {
                continue;
            }
            let proven = tables.targets(index, function.word_at).map(|targets| {
                targets.iter().filter_map(|target| self.at(*target)).collect::<Vec<usize>>()
            });
            let found = flow.and_then(|flow| flow.at(jump.ip()).map(|at| (flow, at)));
            let found = found.map(|(flow, at)| {
                let targets = flow.successors(at).into_iter();
                targets.filter_map(|to| self.at(flow.instructions()[to].ip())).collect()
            });
            match proven.or_else(|| found.filter(|found: &Vec<usize>| !found.is_empty())) {
                Some(targets) => drop(targets_of.insert(index, targets)),
                None => unproven.push((index, self.target(index, function)?)),
            }
        }
        let named = if unproven.is_empty() { Vec::new() } else { self.named(function, &unproven)? };
        for index in 0..self.instructions.len() {
            let instruction = &self.instructions[index];
            let next = self.at(instruction.next_ip());
            let mut successors: Vec<usize> = match instruction.flow_control() {
                FlowControl::Return | FlowControl::UnconditionalBranch => Vec::new(),
                FlowControl::IndirectBranch => targets_of.remove(&index).unwrap_or_default(),
                FlowControl::Exception | FlowControl::Interrupt
                    if instruction.mnemonic() != Mnemonic::Int3 =>
                {
                    Vec::new()
                }
                _ => next.into_iter().collect(),
            };
            let target = instruction.near_branch_target();
            let is_jump = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::ConditionalBranch
                    | FlowControl::XbeginXabortXend
            );
            if is_jump && is_direct(instruction) {
                match self.at(target) {
                    Some(target) => successors.push(target),
                    None if function.parts.iter().any(|part| part.contains(target)) => {
                        let around = self.around(target)?;
                        self.split[around] = true;
                        self.open[index] = true;
                    }
                    None => {}
                }
            }
            self.successors[index] = successors;
        }
        for (index, _) in unproven {
            self.open[index] = true;
            self.successors[index].extend(&named);
        }
        for to in named {
            self.named[to] = true;
        }
        Some(())
    }

    /// Returns the number of the instruction that has an address inside, behind its first byte.
    fn around(&self, address: u64) -> Option<usize> {
        (1..16).find_map(|back| self.at(address.checked_sub(back)?))
    }

    /// Instructions that indirect jumps may lead to; `None` if the table of one is not found.
    fn named(&self, function: &Function<'_>, jumps: &[(usize, TableTarget)]) -> Option<Vec<usize>> {
        let mut named = BTreeSet::new();
        let mut tables = BTreeSet::new();
        let mut bases = BTreeSet::new();
        for instruction in &self.instructions {
            let computed = named_by(instruction);
            for address in computed.into_iter().flatten() {
                match self.at(address) {
                    Some(at) => {
                        named.insert(at);
                        bases.insert(address);
                    }
                    None => drop(tables.insert(address)),
                }
            }
            if instruction.memory_index_scale() == 8 && instruction.memory_base() == Register::None
            {
                named.extend(self.entries(instruction, function));
            }
        }
        let other = named.len();
        for &table in &tables {
            for base in std::iter::once(table).chain(bases.iter().copied()) {
                let entries = (0..MAX_ENTRIES).map_while(|at| {
                    let distance = (function.word_at)(table.checked_add(4 * at)?)?.cast_signed();
                    self.at(base.checked_add_signed(distance.into())?)
                });
                named.extend(entries);
            }
        }
        if named.len() == other && jumps.iter().any(|&(_, target)| target == TableTarget::Distance)
        {
            return None;
        }
        let is_target = |at: &usize| (function.is_target)(self.instructions[*at].ip());
        named.extend((1..self.instructions.len()).filter(is_target));
        Some(named.into_iter().collect())
    }

    /// Targets in the table of addresses that an instruction reads, up to the first entry that is no target.
    fn entries(
        &self,
        instruction: &Instruction,
        function: &Function<'_>,
    ) -> impl Iterator<Item = usize> {
        let table = JumpTable::Addresses(instruction.memory_displacement64());
        let entries = (0..MAX_ENTRIES).map_while(move |at| table.target(at, function.word_at));
        entries.map_while(|target| self.at(target))
    }

    /// Returns the origin of the target of an indirect jump; `None` if it is computed otherwise than from a table
    /// that is found.
    fn target(&self, jump: usize, function: &Function<'_>) -> Option<TableTarget> {
        let instruction = &self.instructions[jump];
        let is_hidden = |load: &Instruction| {
            load.memory_index_scale() == 8
                && load.memory_base() == Register::None
                && self.entries(load, function).next().is_none()
        };
        if instruction.op0_kind() == OpKind::Memory {
            return (!is_hidden(instruction)).then_some(TableTarget::Word);
        }
        let mut info = InstructionInfoFactory::new();
        let mut register = instruction.op0_register().full_register();
        let mut before = jump;
        while let Some(at) = self.writer(before, register, &mut info) {
            let writer = &self.instructions[at];
            match writer.code() {
                Opcode::Mov_r64_rm64 | Opcode::Mov_rm64_r64
                    if writer.op1_kind() == OpKind::Register =>
                {
                    register = writer.op1_register().full_register();
                    before = at;
                }
                Opcode::Add_r64_rm64 | Opcode::Add_rm64_r64 => {
                    let operands = [writer.op0_register(), writer.op1_register()];
                    let is_loaded =
                        operands.iter().any(|operand| self.is_loaded(at, *operand, &mut info));
                    return is_loaded.then_some(TableTarget::Distance);
                }
                Opcode::Lea_r64_m => {
                    return writer.is_ip_rel_memory_operand().then_some(TableTarget::Word);
                }
                _ => return (is_copy(writer) && !is_hidden(writer)).then_some(TableTarget::Word),
            }
        }
        Some(TableTarget::Word)
    }

    /// Returns true if a register has been loaded from memory, not computed, before an instruction.
    fn is_loaded(
        &self,
        before: usize,
        register: Register,
        info: &mut InstructionInfoFactory,
    ) -> bool {
        self.writer(before, register.full_register(), info).is_some_and(|at| {
            let writer = &self.instructions[at];
            let loads = matches!(writer.mnemonic(), Mnemonic::Mov | Mnemonic::Movsxd);
            loads && writer.op1_kind() == OpKind::Memory
        })
    }

    /// Last instruction before another one that writes a register, without jumps and calls between them.
    fn writer(
        &self,
        before: usize,
        register: Register,
        info: &mut InstructionInfoFactory,
    ) -> Option<usize> {
        (0..before)
            .rev()
            .take_while(|&at| {
                let instruction = &self.instructions[at];
                instruction.flow_control() == FlowControl::Next
                    && instruction.next_ip() == self.instructions[at + 1].ip()
            })
            .find(|&at| writes(info, &self.instructions[at], &[register]))
    }

    /// The instructions, in the order of the parts.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Number of the instruction at an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Instructions from which control comes to one.
    pub fn predecessors(&self, index: usize) -> &[usize] {
        &self.predecessors[index]
    }

    /// Instructions of the function to which control goes from one, as far as they are known.
    pub fn successors(&self, index: usize) -> &[usize] {
        &self.successors[index]
    }

    /// Returns whether control may go from an instruction to others than its successors, inside of the function.
    pub fn is_open(&self, index: usize) -> bool {
        self.open[index]
    }

    /// Returns whether an indirect jump may lead to an instruction.
    pub fn is_named(&self, index: usize) -> bool {
        self.named[index]
    }

    /// Returns whether a jump enters an instruction behind its first byte, as those do that skip a `lock` prefix.
    pub fn is_split(&self, index: usize) -> bool {
        self.split[index]
    }
}

/// Returns the addresses that an instruction computes from nothing else: of a `lea`, of memory that it reads at a
/// fixed place, of an immediate.
pub fn named_by(instruction: &Instruction) -> [Option<u64>; 2] {
    let at = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address());
    let immediate = match instruction.op1_kind() {
        OpKind::Immediate64 | OpKind::Immediate32 | OpKind::Immediate32to64 => {
            Some(instruction.immediate(1))
        }
        _ => None,
    };
    [at, immediate]
}

/// Returns true if an instruction writes what it has read, and nothing that it has computed.
fn is_copy(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Pop
            | Mnemonic::Cmove
            | Mnemonic::Cmovne
            | Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmovs
            | Mnemonic::Cmovns
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Xchg
            | Mnemonic::Movq
            // An encoded pointer, as `setjmp` stores them.
            | Mnemonic::Ror
            | Mnemonic::Xor
    )
}
