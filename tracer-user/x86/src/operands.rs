//! Memory accesses of an instruction, from its form alone.

use abi::AccessDescriptor;
use iced_x86::{
    Code, CodeSize, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

/// Access of an instruction to one range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandAccess {
    /// An address from general registers.
    Plain(Operand),
    /// The stack, which the instruction implies: a push, a call.
    Stack,
    /// In another segment, which is the thread's own.
    ThreadLocal,
    /// An address or size that general registers do not determine.
    Unsupported(Unsupported),
}

/// Reason why the accessed memory cannot be computed from general registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// A mask selects the parts that are accessed.
    Masked,
    /// A gather or scatter has an address for each part of a vector.
    Gather,
    /// The data found decides how far the access reaches.
    DataDependent,
    /// The instruction does not encode the number of bytes.
    Size,
    /// The address is not computed from whole general registers.
    AddressForm,
}

/// A place in memory, and the kind of the access there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The address without registers; an address of the file when [`is_static`](Self::is_static).
    pub displacement: u64,
    /// A 64-bit general register, or [`Register::None`].
    pub base: Register,
    /// A 64-bit general register that is multiplied, or [`Register::None`].
    pub index: Register,
    /// 1, 2, 4 or 8.
    pub scale: u32,
    /// Set if the address is relative to the instruction.
    pub is_static: bool,
    /// In bytes; of a repeated instruction, the bytes of each round.
    pub size: u16,
    /// Flags of [`AccessDescriptor`], without [`AccessDescriptor::INDIRECT`].
    pub flags: u8,
    /// Set if the access is repeated `rcx` times.
    pub is_repeated: bool,
}

/// Returns true if an instruction orders memory: no access may be reported on the other side of it.
pub fn is_locked(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        || (instruction.mnemonic() == Mnemonic::Xchg && has_memory_operand(instruction))
}

/// Returns true if an instruction only orders memory.
pub fn is_fence(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Mfence | Mnemonic::Lfence | Mnemonic::Sfence)
}

/// Returns true if an instruction repeats itself.
pub fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Returns true if an instruction writes only when a comparison succeeds, and reports it in the zero flag.
pub fn compares(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b)
}

fn has_memory_operand(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// Everything that an instruction does to memory.
pub fn accesses(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Vec<OperandAccess> {
    // These name memory and leave it alone.
    if matches!(
        instruction.mnemonic(),
        Mnemonic::Clflush
            | Mnemonic::Clflushopt
            | Mnemonic::Clwb
            | Mnemonic::Cldemote
            | Mnemonic::Prefetch
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
    ) {
        return Vec::new();
    }
    info.info(instruction)
        .used_memory()
        .iter()
        .filter_map(|memory| {
            let flags = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => AccessDescriptor::READ,
                OpAccess::Write | OpAccess::CondWrite => AccessDescriptor::WRITE,
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    AccessDescriptor::READ | AccessDescriptor::WRITE
                }
                OpAccess::None | OpAccess::NoMemAccess => return None,
            };
            Some(access(instruction, memory, flags))
        })
        .collect()
}

/// Returns true if a mask in a register selects the parts of its operand that an instruction accesses.
pub fn is_masked(instruction: &Instruction) -> bool {
    instruction.has_op_mask()
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Vmaskmovps
                | Mnemonic::Vmaskmovpd
                | Mnemonic::Vpmaskmovd
                | Mnemonic::Vpmaskmovq
                | Mnemonic::Maskmovq
                | Mnemonic::Maskmovdqu
                | Mnemonic::Vmaskmovdqu
        )
}

fn access(instruction: &Instruction, memory: &UsedMemory, mut flags: u8) -> OperandAccess {
    if matches!(instruction.segment_prefix(), Register::FS | Register::GS)
        && matches!(memory.segment(), Register::FS | Register::GS)
    {
        return OperandAccess::ThreadLocal;
    }
    if instruction.is_stack_instruction()
        && matches!(memory.base(), Register::RSP | Register::RBP)
        && !(has_memory_operand(instruction)
            && memory.base() == instruction.memory_base()
            && memory.displacement() == instruction.memory_displacement64())
    {
        return OperandAccess::Stack;
    }
    // The number in the register counts from the operand on, and reaches beyond it.
    let selects_bit = matches!(
        instruction.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) && instruction.op1_kind() == OpKind::Register;
    let is_general = |register: Register| register == Register::None || register.is_gpr64();
    let is_exchanging = instruction.mnemonic() == Mnemonic::Xlatb;
    let repeated = is_repeated(instruction);
    let size = if repeated { instruction.memory_size() } else { memory.memory_size() };
    let size = u16::try_from(size.size()).unwrap_or(0);
    let ends_early = matches!(
        instruction.mnemonic(),
        Mnemonic::Scasb
            | Mnemonic::Scasw
            | Mnemonic::Scasd
            | Mnemonic::Scasq
            | Mnemonic::Cmpsb
            | Mnemonic::Cmpsw
            | Mnemonic::Cmpsd
            | Mnemonic::Cmpsq
    );
    let reason = if instruction.is_vsib() {
        Some(Unsupported::Gather)
    } else if is_masked(instruction) {
        Some(Unsupported::Masked)
    } else if selects_bit || (repeated && ends_early) {
        Some(Unsupported::DataDependent)
    } else if size == 0
        || instruction.is_save_restore_instruction()
        || instruction.mnemonic() == Mnemonic::Enter
        || instruction.mnemonic() == Mnemonic::Clzero
    {
        Some(Unsupported::Size)
    } else if memory.address_size() == CodeSize::Code32
        || memory.address_size() == CodeSize::Code16
        || !is_general(memory.base())
        || !is_general(memory.index())
        || is_exchanging
    {
        Some(Unsupported::AddressForm)
    } else {
        None
    };
    if let Some(reason) = reason {
        return OperandAccess::Unsupported(reason);
    }
    if is_locked(instruction) {
        flags |= AccessDescriptor::ATOMIC;
    }
    if compares(instruction) {
        flags |= AccessDescriptor::WRITES_IF_ZERO;
    }
    let is_static = memory.base() == Register::None
        && memory.index() == Register::None
        && instruction.is_ip_rel_memory_operand();
    OperandAccess::Plain(Operand {
        displacement: memory.displacement(),
        base: memory.base(),
        index: memory.index(),
        scale: memory.scale(),
        is_static,
        size,
        flags,
        is_repeated: repeated,
    })
}

/// Returns true if the address of the stack frame escapes from the function: another thread or a pointer can then
/// write to the stack.
pub fn lets_stack_escape(instructions: &[Instruction]) -> bool {
    let frames = |instruction: &Instruction| {
        matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64 | Code::Lea_r64_m)
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::RBP
            && (instruction.op1_kind() == OpKind::Memory
                && instruction.mnemonic() == Mnemonic::Lea
                && instruction.memory_base() == Register::RSP
                || instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == Register::RSP)
    };
    let has_frame = instructions.iter().any(frames);
    let is_stack = |register: Register| {
        let full = register.full_register();
        full == Register::RSP || (has_frame && full == Register::RBP)
    };
    let mut info = InstructionInfoFactory::new();
    instructions.iter().any(|instruction| {
        let stays = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && is_stack(instruction.op0_register());
        if instruction.mnemonic() == Mnemonic::Lea {
            let of_stack =
                is_stack(instruction.memory_base()) || is_stack(instruction.memory_index());
            return of_stack && !stays;
        }
        let is_harmless = match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop => instruction.op0_register() != Register::RSP,
            Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And => stays,
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Leave => true,
            _ => false,
        };
        if is_harmless {
            return false;
        }
        let info = info.info(instruction);
        (0..instruction.op_count()).any(|operand| {
            instruction.op_kind(operand) == OpKind::Register
                && is_stack(instruction.op_register(operand))
                && info.op_access(operand) != OpAccess::Write
        })
    })
}
