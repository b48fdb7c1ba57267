//! What a watchpoint hit was: the accessing instruction, and whether it read or wrote. x86 traps after the access,
//! so the instruction is the one before the saved address.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    Register,
};

use crate::symbolize::{ElfFile, LinkAddr, ProcessAddr, Symbolizer};

/// How an instruction uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It reads and then writes, and others may get in between.
    ReadThenWrite,
    /// It reads and writes in one step.
    Update,
}

/// A decoded access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The accessing instruction.
    pub instruction: ProcessAddr,
    /// What it does.
    pub kind: AccessKind,
}

/// Finds the instruction that accessed memory just before `next` was to be executed.
///
/// `None` when the code cannot be decoded: the function's start is unknown, or control came from elsewhere.
#[must_use]
pub fn before(symbolizer: &Symbolizer, next: ProcessAddr) -> Option<Access> {
    let module = symbolizer.module_at(next)?;
    let file = module.file().ok()?;
    let next = module.link_address(next)?;
    let (instruction, kind) = find(file, next)?;
    Some(Access { instruction: module.process_address(LinkAddr(instruction.ip()))?, kind })
}

fn find(file: &ElfFile, next: LinkAddr) -> Option<(Instruction, AccessKind)> {
    // A repeated string instruction traps after each round, with its own address saved.
    if let Some(instruction) = decode_at(file, next)
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
        && instruction.is_string_instruction()
        && let Some(kind) = memory_use(&instruction)
    {
        return Some((instruction, kind));
    }
    let extent = file.function_containing(LinkAddr(next.0.checked_sub(1)?))?;
    let length = usize::try_from(next.0.checked_sub(extent.start.0)?).ok()?;
    let code = file.bytes_at(extent.start, length)?;
    let mut last = None;
    for instruction in &mut Decoder::with_ip(64, code, extent.start.0, DecoderOptions::NONE) {
        last = Some(instruction);
    }
    let last = last.filter(|last| !last.is_invalid() && last.next_ip() == next.0)?;
    // A jump does not fall through to what follows it: control came from elsewhere.
    if matches!(
        last.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::IndirectBranch
    ) {
        return None;
    }
    Some((last, memory_use(&last)?))
}

fn decode_at(file: &ElfFile, address: LinkAddr) -> Option<Instruction> {
    let code = file.bytes_at(address, 15)?;
    let instruction = Decoder::with_ip(64, code, address.0, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// How an instruction uses memory; `None` when it does not.
fn memory_use(instruction: &Instruction) -> Option<AccessKind> {
    let (mut reads, mut writes) = (false, false);
    for memory in InstructionInfoFactory::new().info(instruction).used_memory() {
        // What a `push` or `call` puts on the stack is not what is watched.
        if instruction.is_stack_instruction() && memory.base() == Register::RSP {
            continue;
        }
        match memory.access() {
            OpAccess::Read | OpAccess::CondRead => reads = true,
            OpAccess::Write | OpAccess::CondWrite => writes = true,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (reads, writes) = (true, true),
            OpAccess::None | OpAccess::NoMemAccess => {}
        }
    }
    // An exchange with memory is locked without the prefix.
    let locked = instruction.has_lock_prefix()
        || matches!(
            instruction.code(),
            Code::Xchg_rm8_r8 | Code::Xchg_rm16_r16 | Code::Xchg_rm32_r32 | Code::Xchg_rm64_r64
        );
    match (reads, writes) {
        (true, true) if locked => Some(AccessKind::Update),
        // `movs` reads one place and writes another; which of them is watched is not known here.
        (true, true) if instruction.is_string_instruction() => Some(AccessKind::Read),
        (true, true) => Some(AccessKind::ReadThenWrite),
        (true, false) => Some(AccessKind::Read),
        (false, true) => Some(AccessKind::Write),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: &[u8]) -> Option<AccessKind> {
        memory_use(&Decoder::new(64, code, DecoderOptions::NONE).decode())
    }

    #[test]
    fn kinds_of_access_are_told_apart() {
        assert_eq!(kind(&[0x48, 0x8b, 0x07]), Some(AccessKind::Read), "mov rax,[rdi]");
        assert_eq!(kind(&[0x48, 0x89, 0x07]), Some(AccessKind::Write), "mov [rdi],rax");
        assert_eq!(kind(&[0x48, 0x83, 0x07, 1]), Some(AccessKind::ReadThenWrite), "add [rdi],1");
        assert_eq!(
            kind(&[0xf0, 0x48, 0x83, 0x07, 1]),
            Some(AccessKind::Update),
            "lock add [rdi],1"
        );
        assert_eq!(kind(&[0x48, 0x87, 0x07]), Some(AccessKind::Update), "xchg [rdi],rax");
        assert_eq!(kind(&[0x48, 0x39, 0x07]), Some(AccessKind::Read), "cmp [rdi],rax");
        assert_eq!(kind(&[0x48, 0x8d, 0x07]), None, "lea rax,[rdi]");
        assert_eq!(kind(&[0xff, 0x37]), Some(AccessKind::Read), "push [rdi]");
        assert_eq!(kind(&[0x8f, 0x07]), Some(AccessKind::Write), "pop [rdi]");
    }
}
