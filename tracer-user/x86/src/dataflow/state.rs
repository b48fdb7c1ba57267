//! Values of registers and of places on the stack at one point of a function, and what an instruction does to them.

use crate::instruction::{ARGUMENTS, RBP, RSP, is_direct, may_write, survives_call};
use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpKind, Register};

/// A register, by the processor's number, or a place on the stack, by its distance from the stack pointer at the
/// function's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataPlace {
    /// A register.
    Register(u8),
    /// Eight bytes on the stack.
    Stack(i64),
}

/// Origin of a value that is not a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueOrigin {
    /// The register's value at the function's entry.
    Entry(u8),
    /// The instruction at this address has put it there.
    Defined(u64, DataPlace),
    /// Several paths meet at this address, and bring different values for this place.
    Merged(u64, DataPlace),
    /// Loaded from this constant address, which the dynamic linker fills in.
    Slot(u64),
}

/// A value: `base + index * scale + plus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Value to which the rest is added; `None` for a constant.
    pub base: Option<ValueOrigin>,
    /// Multiplied value, and its factor.
    pub index: Option<(ValueOrigin, u8)>,
    /// The constant part.
    pub plus: i64,
}

impl Value {
    pub(super) const fn origin(origin: ValueOrigin) -> Self {
        Self { base: Some(origin), index: None, plus: 0 }
    }

    /// A number.
    #[must_use]
    pub const fn constant(plus: i64) -> Self {
        Self { base: None, index: None, plus }
    }

    /// The number, where it is one.
    #[must_use]
    pub const fn as_constant(self) -> Option<u64> {
        match self {
            Self { base: None, index: None, plus } => Some(plus.cast_unsigned()),
            _ => None,
        }
    }

    /// Value that a function's first argument has, and this constant is added to.
    #[must_use]
    pub const fn behind_argument(plus: i64) -> Self {
        Self { plus, ..Self::origin(ValueOrigin::Entry(ARGUMENTS[0])) }
    }

    /// Returns true if callers can compute the value: it is constant, or lies behind the first argument.
    pub(crate) fn is_of_caller(self) -> bool {
        self.as_constant().is_some() || self.distance_from(Self::behind_argument(0)).is_some()
    }

    /// Returns this value of a called function in terms of its caller, which passes `argument` as the first one.
    pub(crate) fn in_caller(self, argument: Self) -> Option<Self> {
        match self.distance_from(Self::behind_argument(0)) {
            Some(plus) => Some(argument.add(plus)),
            None => self.as_constant().map(|_| self),
        }
    }

    /// Returns the constant difference `self - other`, or `None` if it is not constant.
    #[must_use]
    pub fn distance_from(self, other: Self) -> Option<i64> {
        (self.base == other.base && self.index == other.index)
            .then(|| self.plus.wrapping_sub(other.plus))
    }

    fn add(self, plus: i64) -> Self {
        Self { plus: self.plus.wrapping_add(plus), ..self }
    }

    /// The place on the stack that this is the address of.
    #[must_use]
    pub fn on_stack(self) -> Option<i64> {
        let is_stack = self.base == Some(ValueOrigin::Entry(RSP)) && self.index.is_none();
        is_stack.then_some(self.plus)
    }

    fn is_made_by(self, address: u64) -> bool {
        let by =
            |origin: ValueOrigin| matches!(origin, ValueOrigin::Defined(at, _) if at == address);
        self.base.is_some_and(by) || self.index.is_some_and(|(origin, _)| by(origin))
    }
}

/// The processor's number of a general register.
#[must_use]
pub fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    (full.is_gpr64()).then(|| full.number() as u8)
}

/// Contents of all places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataState {
    registers: [Value; 16],
    /// By place. A list, since states are copied for each block.
    stack: Vec<(i64, Value)>,
}

impl DataState {
    pub(super) fn at_entry() -> Self {
        let registers =
            std::array::from_fn(|register| Value::origin(ValueOrigin::Entry(register as u8)));
        Self { registers, stack: Vec::new() }
    }

    /// Returns the value of a register.
    #[must_use]
    pub fn register(&self, register: u8) -> Value {
        self.registers[usize::from(register & 15)]
    }

    /// Returns the known places on the stack: the distance of each above the stack pointer, and its value.
    pub fn stack(&self) -> impl Iterator<Item = (i64, Value)> {
        let sp = self.register(RSP).on_stack();
        self.stack.iter().filter_map(move |&(place, value)| Some((place.wrapping_sub(sp?), value)))
    }

    /// Returns the value of a place.
    #[must_use]
    pub fn get(&self, place: DataPlace) -> Option<Value> {
        match place {
            DataPlace::Register(register) => Some(self.register(register)),
            DataPlace::Stack(offset) => self.on_stack(offset),
        }
    }

    fn on_stack(&self, offset: i64) -> Option<Value> {
        let at = self.stack.binary_search_by_key(&offset, |(place, _)| *place).ok()?;
        Some(self.stack[at].1)
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        self.registers[usize::from(register & 15)] = value;
    }

    /// Takes in what another path brings to an address; returns whether anything changed.
    pub(super) fn merge(&mut self, other: &Self, at: u64) -> bool {
        let mut changed = false;
        for (number, (mine, &theirs)) in
            (0_u8..).zip(self.registers.iter_mut().zip(&other.registers))
        {
            if *mine != theirs {
                let merged = Value::origin(ValueOrigin::Merged(at, DataPlace::Register(number)));
                changed |= *mine != merged;
                *mine = merged;
            }
        }
        let mut others = other.stack.iter().peekable();
        self.stack.retain_mut(|(offset, mine)| {
            while others.next_if(|(place, _)| place < offset).is_some() {}
            let Some((_, theirs)) = others.next_if(|(place, _)| place == offset) else {
                changed = true;
                return false;
            };
            if mine != theirs {
                let merged = Value::origin(ValueOrigin::Merged(at, DataPlace::Stack(*offset)));
                changed |= *mine != merged;
                *mine = merged;
            }
            true
        });
        changed
    }

    /// The address that an instruction's memory operand is at; `None` in another segment, or where the form is not
    /// one of [`Value`]'s.
    #[must_use]
    pub fn address(&self, instruction: &Instruction) -> Option<Value> {
        if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
            return None;
        }
        let displacement = instruction.memory_displacement64().cast_signed();
        if instruction.is_ip_rel_memory_operand() {
            return Some(Value::constant(displacement));
        }
        let mut address = match instruction.memory_base() {
            Register::None => Value::constant(0),
            base => self.register(number(base)?),
        };
        if instruction.memory_index() != Register::None {
            let index = self.register(number(instruction.memory_index())?);
            let scale = instruction.memory_index_scale() as u8;
            match (address.index, index) {
                (_, Value { base: None, index: None, .. }) => {}
                (None, Value { base: Some(origin), index: None, .. }) => {
                    address.index = Some((origin, scale));
                }
                _ => return None,
            }
            address = address.add(index.plus.wrapping_mul(scale.into()));
        }
        Some(address.add(displacement))
    }

    /// Returns the target of a call or jump, if it is a known value.
    #[must_use]
    pub fn target(
        &self,
        instruction: &Instruction,
        is_slot: &dyn Fn(u64) -> bool,
    ) -> Option<Value> {
        match instruction.op0_kind() {
            _ if is_direct(instruction) => {
                Some(Value::constant(instruction.near_branch_target().cast_signed()))
            }
            OpKind::Register => Some(self.register(number(instruction.op0_register())?)),
            OpKind::Memory => self.load(self.address(instruction)?, is_slot),
            _ => None,
        }
    }

    fn load(&self, address: Value, is_slot: &dyn Fn(u64) -> bool) -> Option<Value> {
        if let Some(offset) = address.on_stack() {
            return self.on_stack(offset);
        }
        let slot = address.as_constant().filter(|&slot| is_slot(slot))?;
        Some(Value::origin(ValueOrigin::Slot(slot)))
    }

    pub(super) fn step(&mut self, instruction: &Instruction, is_slot: &dyn Fn(u64) -> bool) {
        let at = instruction.ip();
        let first = number_of_operand(instruction);
        let known = match (instruction.code(), first) {
            (Code::Mov_r64_rm64 | Code::Mov_rm64_r64, Some(to)) => {
                if instruction.op1_kind() == OpKind::Memory {
                    self.address(instruction)
                        .and_then(|address| self.load(address, is_slot))
                        .map(|value| (to, value))
                } else {
                    number(instruction.op1_register()).map(|from| (to, self.register(from)))
                }
            }
            // The upper half becomes zero: what fits into the lower one is kept.
            (Code::Mov_r32_rm32 | Code::Mov_rm32_r32, Some(to))
                if instruction.op1_kind() == OpKind::Register =>
            {
                let from = number(instruction.op1_register()).map(|from| self.register(from));
                from.filter(|from| {
                    from.as_constant().is_some_and(|value| u32::try_from(value).is_ok())
                })
                .map(|value| (to, value))
            }
            (Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32, Some(to)) => {
                Some((to, Value::constant(instruction.immediate(1).cast_signed())))
            }
            (Code::Xor_rm32_r32 | Code::Xor_r32_rm32, Some(to))
                if instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register() =>
            {
                Some((to, Value::constant(0)))
            }
            (Code::Lea_r64_m, Some(to)) => self.address(instruction).map(|value| (to, value)),
            (Code::Add_rm64_imm8 | Code::Add_rm64_imm32, Some(to)) => {
                Some((to, self.register(to).add(instruction.immediate(1).cast_signed())))
            }
            (Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32, Some(to)) => {
                let less = instruction.immediate(1).cast_signed().wrapping_neg();
                Some((to, self.register(to).add(less)))
            }
            _ => None,
        };
        if let Some((to, value)) = known {
            self.set(to, value);
            return;
        }
        self.forget(at);
        match (instruction.flow_control(), instruction.code()) {
            (FlowControl::Call | FlowControl::IndirectCall, _) => {
                for number in (0..16).filter(|number| !survives_call(*number)) {
                    self.define(number, at);
                }
            }
            (_, Code::Push_r64) => {
                let value = number(instruction.op0_register()).map(|from| self.register(from));
                self.lower(-8);
                self.store(self.register(RSP), 8, value, at);
            }
            (_, Code::Pop_r64) => {
                let value = self.load(self.register(RSP), is_slot);
                self.lower(8);
                if let Some(to) = first {
                    self.define(to, at);
                    if let Some(value) = value {
                        self.set(to, value);
                    }
                }
            }
            (_, Code::Leaveq) => {
                let frame = self.register(RBP);
                let value = self.load(frame, is_slot);
                self.set(RSP, frame.add(8));
                self.define(RBP, at);
                if let Some(value) = value {
                    self.set(RBP, value);
                }
            }
            (_, Code::Mov_rm64_r64) if instruction.op0_kind() == OpKind::Memory => {
                let value = number(instruction.op1_register()).map(|from| self.register(from));
                if let Some(address) = self.address(instruction) {
                    self.store(address, 8, value, at);
                }
            }
            _ => self.other(instruction),
        }
    }

    /// Forgets the earlier results of an instruction, which differ from the new ones. An instruction that makes
    /// nothing new never did: merging paths only loses knowledge.
    fn forget(&mut self, at: u64) {
        for number in 0..16 {
            if self.register(number).is_made_by(at) {
                self.set(
                    number,
                    Value::origin(ValueOrigin::Merged(at, DataPlace::Register(number))),
                );
            }
        }
        for (offset, value) in &mut self.stack {
            if value.is_made_by(at) {
                *value = Value::origin(ValueOrigin::Merged(at, DataPlace::Stack(*offset)));
            }
        }
    }

    /// Applies an instruction of which only the written places are known.
    fn other(&mut self, instruction: &Instruction) {
        let at = instruction.ip();
        let mut info = InstructionInfoFactory::new();
        let info = info.info(instruction);
        let pointer = instruction.stack_pointer_increment();
        for used in info.used_registers() {
            let Some(written) = number(used.register()).filter(|_| may_write(used.access())) else {
                continue;
            };
            if !(written == RSP && pointer != 0) {
                self.define(written, at);
            }
        }
        let wrote = info.used_memory().iter().any(|memory| may_write(memory.access()));
        self.lower(pointer.into());
        if wrote && let Some(address) = self.address(instruction) {
            let bytes = instruction.memory_size().size().max(1);
            self.store(address, bytes as i64, None, at);
        }
    }

    fn define(&mut self, register: u8, at: u64) {
        self.set(register, Value::origin(ValueOrigin::Defined(at, DataPlace::Register(register))));
    }

    fn lower(&mut self, by: i64) {
        self.set(RSP, self.register(RSP).add(by));
    }

    fn store(&mut self, address: Value, bytes: i64, value: Option<Value>, at: u64) {
        let Some(offset) = address.on_stack() else { return };
        // Stored values that overlap the written bytes are no longer valid.
        let from = self.stack.partition_point(|&(other, _)| other <= offset.saturating_sub(8));
        let to = self.stack.partition_point(|&(other, _)| other < offset.saturating_add(bytes));
        let made = Value::origin(ValueOrigin::Defined(at, DataPlace::Stack(offset)));
        // A part of eight bytes is not tracked.
        let kept = (bytes >= 8).then(|| (offset, value.unwrap_or(made)));
        self.stack.splice(from..to, kept);
    }
}

fn number_of_operand(instruction: &Instruction) -> Option<u8> {
    let is_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    is_register.then(|| number(instruction.op0_register())).flatten()
}
