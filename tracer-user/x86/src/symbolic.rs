//! Symbolic execution of a straight line of code: contents of registers and of the stack at each instruction,
//! and the addresses of the memory accesses.

use std::rc::Rc;

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::dataflow::{self, DataState, ValueOrigin};
use super::instruction;
use super::{
    affine::{Sum, Symbol, Symbols},
    operands::{self, Operand, OperandAccess, Unsupported},
};

const RAX: usize = instruction::RAX as usize;
const RCX: usize = instruction::RCX as usize;
/// Index of the stack pointer in [`Registers`].
pub const RSP: usize = instruction::RSP as usize;
const RBP: usize = instruction::RBP as usize;

/// Contents of the sixteen general registers, by the processor's numbers.
pub type Registers = [Rc<Sum>; 16];

/// A place on the stack whose contents are known for a while.
#[derive(Clone, Debug)]
pub struct StackSlot {
    /// Symbol that the address is relative to.
    pub root: Symbol,
    /// Offset from the root.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
    /// Contents.
    pub value: Sum,
    /// The first instruction before which it does, by its number in the line.
    pub from: usize,
    /// The last change; `None` before the first.
    until: Option<usize>,
}

impl StackSlot {
    /// Returns true if the value is there before an instruction.
    pub fn holds_before(&self, instruction: usize) -> bool {
        self.from <= instruction && self.until.is_none_or(|until| instruction <= until)
    }
}

/// Memory that a write may have changed.
#[derive(Clone, Copy, Debug)]
enum Changed {
    Everything,
    Range { root: Symbol, offset: u64, size: u64 },
}

impl Changed {
    fn touches(self, root: Symbol, offset: u64, size: u64) -> bool {
        match self {
            Self::Everything => true,
            Self::Range { root: other, offset: at, size: length } => {
                other != root || {
                    let distance = offset.wrapping_sub(at).cast_signed();
                    distance < length.cast_signed() && distance > -size.cast_signed()
                }
            }
        }
    }
}

/// An access whose address is a sum.
#[derive(Clone, Debug)]
pub struct Located {
    /// The accessing instruction, by its number in the line.
    pub instruction: usize,
    /// The access.
    pub operand: Operand,
    /// Address.
    pub address: Sum,
    /// Number of repetitions, of a repeated access.
    pub rounds: Option<Sum>,
}

impl Located {
    /// The link-time address, of an access to a constant one; not of a repeated one.
    pub fn fixed(&self) -> Option<u64> {
        let place = match self.address.as_offset() {
            Some((Symbol::BIAS, place)) => Some(place),
            _ => self.address.as_constant(),
        };
        place.filter(|_| self.rounds.is_none())
    }
}

/// Classification of an access.
#[derive(Clone, Debug)]
pub enum AccessLocation {
    /// An access to memory that may be shared.
    Shared(Located),
    /// An access to the thread's stack.
    Stack,
    /// An access to a thread-local variable.
    ThreadLocal,
    /// An access whose address general registers do not determine.
    Unsupported(Unsupported),
}

/// A straight line of code.
#[derive(Debug)]
pub struct Line<'code> {
    /// Instructions of the line.
    pub instructions: &'code [Instruction],
    /// Contents of the registers before each instruction.
    pub before: Vec<Registers>,
    /// Known contents of the stack.
    pub slots: Vec<StackSlot>,
    /// Memory accesses of the instructions.
    pub found: Vec<AccessLocation>,
}

impl<'code> Line<'code> {
    /// Follows a line of code. `start` is what is known of registers where it begins, and `escapes` whether pointers
    /// may lead to the function's stack.
    pub fn follow(
        instructions: &'code [Instruction],
        start: Option<&DataState>,
        escapes: bool,
        info: &mut InstructionInfoFactory,
    ) -> Self {
        let mut evaluation = Evaluation::from(start, escapes);
        let mut line =
            Self { instructions, before: Vec::new(), slots: Vec::new(), found: Vec::new() };
        for (index, instruction) in instructions.iter().enumerate() {
            line.before.push(evaluation.registers.clone());
            for access in operands::accesses(info, instruction) {
                line.found.push(evaluation.locate(index, access));
            }
            evaluation.step(index, instruction, info);
        }
        line.slots = evaluation.slots;
        line
    }
}

/// `base + index * scale + displacement`, and the load bias if it is static.
struct AddressForm {
    base: Register,
    index: Register,
    scale: u32,
    displacement: u64,
    is_static: bool,
}

struct Evaluation {
    symbols: Symbols,
    registers: Registers,
    slots: Vec<StackSlot>,
    changes: Vec<(usize, Changed)>,
    escapes: bool,
}

impl Evaluation {
    fn from(start: Option<&DataState>, escapes: bool) -> Self {
        let mut symbols = Symbols::default();
        let registers = std::array::from_fn(|register| {
            let known = start.map(|state| state.register(register as u8));
            Rc::new(match known {
                Some(value)
                    if value.base == Some(ValueOrigin::Entry(RSP as u8))
                        && value.index.is_none() =>
                {
                    Sum::symbol(Symbol::STACK).plus_constant(value.plus.cast_unsigned())
                }
                _ if register == RSP => Sum::symbol(Symbol::STACK_POINTER),
                _ => symbols.unknown(64),
            })
        });
        Self { symbols, registers, slots: Vec::new(), changes: Vec::new(), escapes }
    }

    fn register(&self, register: Register) -> Option<&Sum> {
        let number = dataflow::number(register).filter(|_| register.is_gpr64())?;
        self.registers.get(usize::from(number)).map(Rc::as_ref)
    }

    fn set(&mut self, register: usize, value: Sum) {
        self.registers[register] = Rc::new(self.symbols.bounded(value));
    }

    fn sum(&mut self, form: AddressForm) -> Sum {
        let AddressForm { base, index, scale, displacement, is_static } = form;
        let mut sum = Sum::constant(displacement);
        if is_static {
            sum = sum.plus(&Sum::symbol(Symbol::BIAS), 1);
        }
        for (register, factor) in [(base, 1), (index, u64::from(scale))] {
            if register == Register::None {
                continue;
            }
            sum = match self.register(register) {
                Some(value) => sum.plus(value, factor),
                None => return self.symbols.unknown(64),
            };
        }
        self.symbols.bounded(sum)
    }

    fn locate(&mut self, instruction: usize, access: OperandAccess) -> AccessLocation {
        let operand = match access {
            OperandAccess::Plain(operand) => operand,
            OperandAccess::Stack => return AccessLocation::Stack,
            OperandAccess::ThreadLocal => return AccessLocation::ThreadLocal,
            OperandAccess::Unsupported(reason) => return AccessLocation::Unsupported(reason),
        };
        let Operand { base, index, scale, displacement, is_static, .. } = operand;
        let address = self.sum(AddressForm { base, index, scale, displacement, is_static });
        if address.is_on_stack() || operand.base == Register::RSP {
            return AccessLocation::Stack;
        }
        if address.factor(Symbol::THREAD) == 1 {
            return AccessLocation::ThreadLocal;
        }
        let rounds = operand.is_repeated.then(|| Sum::clone(&self.registers[RCX]));
        AccessLocation::Shared(Located { instruction, operand, address, rounds })
    }

    /// The address of an instruction's memory operand.
    fn operand_address(&mut self, instruction: &Instruction) -> Sum {
        let is_static = instruction.memory_base() == Register::RIP;
        let base = if is_static { Register::None } else { instruction.memory_base() };
        self.sum(AddressForm {
            base,
            index: instruction.memory_index(),
            scale: instruction.memory_index_scale(),
            displacement: instruction.memory_displacement64(),
            is_static,
        })
    }

    /// Reads `size` bytes, without extending them further than to the next known width.
    fn load(&mut self, at: usize, address: &Sum, size: u64) -> Sum {
        let bits = 8 * size as u32;
        let Some((root, offset)) = address
            .as_offset()
            .filter(|(root, _)| matches!(*root, Symbol::STACK | Symbol::STACK_POINTER))
        else {
            return self.symbols.unknown(bits);
        };
        let holds = |slot: &&StackSlot| {
            slot.until.is_none() && (slot.root, slot.offset) == (root, offset) && slot.size >= size
        };
        if let Some(slot) = self.slots.iter().find(holds) {
            return slot.value.clone();
        }
        let value = self.symbols.unknown(bits);
        let from = self
            .changes
            .iter()
            .rev()
            .find(|(_, changed)| changed.touches(root, offset, size))
            .map_or(0, |(index, _)| index + 1);
        debug_assert!(from <= at);
        self.slots.push(StackSlot { root, offset, size, value: value.clone(), from, until: None });
        value
    }

    /// Returns the value of an operand, of which the low `size` bytes count.
    fn value(&mut self, at: usize, instruction: &Instruction, operand: u32, size: u64) -> Sum {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                // The second bytes of registers have numbers of their own.
                let is_high =
                    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
                match dataflow::number(register).filter(|_| !is_high) {
                    Some(number) => Sum::clone(&self.registers[usize::from(number)]),
                    None => self.symbols.unknown(64),
                }
            }
            OpKind::Memory if instruction.segment_prefix() == Register::FS => {
                // The thread pointer is stored at its own beginning.
                let is_pointer = instruction.memory_base() == Register::None
                    && instruction.memory_index() == Register::None
                    && instruction.memory_displacement64() == 0
                    && size == 8;
                if is_pointer {
                    Sum::symbol(Symbol::THREAD)
                } else {
                    self.symbols.unknown(8 * size as u32)
                }
            }
            OpKind::Memory if instruction.segment_prefix() == Register::GS => {
                self.symbols.unknown(8 * size as u32)
            }
            OpKind::Memory => {
                let address = self.operand_address(instruction);
                self.load(at, &address, size)
            }
            _ => Sum::constant(instruction.immediate(operand)),
        }
    }

    /// Drops the knowledge of places that a write may have changed.
    fn change(&mut self, at: usize, address: &Sum, size: u64) {
        let root = address
            .as_offset()
            .filter(|(root, _)| matches!(*root, Symbol::STACK | Symbol::STACK_POINTER));
        let changed = match root {
            Some((root, offset)) if size > 0 => Changed::Range { root, offset, size },
            _ if address.is_on_stack() || self.escapes => Changed::Everything,
            _ => return,
        };
        self.changes.push((at, changed));
        for slot in &mut self.slots {
            if slot.until.is_none() && changed.touches(slot.root, slot.offset, slot.size) {
                slot.until = Some(at);
            }
        }
    }

    fn store(&mut self, at: usize, address: &Sum, size: u64, value: Sum) {
        let on_stack = address
            .as_offset()
            .filter(|(root, _)| matches!(*root, Symbol::STACK | Symbol::STACK_POINTER));
        if let Some((root, offset)) = on_stack {
            self.slots.push(StackSlot { root, offset, size, value, from: at + 1, until: None });
        }
    }

    fn step(&mut self, at: usize, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        // All of these are from before the instruction.
        let result = self.result(at, instruction);
        let stored = self.stored(at, instruction);
        let lowered = Sum::clone(&self.registers[RSP])
            .plus_constant(i64::from(instruction.stack_pointer_increment()).cast_unsigned());
        let info = info.info(instruction);
        let writes = |access: OpAccess| {
            !matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
            )
        };
        let written: Vec<(Sum, u64)> = info
            .used_memory()
            .iter()
            .filter(|memory| writes(memory.access()))
            .map(|memory| (self.written(instruction, memory), size_of_write(instruction, memory)))
            .collect();
        let lost: Vec<usize> = info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
            .filter_map(|used| dataflow::number(used.register()).map(usize::from))
            .collect();
        for (address, size) in written {
            self.change(at, &address, size);
        }
        if let Some((address, size, value)) = stored {
            self.store(at, &address, size, value);
        }
        for register in lost {
            if register != RSP || instruction.stack_pointer_increment() == 0 {
                let value = self.symbols.unknown(64);
                self.set(register, value);
            }
        }
        if instruction.stack_pointer_increment() != 0 {
            self.set(RSP, lowered);
        }
        for (register, value) in result.into_iter().flatten() {
            self.set(register, value);
        }
        // What is aligned or moved elsewhere: places by it may be any of those that are known by others.
        if !self.registers[RSP].is_on_stack() {
            self.escapes = true;
            self.change(at, &Sum::default(), 0);
        }
    }

    /// The address that an instruction writes to.
    fn written(&mut self, instruction: &Instruction, memory: &UsedMemory) -> Sum {
        let general = |register: Register| register == Register::None || register.is_gpr64();
        if !general(memory.base()) || !general(memory.index()) {
            return self.symbols.unknown(64);
        }
        let is_static = memory.base() == Register::None && instruction.is_ip_rel_memory_operand();
        self.sum(AddressForm {
            base: memory.base(),
            index: memory.index(),
            scale: memory.scale(),
            displacement: memory.displacement(),
            is_static,
        })
    }

    /// Returns the address, size and value of a store, if they are known.
    fn stored(&mut self, at: usize, instruction: &Instruction) -> Option<(Sum, u64, Sum)> {
        let size = match instruction.code() {
            Code::Mov_rm64_r64 | Code::Mov_rm64_imm32 => 8,
            Code::Mov_rm32_r32 | Code::Mov_rm32_imm32 => 4,
            Code::Push_r64 | Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Push_rm64 => {
                let value = self.value(at, instruction, 0, 8);
                return Some((
                    Sum::clone(&self.registers[RSP]).plus_constant(8_u64.wrapping_neg()),
                    8,
                    value,
                ));
            }
            _ => return None,
        };
        let is_own = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        if instruction.op0_kind() != OpKind::Memory || is_own {
            return None;
        }
        let value = self.value(at, instruction, 1, size);
        Some((self.operand_address(instruction), size, value))
    }

    /// Returns the contents of the result registers of an instruction, if they are known.
    fn result(&mut self, at: usize, instruction: &Instruction) -> [Option<(usize, Sum)>; 2] {
        match instruction.code() {
            Code::Leaveq => {
                let frame = Sum::clone(&self.registers[RBP]);
                let caller = self.load(at, &frame, 8);
                return [Some((RSP, frame.plus_constant(8))), Some((RBP, caller))];
            }
            Code::Cdqe => {
                let sum = Sum::clone(&self.registers[RAX]);
                return [Some((RAX, self.symbols.extend(&sum, 32, true))), None];
            }
            _ => {}
        }
        let is_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
        let to = is_register.then(|| instruction.op0_register());
        let Some((to, number)) = to.and_then(|to| Some((to, usize::from(dataflow::number(to)?))))
        else {
            return [None, None];
        };
        let wide = match to.size() {
            8 => true,
            4 => false,
            // The rest of the register stays.
            _ => return [None, None],
        };
        if instruction.code() == Code::Pop_r64 {
            let top = Sum::clone(&self.registers[RSP]);
            let value = self.load(at, &top, 8);
            let above = top.plus_constant(8);
            // The new stack pointer first: it may be what is popped.
            return [Some((RSP, above)), Some((number, value))];
        }
        if instruction.code() == Code::Xchg_rm64_r64 && instruction.op1_kind() == OpKind::Register {
            let other = self.value(at, instruction, 1, 8);
            let Some(from) = dataflow::number(instruction.op1_register()) else {
                return [None, None];
            };
            let mine = Sum::clone(&self.registers[number]);
            return [Some((number, other)), Some((usize::from(from), mine))];
        }
        let Some(sum) = self.computed(at, instruction, if wide { 8 } else { 4 }) else {
            return [None, None];
        };
        let sum = self.symbols.bounded(sum);
        let value = if wide { sum } else { self.symbols.extend(&sum, 32, false) };
        [Some((number, value)), None]
    }

    /// Returns the result of an instruction for its first operand, of which the low `size` bytes count.
    fn computed(&mut self, at: usize, instruction: &Instruction, size: u64) -> Option<Sum> {
        let operands = instruction.op_count();
        let unsigned = |factor: i64| factor.cast_unsigned();
        Some(match instruction.mnemonic() {
            Mnemonic::Mov if operands == 2 => {
                if !matches!(
                    instruction.op1_kind(),
                    OpKind::Register
                        | OpKind::Memory
                        | OpKind::Immediate32
                        | OpKind::Immediate64
                        | OpKind::Immediate32to64
                ) || (instruction.op1_kind() == OpKind::Register
                    && dataflow::number(instruction.op1_register()).is_none())
                {
                    return None;
                }
                self.value(at, instruction, 1, size)
            }
            Mnemonic::Lea => {
                let form = |register: Register| {
                    matches!(register, Register::None | Register::RIP) || register.is_gpr64()
                };
                if !form(instruction.memory_base()) || !form(instruction.memory_index()) {
                    return None;
                }
                self.operand_address(instruction)
            }
            Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                let from = match instruction.op1_kind() {
                    OpKind::Register => instruction.op1_register().size(),
                    _ => instruction.memory_size().size(),
                };
                let bits = 8 * u32::try_from(from).ok()?;
                let value = self.value(at, instruction, 1, u64::from(bits / 8));
                self.symbols.extend(&value, bits, instruction.mnemonic() != Mnemonic::Movzx)
            }
            Mnemonic::Add | Mnemonic::Sub => {
                let factor = if instruction.mnemonic() == Mnemonic::Add { 1 } else { unsigned(-1) };
                let (first, second) = self.two(at, instruction, size);
                first.plus(&second, factor)
            }
            Mnemonic::Xor
                if instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register() =>
            {
                Sum::default()
            }
            Mnemonic::Inc => self.value(at, instruction, 0, size).plus_constant(1),
            Mnemonic::Dec => self.value(at, instruction, 0, size).plus_constant(unsigned(-1)),
            Mnemonic::Neg => {
                Sum::default().plus(&self.value(at, instruction, 0, size), unsigned(-1))
            }
            Mnemonic::Shl
                if instruction.op1_kind() != OpKind::Register
                    && instruction.immediate(1) < 8 * size =>
            {
                let value = self.value(at, instruction, 0, size);
                Sum::default().plus(&value, 1 << instruction.immediate(1))
            }
            Mnemonic::Imul if operands == 3 => {
                let value = self.value(at, instruction, 1, size);
                Sum::default().plus(&value, instruction.immediate(2))
            }
            // No more is known of these than that the upper half is 0.
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Not | Mnemonic::Imul
                if size == 4 && operands <= 2 && instruction.op0_kind() == OpKind::Register =>
            {
                if instruction.mnemonic() == Mnemonic::Imul && operands == 1 {
                    return None;
                }
                self.symbols.unknown(32)
            }
            _ => return None,
        })
    }

    fn two(&mut self, at: usize, instruction: &Instruction, size: u64) -> (Sum, Sum) {
        (self.value(at, instruction, 0, size), self.value(at, instruction, 1, size))
    }
}

/// Returns the size of an instruction's write at an address; 0 if unknown.
fn size_of_write(instruction: &Instruction, memory: &UsedMemory) -> u64 {
    if operands::is_repeated(instruction) || instruction.is_vsib() {
        return 0;
    }
    memory.memory_size().size() as u64
}
