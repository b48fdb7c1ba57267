//! Targets of jumps through the tables of `switch` statements, as far as they are certain: the comparison that bounds
//! the index and the address of the table are both found.

use std::collections::BTreeMap;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::indirect_jump::{JumpTable, MAX_ENTRIES, loads_distance};
use super::instruction::{is_direct_jump, may_write};

/// Instructions of a function, in order, and the direct jumps among them.
pub struct JumpTables<'code> {
    instructions: &'code [Instruction],
    by_address: BTreeMap<u64, usize>,
    /// Numbers of the jumps to each address.
    jumps: BTreeMap<u64, Vec<usize>>,
}

impl<'code> JumpTables<'code> {
    /// Prepares the instructions of a function for lookups.
    #[must_use]
    pub fn new(instructions: &'code [Instruction]) -> Self {
        let numbered = || instructions.iter().enumerate();
        let mut jumps: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, jump) in numbered().filter(|(_, jump)| is_direct_jump(jump)) {
            jumps.entry(jump.near_branch_target()).or_default().push(index);
        }
        let by_address = numbered().map(|(index, one)| (one.ip(), index)).collect();
        Self { instructions, by_address, jumps }
    }

    /// Returns the targets of the indirect jump at an index, without duplicates; `None` if they are not certain.
    /// `word_at` returns the four bytes of the file that are loaded to an address.
    #[must_use]
    pub fn targets(&self, jump: usize, word_at: &dyn Fn(u64) -> Option<u32>) -> Option<Vec<u64>> {
        let block = self.block_before(jump);
        let instruction = &self.instructions[jump];
        let (load, table, index) = if instruction.op0_kind() == OpKind::Memory {
            let is_fixed = instruction.memory_index_scale() == 8
                && instruction.memory_base() == Register::None
                && instruction.segment_prefix() == Register::None;
            let table = JumpTable::Addresses(instruction.memory_displacement64());
            (is_fixed.then_some(jump)?, table, instruction.memory_index())
        } else {
            self.distances(block, jump)?
        };
        let last = self.last_entry(block, load, index)?;
        let mut targets = (0..=last)
            .map(|number| table.target(number, word_at))
            .map(|target| target.filter(|target| self.by_address.contains_key(target)))
            .collect::<Option<Vec<u64>>>()?;
        targets.sort_unstable();
        targets.dedup();
        Some(targets)
    }

    /// Returns the first instruction of the straight line that ends before a jump.
    fn block_before(&self, jump: usize) -> usize {
        let begins = |&index: &usize| {
            self.jumps.contains_key(&self.instructions[index].ip())
                || index == 0
                || self.instructions[index - 1].flow_control() != FlowControl::Next
        };
        (0..=jump).rev().find(begins).unwrap_or(0)
    }

    /// Finds the load of a distance, which is added to the address of its table and jumped to; returns its number, the
    /// table, and the register that numbers the entries.
    fn distances(&self, block: usize, jump: usize) -> Option<(usize, JumpTable, Register)> {
        let target = self.instructions[jump].op0_register();
        let add = self.writer(block, jump, target)?;
        let sum = &self.instructions[add];
        if sum.code() != Code::Add_r64_rm64 && sum.code() != Code::Add_rm64_r64
            || sum.op1_kind() != OpKind::Register
        {
            return None;
        }
        // Either of both may be the address of the table.
        let operands = [sum.op0_register(), sum.op1_register()];
        operands.into_iter().zip(operands.into_iter().rev()).find_map(|(distance, base)| {
            let load = self.writer(block, add, distance)?;
            let entry = &self.instructions[load];
            let is_entry = loads_distance(entry)
                && entry.memory_displacement64() == 0
                && entry.memory_base() == base;
            let table = self.address(block, load, base).filter(|_| is_entry)?;
            Some((load, JumpTable::Distances(table), entry.memory_index()))
        })
    }

    /// Returns the last instruction before `before` that writes a register.
    fn writer(&self, first: usize, before: usize, register: Register) -> Option<usize> {
        (first..before).rev().find(|&index| writes(&self.instructions[index], register))
    }

    /// Returns the address in a register before an instruction: of the last `lea` in the same straight line, or of the
    /// only one in the function, if nothing else in it writes the register but what restores it for the caller.
    fn address(&self, block: usize, before: usize, register: Register) -> Option<u64> {
        let address = |lea: &Instruction| {
            let is_address = lea.code() == Code::Lea_r64_m && lea.is_ip_rel_memory_operand();
            is_address.then(|| lea.ip_rel_memory_address())
        };
        if let Some(index) = self.writer(block, before, register) {
            return address(&self.instructions[index]);
        }
        let writers = self.instructions.iter().filter(|one| writes(one, register));
        let mut others = writers.filter(|one| one.mnemonic() != Mnemonic::Pop);
        let found = address(others.next()?)?;
        others.all(|other| address(other) == Some(found)).then_some(found)
    }

    /// Returns the number of the last entry: what the index was compared with before control came to the straight line
    /// of the load, which no other way leads to.
    fn last_entry(&self, block: usize, load: usize, index: Register) -> Option<u64> {
        let jumps = self.jumps.get(&self.instructions[block].ip()).map_or(&[][..], Vec::as_slice);
        let check = match (self.falls_into(block), jumps) {
            (Some(before), []) => {
                (self.instructions[before].mnemonic() == Mnemonic::Ja).then_some(before)?
            }
            (None, &[jump]) => {
                (self.instructions[jump].mnemonic() == Mnemonic::Jbe).then_some(jump)?
            }
            _ => return None,
        };
        let line = self.block_before(check);
        let sets_flags = |&number: &usize| self.instructions[number].rflags_modified() != 0;
        let comparison = (line..check).rev().find(sets_flags)?;
        let compared = &self.instructions[comparison];
        let is_constant = compared.mnemonic() == Mnemonic::Cmp
            && matches!(
                compared.op1_kind(),
                OpKind::Immediate8
                    | OpKind::Immediate8to16
                    | OpKind::Immediate8to32
                    | OpKind::Immediate8to64
                    | OpKind::Immediate32
                    | OpKind::Immediate32to64
            );
        if !is_constant {
            return None;
        }
        let mut source = PlacedValue::of(compared, 0);
        let mut index = PlacedValue { place: ValuePlace::Register(index.full_register()), size: 4 };
        // Both are followed back over copies: the index to the comparison, and then both to what they were copied from.
        for number in (line..check).chain(block..load).rev() {
            if number < comparison && source.holds(index) {
                break;
            }
            index = index.before(&self.instructions[number])?;
            if number < comparison {
                source = source.before(&self.instructions[number])?;
            }
        }
        let last = compared.immediate(1);
        (source.holds(index) && last < MAX_ENTRIES).then_some(last)
    }

    /// Returns the instruction before one, if control goes on from there; fillers behind jumps are skipped.
    fn falls_into(&self, index: usize) -> Option<usize> {
        let before = (0..index).rev().find(|&before| {
            self.instructions[before].mnemonic() != Mnemonic::Nop
                || self.jumps.contains_key(&self.instructions[before].ip())
        })?;
        let ends = matches!(
            self.instructions[before].flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
        );
        let after = &self.instructions[before];
        (!ends || after.mnemonic() == Mnemonic::Nop).then_some(before)
    }
}

/// Value at a place, as an unsigned number of `size` bytes.
#[derive(Clone, Copy)]
struct PlacedValue {
    place: ValuePlace,
    /// Four for all larger ones: what writes the lower half of a register clears the upper one.
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    Register(Register),
    Memory { base: Register, index: Register, scale: u32, displacement: u64 },
}

impl PlacedValue {
    fn of(instruction: &Instruction, operand: u32) -> Self {
        if instruction.op_kind(operand) == OpKind::Register {
            let register = instruction.op_register(operand);
            let place = ValuePlace::Register(register.full_register());
            return Self { place, size: register.size().min(4) };
        }
        let place = ValuePlace::Memory {
            base: instruction.memory_base(),
            index: instruction.memory_index(),
            scale: instruction.memory_index_scale(),
            displacement: instruction.memory_displacement64(),
        };
        Self { place, size: instruction.memory_size().size().min(4) }
    }

    /// Returns whether a bound of this value is one of another.
    fn holds(self, other: Self) -> bool {
        self.place == other.place && self.size >= other.size
    }

    /// Returns where the value was before an instruction; `None` if that made it.
    fn before(self, instruction: &Instruction) -> Option<Self> {
        let is_changed = match self.place {
            ValuePlace::Register(register) => writes(instruction, register),
            ValuePlace::Memory { base, index, .. } => {
                let mut factory = InstructionInfoFactory::new();
                let info = factory.info(instruction);
                let mut memory = info.used_memory().iter();
                memory.any(|used| may_write(used.access()))
                    || writes(instruction, base)
                    || writes(instruction, index)
            }
        };
        if !is_changed {
            return Some(self);
        }
        let copies = matches!(self.place, ValuePlace::Register(_))
            && matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx)
            && matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
            && instruction.op0_register().size() >= 4;
        copies.then(|| {
            let from = Self::of(instruction, 1);
            Self { size: from.size.min(self.size), ..from }
        })
    }
}

/// Returns whether an instruction may write a part of a register.
fn writes(instruction: &Instruction, register: Register) -> bool {
    let register = register.full_register();
    let mut factory = InstructionInfoFactory::new();
    register != Register::None
        && factory
            .info(instruction)
            .used_registers()
            .iter()
            .any(|used| used.register().full_register() == register && may_write(used.access()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    /// Address of the table of the tests.
    const TABLE: u64 = 0x1107;

    /// Distances of the cases at 0x1040, 0x1041 and 0x1040 from the table, and of what is no code.
    fn word_at(address: u64) -> Option<u32> {
        let targets = [0x1040, 0x1041, 0x1040, 0x7000];
        let number = usize::try_from(address.checked_sub(TABLE)? / 4).ok()?;
        Some((targets.get(number)? - 0x1107_i32).cast_unsigned())
    }

    /// Targets of the only indirect jump of some code, which two cases follow at 0x1040.
    fn targets(code: &[u8]) -> Option<Vec<u64>> {
        let mut whole = code.to_vec();
        whole.resize(0x40, 0x90);
        whole.extend([0xc3, 0xc3]);
        let instructions: Vec<Instruction> = decode(&whole, 0x1000).collect();
        let is_jump = |one: &Instruction| one.flow_control() == FlowControl::IndirectBranch;
        let jump = instructions.iter().position(is_jump).unwrap();
        JumpTables::new(&instructions).targets(jump, &word_at)
    }

    #[test]
    fn flags_of_an_instruction_without_a_constant_bound_nothing() {
        // inc dword [rdi]; or neg edi; or cmp edi,esi. ja; jmp [rdi*8+0x1020]
        for sets_flags in [&[0xff, 0x07][..], &[0xf7, 0xdf], &[0x39, 0xf7]] {
            let jumps = [0x77, 0x07, 0xff, 0x24, 0xfd, 0x20, 0x10, 0x00, 0x00];
            assert_eq!(targets(&[sets_flags, &jumps].concat()), None);
        }
    }

    /// lea rdx, the table
    const LEA: [u8; 7] = [0x48, 0x8d, 0x15, 0, 1, 0, 0];
    /// movsxd rax, [rdx + rax * 4]; add rax, rdx; jmp rax
    const JUMP: [u8; 9] = [0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0];

    #[test]
    fn a_bounded_table_is_read() {
        let both = Some(vec![0x1040, 0x1041]);
        // the lea; cmp eax, 2; ja to the end
        let checked = [&LEA[..], &[0x83, 0xf8, 2, 0x77, 0x30], &JUMP].concat();
        assert_eq!(targets(&checked), both);
        let one = [&LEA[..], &[0x83, 0xf8, 0, 0x77, 0x30], &JUMP].concat();
        assert_eq!(targets(&one), Some(vec![0x1040]));
        // the lea; cmp [rdi], 2; ja to the end; mov eax, [rdi]
        let memory = [&LEA[..], &[0x83, 0x3f, 2, 0x77, 0x30, 0x8b, 7], &JUMP].concat();
        assert_eq!(targets(&memory), both);
        // the lea; mov eax, [rdi]; cmp [rdi], 2; ja to the end
        let earlier = [&LEA[..], &[0x8b, 7, 0x83, 0x3f, 2, 0x77, 0x30], &JUMP].concat();
        assert_eq!(targets(&earlier), both);
        // the lea; cmp al, 2; ja to the end; movzx eax, al
        let byte = [&LEA[..], &[0x3c, 2, 0x77, 0x30, 0x0f, 0xb6, 0xc0], &JUMP].concat();
        assert_eq!(targets(&byte), both);
        // the lea; cmp eax, 2; jbe behind the next; ret; a filler
        let apart = [&LEA[..], &[0x83, 0xf8, 2, 0x76, 2, 0xc3, 0x90], &JUMP].concat();
        assert_eq!(targets(&apart), both);
    }

    #[test]
    fn a_table_of_addresses_is_read() {
        // cmp edi, 2; ja to the end; jmp [rdi * 8 + 0x404000]
        let code = [0x83, 0xff, 2, 0x77, 0x30, 0xff, 0x24, 0xfd, 0, 0x40, 0x40, 0, 0xc3, 0xc3];
        let instructions: Vec<Instruction> = decode(&code, 0x1000).collect();
        let word_at = |address: u64| Some(if address == 0x40_4008 { 0x100d } else { 0x100c });
        let tables = JumpTables::new(&instructions);
        assert_eq!(tables.targets(2, &word_at), Some(vec![0x100c, 0x100d]));
        assert_eq!(tables.targets(2, &|_| None), None, "not in the file");
    }

    #[test]
    fn no_table_is_guessed() {
        let of = |check: &[u8]| targets(&[&LEA, check, &JUMP].concat());
        assert_eq!(of(&[]), None, "no comparison");
        // cmp ecx, 2; ja to the end
        assert_eq!(of(&[0x83, 0xf9, 2, 0x77, 0x30]), None, "of another register");
        // cmp eax, 2; jg to the end
        assert_eq!(of(&[0x83, 0xf8, 2, 0x7f, 0x30]), None, "of a signed number");
        // cmp eax, 3; ja to the end
        assert_eq!(of(&[0x83, 0xf8, 3, 0x77, 0x30]), None, "an entry leads elsewhere");
        // cmp al, 2; ja to the end
        assert_eq!(of(&[0x3c, 2, 0x77, 0x30]), None, "of a part of the index");
        // cmp eax, 2; ja to the end; inc eax
        assert_eq!(of(&[0x83, 0xf8, 2, 0x77, 0x30, 0xff, 0xc0]), None, "of the index before");
        // jmp to the load; cmp eax, 2; ja to the end
        let around = [&LEA[..], &[0xeb, 5, 0x83, 0xf8, 2, 0x77, 0x30], &JUMP].concat();
        assert_eq!(targets(&around), None, "a way around the comparison");
        // cmp eax, 2; ja to the end; no lea, or another one elsewhere
        let check = [0x83, 0xf8, 2, 0x77, 0x30];
        assert_eq!(targets(&[&check[..], &JUMP].concat()), None, "no table");
        let other = [&[0x48, 0x8d, 0x15, 0, 2, 0, 0], &LEA[..], &check, &JUMP].concat();
        assert_eq!(targets(&other), None, "one of two tables");
        // jmp rax
        assert_eq!(targets(&[0xff, 0xe0]), None);
    }
}
