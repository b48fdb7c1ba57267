//! Activity of a function's own code beside its calls: jumps back, atomic operations, accesses to memory that other
//! threads may share, and calls through pointers. Recognizes instructions; values are not followed.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use symbolize::LinkAddr;

use crate::filled_slots::{FilledSlot, KnownRegisters};

/// Activity of a function, by the addresses of its instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Jumps back, each with its target before it: loops, if control comes from the target to the jump.
    pub jumps_back: Vec<(LinkAddr, LinkAddr)>,
    /// Atomic operations on memory that do not commute with one another: exchanges, compare-and-exchanges, and
    /// changes of bits. Additions, of which reference counts and statistics are made, count only to a global
    /// variable that another instruction accesses as well. Other accesses to such a variable are among them, and so are
    /// reads of what the function exchanges: an atomic load is an ordinary instruction.
    pub atomics: Vec<LinkAddr>,
    /// Accesses to global variables, and stores through pointers.
    pub shared: Vec<LinkAddr>,
    /// Calls through pointers in memory.
    pub through: Vec<PointerCall>,
    /// Words of global variables that it fills with constants.
    pub filled: Vec<FilledSlot>,
}

/// Call through a pointer in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerCall {
    /// The calling instruction.
    pub at: LinkAddr,
    /// Place of the pointer.
    pub slot: PointerSlot,
    /// Set unless this is a tail call.
    pub returns: bool,
}

/// Place of a pointer to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerSlot {
    /// A global variable, or a field of one.
    Global(LinkAddr),
    /// A field at this offset, in bytes, of a structure that a pointer leads to.
    Field(i64),
}

impl Activity {
    /// Adds the activity of the instructions of one part of a function.
    pub(crate) fn add(&mut self, instructions: &[Instruction]) {
        let Some(first) = instructions.first().map(Instruction::ip) else { return };
        let has_frame = instructions.iter().take(8).any(|one| {
            one.code() == Code::Mov_r64_rm64 && registers(one) == [Register::RBP, Register::RSP]
                || one.code() == Code::Mov_rm64_r64
                    && registers(one) == [Register::RBP, Register::RSP]
        });
        // By register: the pointer in memory that it holds, in the same straight line.
        let mut read: Vec<(Register, PointerSlot)> = Vec::new();
        let mut constants = KnownRegisters::default();
        let (mut accesses, mut of_globals) = (Vec::new(), Vec::new());
        let (mut reads, mut exchanged) = (Vec::new(), Vec::new());
        let mut values = RegisterSettings::default();
        for instruction in instructions {
            let at = LinkAddr(instruction.ip());
            match instruction.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    if (first..=at.0).contains(&target) {
                        self.jumps_back.push((LinkAddr(target), at));
                    }
                }
                FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                    let returns = instruction.flow_control() == FlowControl::IndirectCall;
                    let slot = match instruction.op0_kind() {
                        OpKind::Memory => slot(instruction),
                        OpKind::Register => read
                            .iter()
                            .find(|(register, _)| *register == instruction.op0_register())
                            .map(|(_, slot)| *slot),
                        _ => None,
                    };
                    self.through.extend(slot.map(|slot| PointerCall { at, slot, returns }));
                }
                FlowControl::Next => {
                    let is_shared = accesses_shared(instruction, has_frame);
                    let is_atomic = is_atomic(instruction);
                    if is_atomic && !adds(instruction) {
                        self.atomics.push(at);
                    }
                    if is_atomic && instruction.mnemonic() == Mnemonic::Xchg {
                        exchanged.extend(field(instruction, has_frame, &values));
                    } else if reads_only(instruction) {
                        let read = field(instruction, has_frame, &values);
                        reads.extend(read.map(|field| (at, field)));
                    }
                    if is_shared && let Some(PointerSlot::Global(global)) = slot(instruction) {
                        if is_atomic {
                            of_globals.push((at, global));
                        }
                        accesses.push((at, global));
                    }
                    if is_shared {
                        self.shared.push(at);
                    } else if instruction.mnemonic() == Mnemonic::Lea
                        && let Some(PointerSlot::Global(global)) = slot(instruction)
                    {
                        accesses.push((at, global));
                    }
                }
                _ => {}
            }
            values.follow(instruction);
            if !matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            ) {
                read.clear();
                constants.clear();
                continue;
            }
            self.filled.extend(constants.follow(instruction));
            if instruction.op_count() > 0
                && instruction.op0_kind() == OpKind::Register
                && !is_comparison(instruction)
            {
                let register = instruction.op0_register();
                read.retain(|(other, _)| *other != register.full_register());
                let reads = instruction.code() == Code::Mov_r64_rm64
                    && instruction.op1_kind() == OpKind::Memory;
                read.extend(
                    reads.then(|| slot(instruction)).flatten().map(|slot| (register, slot)),
                );
            }
        }
        for (operation, global) in of_globals {
            let other = accesses.iter().find(|&&(at, other)| at != operation && other == global);
            self.atomics.extend(other.into_iter().flat_map(|&(access, _)| [operation, access]));
        }
        reads.retain(|(_, read)| exchanged.contains(read));
        self.atomics.extend(reads.into_iter().map(|(at, _)| at));
        self.atomics.sort_unstable();
        self.atomics.dedup();
    }
}

/// Field of a structure, or element of a table, that an instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordPlace {
    offset: i64,
    /// Size, in bytes.
    size: usize,
    /// Distance of two elements of a table, in bytes. Both the table and the index may have moved to other
    /// registers meanwhile.
    scale: Option<u32>,
    /// Pointer to a structure at whose start the field is: so many have that offset.
    pointer: Option<Setting>,
}

fn field(
    instruction: &Instruction,
    has_frame: bool,
    values: &RegisterSettings,
) -> Option<WordPlace> {
    let base = instruction.memory_base();
    let is_own = instruction.segment_prefix() != Register::None;
    if is_own || matches!(base, Register::RSP) || has_frame && base == Register::RBP {
        return None;
    }
    let size = instruction.memory_size().size();
    let of_address = |address: LinkAddr| WordPlace {
        offset: address.0.cast_signed(),
        size,
        scale: None,
        pointer: None,
    };
    let has_index = instruction.memory_index() != Register::None;
    match slot(instruction) {
        Some(PointerSlot::Global(global)) => Some(of_address(global)),
        Some(PointerSlot::Field(offset)) => {
            let pointer = (offset == 0).then(|| values.of(base));
            Some(WordPlace { offset, size, scale: None, pointer })
        }
        None if has_index => Some(WordPlace {
            offset: instruction.memory_displacement64().cast_signed(),
            size,
            scale: Some(instruction.memory_index_scale()),
            pointer: None,
        }),
        None => None,
    }
}

/// Value that a register had at some point: the register, and the number of the instruction that set it; 0 from the
/// start.
type Setting = (Register, usize);

/// Values of registers in straight order, as far as they were copied from one to another.
#[derive(Debug, Default)]
struct RegisterSettings {
    held: Vec<(Register, Setting)>,
    count: usize,
}

impl RegisterSettings {
    fn of(&self, register: Register) -> Setting {
        let register = register.full_register();
        let held = self.held.iter().find(|(other, _)| *other == register);
        held.map_or((register, 0), |(_, value)| *value)
    }

    fn set(&mut self, register: Register, value: Setting) {
        let register = register.full_register();
        self.held.retain(|(other, _)| *other != register);
        self.held.push((register, value));
    }

    fn follow(&mut self, instruction: &Instruction) {
        self.count += 1;
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            for register in SCRATCH {
                self.set(register, (register, self.count));
            }
            return;
        }
        let is_set = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && !is_comparison(instruction)
            && instruction.mnemonic() != Mnemonic::Push;
        if !is_set {
            return;
        }
        let register = instruction.op0_register();
        let is_copy = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64)
            && instruction.op1_kind() == OpKind::Register;
        let value = match is_copy {
            true => self.of(instruction.op1_register()),
            false => (register.full_register(), self.count),
        };
        self.set(register, value);
    }
}

/// Registers that a function may leave changed.
const SCRATCH: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// Returns true for a load from memory, and for a comparison with it.
fn reads_only(instruction: &Instruction) -> bool {
    let is_memory = |operand| {
        instruction.op_count() > operand && instruction.op_kind(operand) == OpKind::Memory
    };
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => is_memory(1),
        Mnemonic::Cmp | Mnemonic::Test => is_memory(0) || is_memory(1),
        _ => false,
    }
}

fn registers(instruction: &Instruction) -> [Register; 2] {
    [instruction.op0_register(), instruction.op1_register()]
}

/// Place of the pointer that an instruction reads; `None` on the stack, and in a table with an index.
fn slot(instruction: &Instruction) -> Option<PointerSlot> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(PointerSlot::Global(LinkAddr(instruction.ip_rel_memory_address())));
    }
    let displacement = instruction.memory_displacement64().cast_signed();
    match (instruction.memory_base(), instruction.memory_index()) {
        (Register::None, Register::None) => {
            Some(PointerSlot::Global(LinkAddr(instruction.memory_displacement64())))
        }
        (Register::RSP | Register::None, _) => None,
        (_, Register::None) => Some(PointerSlot::Field(displacement)),
        _ => None,
    }
}

fn is_comparison(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}

/// Returns true for an atomic operation on memory.
fn is_atomic(instruction: &Instruction) -> bool {
    let is_memory = (0..instruction.op_count().min(2))
        .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    // `lock or [rsp], 0` is a fence.
    let is_stack = instruction.memory_base() == Register::RSP;
    let is_atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    is_memory && !is_stack && is_atomic
}

fn adds(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xadd
    )
}

/// Returns true for an access to a global variable, or a store through a pointer that is not one to the frame.
fn accesses_shared(instruction: &Instruction, has_frame: bool) -> bool {
    let operands = instruction.op_count();
    let is_memory = (0..operands).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let computes = matches!(
        instruction.mnemonic(),
        Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Prefetchw
    );
    // Thread-local variables, and stack protectors.
    let is_own = instruction.segment_prefix() != Register::None;
    if !is_memory || computes || is_own {
        return false;
    }
    let base = instruction.memory_base();
    let is_frame = base == Register::RSP || has_frame && base == Register::RBP;
    let is_global = instruction.is_ip_rel_memory_operand() || base == Register::None;
    let is_store = instruction.op0_kind() == OpKind::Memory
        && !is_comparison(instruction)
        && !matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Bt);
    is_global || is_store && !is_frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    fn of(code: &[u8]) -> Activity {
        let instructions: Vec<Instruction> = decode(code, 0x1000).collect();
        let mut activity = Activity::default();
        activity.add(&instructions);
        activity
    }

    fn at(offset: u64) -> LinkAddr {
        LinkAddr(0x1000 + offset)
    }

    #[test]
    fn jumps_back_are_found() {
        // nop; nop; jne to the second; je forward
        let found = of(&[0x90, 0x90, 0x75, 0xfd, 0x74, 0x10]);
        assert_eq!(found.jumps_back, [(at(1), at(2))]);
    }

    #[test]
    fn additions_are_no_changes() {
        // lock cmpxchg [rdi], esi; xchg [rdi], eax; lock inc [rdi]; lock xadd [rdi], eax; lock or [rsp], 0
        let code = [
            &[0xf0, 0x0f, 0xb1, 0x37][..],
            &[0x87, 0x07],
            &[0xf0, 0xff, 0x07],
            &[0xf0, 0x0f, 0xc1, 0x07],
            &[0xf0, 0x83, 0x0c, 0x24, 0],
        ];
        assert_eq!(of(&code.concat()).atomics, [at(0), at(4)]);
        // mov eax, [rip + 8]; lock inc [rip + 1], of one variable; lock inc [rip + 1], of another; the first may as
        // well take the address
        let checked = [
            &[0x8b, 0x05, 8, 0, 0, 0][..],
            &[0xf0, 0xff, 0x05, 1, 0, 0, 0],
            &[0xf0, 0xff, 0x05, 1, 0, 0, 0],
        ];
        assert_eq!(of(&checked.concat()).atomics, [at(0), at(6)]);
    }

    #[test]
    fn loads_of_what_is_exchanged_are_atomic() {
        // movzx eax, byte [rdi + 0x18]; mov eax, [rdi + 0x18]; mov r14, rdi; xchg [r14 + 0x18], al
        let code = [
            &[0x0f, 0xb6, 0x47, 0x18][..],
            &[0x8b, 0x47, 0x18],
            &[0x49, 0x89, 0xfe],
            &[0x41, 0x86, 0x46, 0x18],
        ];
        assert_eq!(of(&code.concat()).atomics, [at(0), at(10)], "the other one is larger");
        // mov rax, [rdi]; mov rax, [rsi]; xchg [rdi], rdx; lock cmpxchg [rsi], rdx
        let code = [
            &[0x48, 0x8b, 0x07][..],
            &[0x48, 0x8b, 0x06],
            &[0x48, 0x87, 0x17],
            &[0xf0, 0x48, 0x0f, 0xb1, 0x16],
        ];
        assert_eq!(of(&code.concat()).atomics, [at(0), at(6), at(9)]);
    }

    #[test]
    fn what_is_exchanged_is_found_by_its_address_in_other_registers() {
        // mov rax, [rdi]; mov rbx, rdi; call; xchg [rbx], rdx
        let code = [
            &[0x48, 0x8b, 0x07][..],
            &[0x48, 0x89, 0xfb],
            &[0xe8, 0, 0, 0, 0],
            &[0x48, 0x87, 0x13],
        ];
        assert_eq!(of(&code.concat()).atomics, [at(0), at(11)]);
        // mov rax, [rdi]; call; xchg [rdi], rdx: the call has changed the pointer
        let code = [&[0x48, 0x8b, 0x07][..], &[0xe8, 0, 0, 0, 0], &[0x48, 0x87, 0x17]];
        assert_eq!(of(&code.concat()).atomics, [at(8)]);
        // mov rbx, [rdi + rdx * 8]; mov eax, [rdi + rdx * 4]; xchg [r14 + r15 * 8], r12
        let code = [&[0x48, 0x8b, 0x1c, 0xd7][..], &[0x8b, 0x04, 0x97], &[0x4f, 0x87, 0x24, 0xfe]];
        assert_eq!(of(&code.concat()).atomics, [at(0), at(7)], "the other one is of another table");
    }

    #[test]
    fn stores_through_pointers_and_globals_are_shared() {
        // mov [rdi], eax; mov eax, [rdi]; mov [rsp], eax; mov eax, [rip + 1]; cmp [rip + 1], eax; mov eax, fs:[0x28]
        let code = [
            &[0x89, 0x07][..],
            &[0x8b, 0x07],
            &[0x89, 0x04, 0x24],
            &[0x8b, 0x05, 1, 0, 0, 0],
            &[0x39, 0x05, 1, 0, 0, 0],
            &[0x64, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0],
        ];
        assert_eq!(of(&code.concat()).shared, [at(0), at(7), at(13)]);
        // push rbp; mov rbp, rsp; mov [rbp - 8], eax; without the frame it is any pointer
        let framed = [0x55, 0x48, 0x89, 0xe5, 0x89, 0x45, 0xf8];
        assert_eq!(of(&framed).shared, []);
        assert_eq!(of(&framed[4..]).shared, [at(0)]);
    }

    #[test]
    fn calls_through_fields_and_globals_are_found() {
        // call [rax + 0x20]; jmp [rip + 0x10]; mov rdx, [rbx + 8]; call rdx; call rdx
        let code = [
            &[0xff, 0x50, 0x20][..],
            &[0xff, 0x25, 0x10, 0, 0, 0],
            &[0x48, 0x8b, 0x53, 8],
            &[0xff, 0xd2],
            &[0xff, 0xd2],
        ];
        let call = |offset, slot, returns| PointerCall { at: at(offset), slot, returns };
        assert_eq!(
            of(&code.concat()).through,
            [
                call(0, PointerSlot::Field(0x20), true),
                call(3, PointerSlot::Global(at(0x19)), false),
                call(13, PointerSlot::Field(8), true),
            ]
        );
    }
}
