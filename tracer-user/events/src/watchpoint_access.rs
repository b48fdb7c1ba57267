//! Decodes watchpoint hits: the accessing instruction, and whether it read or wrote. x86 traps after the access, so
//! the instruction is the one before the saved address.

mod transfer;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};
use symbolize::ProcessAddr;
use x86::{
    commuting::{CommutingUpdate, commuting_update, is_last_owner_test},
    instruction::{decode, decode_first},
};

pub use self::transfer::transfer;
use super::code_map::{CodeMap, NoFunction};
use plan::memory::instructions;

/// Use of memory by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A read and then a write, with other accesses possible in between.
    ReadThenWrite,
    /// A read and a write in one step.
    Update,
}

impl AccessKind {
    /// Returns whether it writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Returns whether it reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }
}

/// A decoded access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The accessing instruction.
    pub instruction: ProcessAddr,
    /// Use of the operand.
    pub what: MemoryUse,
    /// Maximal number of bytes that it accesses at once.
    pub bytes: u64,
    /// Set if it commutes with others of its kind.
    pub commuting: Option<CommutingUpdate>,
    /// Set for a read that only tests for the last owner of a shared pointer.
    pub is_last_owner_test: bool,
    /// Set if a mask decides which parts of its operand it accesses. Processors trap for the other parts, too.
    pub is_masked: bool,
}

/// Use of memory by an instruction, as far as its code determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    kind: AccessKind,
    /// Set for a compare-and-exchange, which has written only if it left the zero flag set.
    compares: bool,
}

impl MemoryUse {
    /// Returns the use that happened, by the processor's flags after it.
    #[must_use]
    pub const fn done(self, flags: u64) -> AccessKind {
        const ZERO_FLAG: u64 = 1 << 6;
        // The processor writes back the old value where the comparison failed: no thread can notice.
        if self.compares && flags & ZERO_FLAG == 0 { AccessKind::Read } else { self.kind }
    }
}

/// Reason for which the instruction of a watchpoint hit is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Undecoded {
    /// The code is in no mapped file, or the file cannot be read.
    #[error("the code is in no file that could be read, as generated code")]
    NoFile,
    /// Neither a symbol nor unwind information says where a function with this code starts.
    #[error("neither symbols nor unwind information say where the function starts")]
    NoFunction,
    /// Decoding from the function's start misses the saved address.
    #[error("the function's bytes are not all instructions")]
    NoInstructions,
    /// Control came there by a call or jump through memory.
    #[error("the call or jump through memory that led there is not known")]
    Transfer,
}

/// Finds the instruction that accessed memory just before `next` was to be executed.
///
/// # Errors
///
/// Why it is not known. For [`Undecoded::Transfer`], [`transfer`] may know it.
pub fn before(code: &impl CodeMap, next: ProcessAddr) -> Result<Access, Undecoded> {
    let (instruction, what) = find(code, next)?;
    let code_at = |at| code.bytes_at(ProcessAddr(at), 15);
    let function = || {
        let range = code.function_at(ProcessAddr(instruction.ip())).ok()?;
        let length = usize::try_from(range.end.0.checked_sub(range.start.0)?).ok()?;
        Some(decode(code.bytes_at(range.start, length)?, range.start.0))
    };
    Ok(Access {
        instruction: ProcessAddr(instruction.ip()),
        what,
        bytes: instruction.memory_size().size() as u64,
        commuting: commuting_update(&instruction, &code_at),
        is_last_owner_test: is_last_owner_test(
            &instruction,
            &code_at,
            function().into_iter().flatten(),
        ),
        is_masked: instructions::is_masked(&instruction),
    })
}

fn find(code: &impl CodeMap, next: ProcessAddr) -> Result<(Instruction, MemoryUse), Undecoded> {
    let before = preceding(code, next);
    let reason = before.err().unwrap_or(Undecoded::Transfer);
    choose(before.ok(), decode_at(code, next)).ok_or(reason)
}

/// Decides between the instruction before the saved address and the one at it, which has the access when it is a
/// repeated string instruction: that traps after a round with its own address saved.
fn choose(
    before: Option<Instruction>,
    at: Option<Instruction>,
) -> Option<(Instruction, MemoryUse)> {
    let is_repeated = |instruction: &Instruction| {
        (instruction.has_rep_prefix() || instruction.has_repne_prefix())
            && instruction.is_string_instruction()
    };
    let with_use = |instruction: Instruction| Some((instruction, memory_use(&instruction)?));
    let before = before.and_then(with_use);
    match at.filter(is_repeated).and_then(with_use) {
        None => before,
        Some(at) if before.is_none() => Some(at),
        // Either may have it. To take a write for a read hides something; the other way round would make it up.
        Some(at) => [before, Some(at)].into_iter().flatten().find(|(_, what)| !what.kind.writes()),
    }
}

/// Returns the instruction before an address.
fn preceding(code: &impl CodeMap, next: ProcessAddr) -> Result<Instruction, Undecoded> {
    let start = start_of(code, next)?;
    let length = next.0.checked_sub(start.0).and_then(|length| usize::try_from(length).ok());
    let bytes = length.and_then(|length| code.bytes_at(start, length));
    let bytes = bytes.ok_or(Undecoded::NoFile)?;
    let last = decode(bytes, start.0).last();
    let last = last.filter(|last| !last.is_invalid() && last.next_ip() == next.0);
    let last = last.ok_or(Undecoded::NoInstructions)?;
    // A jump does not fall through to what follows it: control came from elsewhere.
    if matches!(
        last.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::IndirectBranch
    ) {
        return Err(Undecoded::Transfer);
    }
    Ok(last)
}

/// Returns the start of the function with the instruction before an address.
fn start_of(code: &impl CodeMap, next: ProcessAddr) -> Result<ProcessAddr, Undecoded> {
    let at_next = code.function_at(next);
    if at_next == Err(NoFunction::NoFile) {
        return Err(Undecoded::NoFile);
    }
    let before = next.0.checked_sub(1).map(|before| code.function_at(ProcessAddr(before)));
    if let Some(Ok(range)) = before {
        return Ok(range.start);
    }
    // There is no code between functions.
    let is_start = at_next.is_ok_and(|range| range.start == next);
    Err(if is_start { Undecoded::Transfer } else { Undecoded::NoFunction })
}

fn decode_at(code: &impl CodeMap, address: ProcessAddr) -> Option<Instruction> {
    let bytes = code.bytes_at(address, 15)?;
    let instruction = decode_first(bytes, address.0);
    (!instruction.is_invalid()).then_some(instruction)
}

/// Returns the use of memory by an instruction, if there is any.
fn memory_use(instruction: &Instruction) -> Option<MemoryUse> {
    let (mut reads, mut writes) = (false, false);
    for memory in InstructionInfoFactory::new().info(instruction).used_memory() {
        // The watched bytes are not the stack slot that a `push` or `call` writes.
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
    let kind = match (reads, writes) {
        (true, true) if locked => AccessKind::Update,
        // `movs` reads one place and writes another; which of them is watched is not known here.
        (true, true) if instruction.is_string_instruction() => AccessKind::Read,
        (true, true) => AccessKind::ReadThenWrite,
        (true, false) => AccessKind::Read,
        (false, true) => AccessKind::Write,
        (false, false) => return None,
    };
    let compares = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b
    );
    Some(MemoryUse { kind, compares })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(code: &[u8]) -> Instruction {
        decode_first(code, 0)
    }

    fn kind(code: &[u8]) -> Option<AccessKind> {
        memory_use(&decode(code)).map(|what| what.kind)
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

    #[test]
    fn what_a_mask_selects_is_not_known() {
        let masked = |code: &[u8]| instructions::is_masked(&decode(code));
        assert!(masked(&[0x62, 0xe1, 0x7f, 0x49, 0x7f, 0x00]), "vmovdqu8 [rax] by a mask, zmm16");
        assert!(masked(&[0xc4, 0xe2, 0x75, 0x8e, 0x07]), "vpmaskmovd [rdi],ymm1,ymm0");
        assert!(!masked(&[0xc5, 0xfe, 0x7f, 0x07]), "vmovdqu [rdi],ymm0");
    }

    #[test]
    fn a_comparison_that_failed_has_written_nothing() {
        const EQUAL: u64 = 0x246;
        const UNEQUAL: u64 = 0x206;
        let locked = memory_use(&decode(&[0xf0, 0x48, 0x0f, 0xb1, 0x17])).unwrap();
        assert_eq!(locked.done(EQUAL), AccessKind::Update, "lock cmpxchg [rdi],rdx");
        assert_eq!(locked.done(UNEQUAL), AccessKind::Read);
        let wide = memory_use(&decode(&[0xf0, 0x48, 0x0f, 0xc7, 0x0f])).unwrap();
        assert_eq!(wide.done(UNEQUAL), AccessKind::Read, "lock cmpxchg16b [rdi]");
        let add = memory_use(&decode(&[0xf0, 0x48, 0x83, 0x07, 1])).unwrap();
        assert_eq!(add.done(UNEQUAL), AccessKind::Update, "lock add [rdi],1");
    }

    #[test]
    fn before_a_repeated_instruction_nothing_is_made_up() {
        let chosen = |before: &[u8], at: &[u8]| {
            choose(Some(decode(before)), Some(decode(at)))
                .map(|(instruction, what)| (instruction == decode(before), what.kind))
        };
        let (load, store, compute) = ([0x48, 0x8b, 0x03], [0x48, 0x89, 0x03], [0x31, 0xc0]);
        let (fill, search) = ([0xf3, 0x48, 0xab], [0xf2, 0xae]);
        let (before, at) = (true, false);
        assert_eq!(chosen(&compute, &fill), Some((at, AccessKind::Write)));
        assert_eq!(chosen(&load, &fill), Some((before, AccessKind::Read)));
        assert_eq!(chosen(&store, &search), Some((at, AccessKind::Read)));
        assert_eq!(chosen(&load, &search), Some((before, AccessKind::Read)));
        assert_eq!(chosen(&store, &fill), None, "not known which: it counts as a read");
        assert_eq!(chosen(&store, &compute), Some((before, AccessKind::Write)));
        assert_eq!(chosen(&load, &[0x48, 0xab]), Some((before, AccessKind::Read)), "not repeated");
    }
}
