//! Ways by which code gets the address of memory that it accesses or passes on: from a register, a place in its frame
//! or a global pointer, through the pointers in between. Goes back in straight-line code only; which variables are in
//! these places, and of which types, is for debug information to say.

use std::collections::HashSet;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use symbolize::{DataPath, ElfFile, Holder, LinkAddr};

use super::{
    instruction::{
        ARGUMENTS, RAX, RBP, RSP, decode, is_direct, is_direct_jump, may_write, survives_call,
    },
    operands::{self, OperandAccess},
};

/// Functions of more bytes are not read.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of pointers on a path.
const MAX_POINTERS: usize = 8;

/// Maximum number of values that are looked at for one access.
const MAX_VALUES: usize = 64;

/// Maximum number of paths of one access.
const MAX_PATHS: usize = 32;

/// Returns the paths to the memory that an instruction accesses, the shortest first. Empty if it accesses none or
/// several places, or a fixed address.
#[must_use]
pub fn to_access(file: &ElfFile, instruction: LinkAddr) -> Vec<DataPath> {
    let Some(code) = InstructionList::around(file, instruction) else { return Vec::new() };
    let Some(index) = code.at(instruction) else { return Vec::new() };
    let accesses = operands::accesses(&mut InstructionInfoFactory::new(), &code.list[index]);
    let mut places = accesses.iter().filter_map(|access| match access {
        OperandAccess::Plain(operand) if !operand.is_static => {
            Some((operand.base, operand.index, operand.scale, operand.displacement, operand.size))
        }
        _ => None,
    });
    let Some(place) = places.next() else { return Vec::new() };
    if places.any(|next| next != place) {
        return Vec::new();
    }
    let (base, other, scale, displacement, size) = place;
    let mut search =
        PathSearch { code: &code, length: size.into(), budget: MAX_VALUES, found: Vec::new() };
    let sum = Sum { base, index: other, scale, displacement: displacement as i64 };
    search.sum(index, sum, &Suffix::default());
    search.found
}

/// Returns the paths to the memory that a call passes by its argument of this number, and further by a path from that
/// argument. The call is the one before the return address.
#[must_use]
pub fn to_argument(
    file: &ElfFile,
    after_call: LinkAddr,
    number: usize,
    onward: &DataPath,
) -> Vec<DataPath> {
    let Some(call) = after_call.0.checked_sub(1).map(LinkAddr) else { return Vec::new() };
    let Some(code) = InstructionList::around(file, call) else { return Vec::new() };
    let index = code.list.iter().position(|one| one.next_ip() == after_call.0);
    let (Some(index), Some(&register)) = (index, ARGUMENTS.get(number)) else { return Vec::new() };
    let mut search =
        PathSearch { code: &code, length: onward.length, budget: MAX_VALUES, found: Vec::new() };
    let DataPath { offsets, is_indexed, .. } = onward.clone();
    search.value(index, register, &Suffix { offsets, is_indexed });
    search.found
}

struct InstructionList<'file> {
    file: &'file ElfFile,
    list: Vec<Instruction>,
    targets: HashSet<u64>,
}

impl<'file> InstructionList<'file> {
    fn around(file: &'file ElfFile, address: LinkAddr) -> Option<Self> {
        let extent = file.function_containing(address)?;
        let length = extent.end.0.checked_sub(extent.start.0).filter(|&size| size <= MAX_BYTES)?;
        let code = file.bytes_at(extent.start, usize::try_from(length).ok()?)?;
        let list: Vec<Instruction> = decode(code, extent.start.0).collect();
        let targets = list
            .iter()
            .filter(|one| is_direct_jump(one))
            .map(Instruction::near_branch_target)
            .collect();
        Some(Self { file, list, targets })
    }

    fn at(&self, address: LinkAddr) -> Option<usize> {
        self.list.binary_search_by_key(&address.0, Instruction::ip).ok()
    }

    /// Returns the only instruction that control comes from to the one at an index.
    fn before(&self, index: usize) -> Option<usize> {
        let before = index.checked_sub(1)?;
        let one = &self.list[before];
        let goes_on = matches!(
            one.flow_control(),
            iced_x86::FlowControl::Next
                | iced_x86::FlowControl::Call
                | iced_x86::FlowControl::IndirectCall
                | iced_x86::FlowControl::ConditionalBranch
        );
        (goes_on && !self.targets.contains(&self.list[index].ip())).then_some(before)
    }
}

/// Sum of registers and a number.
#[derive(Clone, Copy)]
struct Sum {
    base: Register,
    index: Register,
    scale: u32,
    displacement: i64,
}

/// Way from a value to the memory.
#[derive(Clone, Default)]
struct Suffix {
    offsets: Vec<i64>,
    is_indexed: bool,
}

impl Suffix {
    /// Adds a number to the value that the way starts at.
    fn plus(&self, added: i64) -> Self {
        let mut suffix = self.clone();
        match suffix.offsets.first_mut() {
            Some(first) => *first = first.wrapping_add(added),
            None => suffix.offsets.push(added),
        }
        suffix
    }

    /// Starts the way one pointer earlier.
    fn behind_pointer(&self) -> Self {
        let mut suffix = self.clone();
        suffix.offsets.insert(0, 0);
        suffix
    }
}

struct PathSearch<'code, 'file> {
    code: &'code InstructionList<'file>,
    /// Size of the memory that is searched for, in bytes.
    length: u64,
    /// Number of values that may still be looked at: sums of sums multiply the ways.
    budget: usize,
    found: Vec<DataPath>,
}

impl PathSearch<'_, '_> {
    /// Searches for the ways to a sum before an instruction, which the suffix goes on from.
    fn sum(&mut self, index: usize, sum: Sum, suffix: &Suffix) {
        let added = i64::from(sum.scale).wrapping_mul(self.constant_part(index, sum.index));
        let suffix = suffix.plus(sum.displacement.wrapping_add(added));
        let numbered = |register: Register| register.is_gpr64().then(|| register.number() as u8);
        match (numbered(sum.base), numbered(sum.index)) {
            (Some(base), None) => self.value(index, base, &suffix),
            (None, Some(other)) => {
                self.value(index, other, &Suffix { is_indexed: true, ..suffix });
            }
            (Some(base), Some(other)) => {
                let suffix = Suffix { is_indexed: true, ..suffix };
                self.value(index, base, &suffix);
                self.value(index, other, &suffix);
            }
            (None, None) => {}
        }
    }

    /// Searches for the ways to the value of a register before an instruction.
    fn value(&mut self, index: usize, register: u8, suffix: &Suffix) {
        let Some(budget) = self.budget.checked_sub(1) else { return };
        self.budget = budget;
        let at = LinkAddr(self.code.list[index].ip());
        if self.points_into_frame(index, register) {
            // The first sum is a place in the frame.
            let Some((&offset, rest)) = suffix.offsets.split_first() else { return };
            let suffix = Suffix { offsets: rest.to_vec(), is_indexed: suffix.is_indexed };
            self.add(at, Holder::Frame { register, offset }, &suffix);
            if !suffix.offsets.is_empty() {
                self.spilled(index, register, offset, &suffix);
            }
            return;
        }
        self.add(at, Holder::Register(register), suffix);
        let mut index = index;
        while let Some(before) = self.code.before(index) {
            let one = &self.code.list[before];
            if self.writes(one, register) {
                let at = LinkAddr(self.code.list[index].ip());
                self.add(at, Holder::Register(register), suffix);
                self.copies(index, register, suffix);
                self.source(before, register, suffix);
                return;
            }
            index = before;
        }
        if index == 0 {
            let at = LinkAddr(self.code.list[0].ip());
            self.add(at, Holder::Register(register), suffix);
            self.copies(0, register, suffix);
        } else if let Some(only) = self.only_writer(register).filter(|&only| only < index) {
            let at = LinkAddr(self.code.list[only].next_ip());
            self.add(at, Holder::Register(register), suffix);
            self.copies(only + 1, register, suffix);
            self.source(only, register, suffix);
        }
    }

    /// Returns the only instruction of the function that gives a register a value, if there is no other but those that
    /// restore the caller's: its value is the one behind places where ways meet, too.
    fn only_writer(&self, register: u8) -> Option<usize> {
        let list = &self.code.list;
        let mut writers = (0..list.len()).filter(|&index| {
            list[index].mnemonic() != Mnemonic::Pop && self.writes(&list[index], register)
        });
        writers.next().filter(|_| writers.next().is_none())
    }

    fn points_into_frame(&self, index: usize, register: u8) -> bool {
        let at = || LinkAddr(self.code.list[index].ip());
        register == RSP || (register == RBP && self.code.file.uses_frame_pointer_at(at()))
    }

    /// Goes on with the register that was stored to a place in the frame, if only one instruction stores there:
    /// compilers that do not optimise keep values in places that are no variable's.
    fn spilled(&mut self, index: usize, register: u8, offset: i64, suffix: &Suffix) {
        let stores = |one: &Instruction| {
            one.op0_kind() == OpKind::Memory
                && one.memory_index() == Register::None
                && one.memory_base().number() == usize::from(register)
                && one.memory_base().is_gpr64()
                && one.memory_displacement64() as i64 == offset
                && one.mnemonic() == Mnemonic::Mov
        };
        let mut places = (0..self.code.list.len()).filter(|&at| stores(&self.code.list[at]));
        if let (Some(store), None) = (places.next(), places.next())
            && store < index
            && self.code.list[store].op1_kind() == OpKind::Register
            && self.code.list[store].op1_register().is_gpr64()
        {
            let source = self.code.list[store].op1_register().number() as u8;
            self.value(store, source, suffix);
        }
    }

    /// Adds the places in the frame to which the value of a register is stored from an instruction on.
    fn copies(&mut self, from: usize, register: u8, suffix: &Suffix) {
        let code = self.code;
        for (index, one) in code.list.iter().enumerate().skip(from) {
            let is_copy = one.mnemonic() == Mnemonic::Mov
                && one.op0_kind() == OpKind::Memory
                && one.op1_kind() == OpKind::Register
                && one.op1_register().is_gpr64()
                && one.op1_register().number() == usize::from(register)
                && one.memory_index() == Register::None
                && one.memory_base().is_gpr64();
            let base = one.memory_base().number() as u8;
            if is_copy && self.points_into_frame(index, base) {
                let offset = one.memory_displacement64() as i64;
                let holder = Holder::Frame { register: base, offset };
                self.add(LinkAddr(one.next_ip()), holder, suffix);
            }
            let goes_on = code.list.get(index + 1).is_some() && code.before(index + 1).is_some();
            if !goes_on || self.writes(one, register) {
                return;
            }
        }
    }

    /// Returns the number that the last change of an index register before an instruction added.
    fn constant_part(&self, index: usize, register: Register) -> i64 {
        if !register.is_gpr64() {
            return 0;
        }
        let mut index = index;
        while let Some(before) = self.code.before(index) {
            let one = &self.code.list[before];
            if self.writes(one, register.number() as u8) {
                let number = one.try_immediate(1).map_or(0, |number| number as i64);
                return match one.mnemonic() {
                    Mnemonic::Add => number,
                    Mnemonic::Sub => number.wrapping_neg(),
                    Mnemonic::Lea if !one.is_ip_rel_memory_operand() => {
                        one.memory_displacement64() as i64
                    }
                    _ => 0,
                };
            }
            index = before;
        }
        0
    }

    /// Goes on with what an instruction writes to a register.
    fn source(&mut self, index: usize, register: u8, suffix: &Suffix) {
        let one = &self.code.list[index];
        if one.flow_control() == iced_x86::FlowControl::Call && register == RAX && is_direct(one) {
            let called = LinkAddr(one.near_branch_target());
            self.add(LinkAddr(one.ip()), Holder::Result(called), suffix);
            return;
        }
        let is_whole = one.op0_kind() == OpKind::Register && one.op0_register().is_gpr64();
        if !is_whole || self.found.len() >= MAX_PATHS {
            return;
        }
        let operand = Sum {
            base: one.memory_base(),
            index: one.memory_index(),
            scale: one.memory_index_scale(),
            displacement: one.memory_displacement64() as i64,
        };
        match (one.mnemonic(), one.op_kind(one.op_count().saturating_sub(1))) {
            (Mnemonic::Mov, OpKind::Register) if one.op1_register().is_gpr64() => {
                self.value(index, one.op1_register().number() as u8, suffix);
            }
            (Mnemonic::Mov, OpKind::Memory) if suffix.offsets.len() < MAX_POINTERS => {
                if one.is_ip_rel_memory_operand() {
                    let address = LinkAddr(one.ip_rel_memory_address());
                    let at = LinkAddr(one.ip());
                    self.add(at, Holder::Static(address), suffix);
                } else if one.segment_prefix() == Register::None {
                    self.sum(index, operand, &suffix.behind_pointer());
                }
            }
            (Mnemonic::Lea, OpKind::Memory) if !one.is_ip_rel_memory_operand() => {
                self.sum(index, operand, suffix);
            }
            (Mnemonic::Add, OpKind::Register) if one.op1_register().is_gpr64() => {
                let suffix = Suffix { is_indexed: true, ..suffix.clone() };
                self.value(index, register, &suffix);
                self.value(index, one.op1_register().number() as u8, &suffix);
            }
            (Mnemonic::Add | Mnemonic::Sub, _) => {
                let Ok(number) = one.try_immediate(1).map(|number| number as i64) else { return };
                let number =
                    if one.mnemonic() == Mnemonic::Sub { number.wrapping_neg() } else { number };
                self.value(index, register, &suffix.plus(number));
            }
            _ => {}
        }
    }

    fn writes(&self, one: &Instruction, register: u8) -> bool {
        if matches!(
            one.flow_control(),
            iced_x86::FlowControl::Call | iced_x86::FlowControl::IndirectCall
        ) {
            return !survives_call(register);
        }
        let mut info = InstructionInfoFactory::new();
        info.info(one).used_registers().iter().any(|used| {
            may_write(used.access()) && {
                let full = used.register().full_register();
                full.is_gpr64() && full.number() == usize::from(register)
            }
        })
    }

    fn add(&mut self, at: LinkAddr, holder: Holder, suffix: &Suffix) {
        let Suffix { offsets, is_indexed } = suffix.clone();
        let path = DataPath { at, holder, offsets, is_indexed, length: self.length };
        if self.found.len() < MAX_PATHS && !self.found.contains(&path) {
            self.found.push(path);
        }
    }
}
