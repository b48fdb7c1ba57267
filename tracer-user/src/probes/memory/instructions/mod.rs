//! Which probes report what a function's code does to memory. Reads machine code; knows nothing of files, processes or
//! the kernel side, which computes addresses by what is planned here.
//!
//! Code is taken in straight lines that nothing jumps into and that end where control may go elsewhere, also at calls,
//! at instructions that order memory, and where other probes are: an access is reported inside its own line, so never
//! on the wrong side of a lock. In a line one probe can report several accesses, before or after it, when their
//! addresses can still or already be told from registers there, or from a place on the stack that holds the pointer.
//! Probes go on instructions that the kernel emulates, where there is one; else on others, if that is allowed.
//!
//! The stack is not shared, nor are the thread's own variables and what never changes: these are counted and left alone. Strings are taken to
//! be gone through upwards, as the ABI has it, unless the function says otherwise.

mod placement;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};
use tracer_ebpf::AccessDescriptor;

use self::placement::Chooser;
pub use crate::x86::operands::{compares, is_locked, is_masked};
use crate::x86::{
    basic_blocks::BasicBlocks,
    operands::{self, Access, Unsupported},
    symbolic::{Found, Located},
};
use crate::x86::{exits::Part, placement::Cost};

/// One access that a probe reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchPlan {
    /// The link-time address of the accessing instruction.
    pub instruction: u64,
    /// What it does, and how its address is computed where the probe is.
    pub touch: AccessDescriptor,
    /// The displacement is a link-time address: how far the file was moved when it was loaded is to be added to it. There
    /// is no base register then; there may be an index.
    pub is_static: bool,
}

/// A place for a probe, and what it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchPoint {
    /// The link-time address.
    pub at: u64,
    /// What it costs.
    pub cost: Cost,
    /// The accesses, in the order of the program; 8 at most.
    pub touches: Vec<TouchPlan>,
}

/// Why no probe reports an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It is inside a restartable sequence, where no probe may be.
    Restartable,
    /// It cannot be told where control goes in its function.
    HiddenFlow,
    /// No cheap place tells its address.
    NoCheapPoint,
    /// No place that the kernel puts a probe on tells its address.
    NoPoint,
    /// It orders memory, and what follows it does not tell its address.
    Locked,
    /// Which of its parts are accessed is told by a mask.
    Masked,
    /// It has an address for each part of a vector.
    Gather,
    /// How far it reaches depends on what it finds.
    DataDependent,
    /// How many bytes it accesses is not in the instruction.
    Size,
    /// Its address is not computed from whole general registers.
    AddressForm,
}

impl From<Unsupported> for Reason {
    fn from(reason: Unsupported) -> Self {
        match reason {
            Unsupported::Masked => Self::Masked,
            Unsupported::Gather => Self::Gather,
            Unsupported::DataDependent => Self::DataDependent,
            Unsupported::Size => Self::Size,
            Unsupported::AddressForm => Self::AddressForm,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restartable => "it is inside a restartable sequence (rseq)",
            Self::HiddenFlow => "it cannot be told where control goes in the function",
            Self::NoCheapPoint => "no instruction that the kernel emulates is near",
            Self::NoPoint => "no instruction that can be probed is near",
            Self::Locked => "it is an atomic instruction, and what follows changes its registers",
            Self::Masked => "a mask decides what is accessed",
            Self::Gather => "the address is in a vector register",
            Self::DataDependent => "how far it reaches depends on the data",
            Self::Size => "its size is not known",
            Self::AddressForm => "its address is not computed in 64 bits",
        })
    }
}

/// How many accesses of some code are reported, and how. Each is counted once, however often it is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By probes on emulated instructions.
    pub emulated: u64,
    /// By probes on single-stepped ones.
    pub single_stepped: u64,
    /// Of these, compare-and-exchanges that are reported as reads only.
    pub without_write: u64,
    /// By none.
    pub left_out: BTreeMap<Reason, u64>,
    /// On the stack: not shared.
    pub stack: u64,
    /// To the thread's own variables.
    pub thread_local: u64,
    /// Reads of what never changes.
    pub constant: u64,
}

impl Coverage {
    /// How many accesses may be shared.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reported() + self.left_out.values().sum::<u64>()
    }

    /// How many of them are reported.
    #[must_use]
    pub const fn reported(&self) -> u64 {
        self.emulated + self.single_stepped
    }

    /// Counts another function's too.
    pub fn add(&mut self, other: &Self) {
        self.emulated += other.emulated;
        self.single_stepped += other.single_stepped;
        self.without_write += other.without_write;
        self.stack += other.stack;
        self.thread_local += other.thread_local;
        self.constant += other.constant;
        for (&reason, count) in &other.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
    }
}

/// What may be done, and what is known beside the code.
#[derive(Clone, Copy)]
pub struct TouchOptions<'file> {
    /// Whether probes may go on instructions that the kernel has to single-step.
    pub single_step: bool,
    /// The four bytes of the file that are loaded to an address: jump tables are read by it.
    pub word_at: &'file dyn Fn(u64) -> Option<u32>,
    /// Whether what is at a link-time address never changes after the start: it is in a section without writing, or one
    /// that the dynamic linker protects when it has filled it in.
    pub is_constant: &'file dyn Fn(u64) -> bool,
    /// Whether an instruction is inside a restartable sequence.
    pub is_restartable: &'file dyn Fn(u64) -> bool,
}

/// A variable with a constant address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Global {
    /// Its link-time address.
    pub address: u64,
    /// How many bytes are accessed there at once.
    pub size: u32,
    /// Whether the code writes to it.
    pub is_written: bool,
}

/// What there is to probe in a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// The places, by address.
    pub points: Vec<TouchPoint>,
    /// How many accesses they report.
    pub coverage: Coverage,
    /// The variables with constant addresses that it reads or writes, reported or not, by address and size. What they
    /// are called is for the caller to tell.
    pub globals: Vec<Global>,
}

/// Plans the probes for a function, from all of its parts, the start first.
///
/// `taken` tells the places where other probes are: none goes there, and no access is reported on the other side.
/// Returns of the function, where regions end, need not be among them.
#[must_use]
pub fn touch_points(
    parts: &[Part<'_>],
    taken: &dyn Fn(u64) -> bool,
    options: TouchOptions<'_>,
) -> Touches {
    let (mut points, mut coverage) = (Vec::new(), Coverage::default());
    let mut globals = Globals::default();
    let Some(code) = BasicBlocks::analyze(parts, options.word_at) else {
        for access in all_accesses(parts) {
            match access {
                Access::Stack => coverage.stack += 1,
                Access::ThreadLocal => coverage.thread_local += 1,
                Access::Plain(operand) if operand.base == Register::RSP => coverage.stack += 1,
                Access::Plain(operand) => {
                    *coverage.left_out.entry(Reason::HiddenFlow).or_default() += 1;
                    if operand.base == Register::None && operand.index == Register::None {
                        globals.note(operand.displacement, &operand, options);
                    }
                }
                Access::Unsupported(reason) => {
                    *coverage.left_out.entry(reason.into()).or_default() += 1
                }
            }
        }
        return Touches { points, coverage, globals: globals.all() };
    };
    let mut info = InstructionInfoFactory::new();
    for range in code.lines(taken, options.is_restartable) {
        let line = code.follow(range, &mut info);
        let is_restartable =
            line.instructions.first().is_some_and(|first| (options.is_restartable)(first.ip()));
        let mut located: Vec<&Located> = Vec::new();
        for found in &line.found {
            match found {
                Found::Stack => coverage.stack += 1,
                Found::ThreadLocal => coverage.thread_local += 1,
                Found::Unsupported(reason) => {
                    *coverage.left_out.entry((*reason).into()).or_default() += 1
                }
                Found::Shared(access)
                    if access.operand.flags == AccessDescriptor::READ
                        && access.fixed().is_some_and(options.is_constant) =>
                {
                    coverage.constant += 1;
                }
                Found::Shared(access) => {
                    if let Some(address) = access.fixed() {
                        globals.note(address, &access.operand, options);
                    }
                    if is_restartable {
                        *coverage.left_out.entry(Reason::Restartable).or_default() += 1;
                    } else {
                        located.push(access);
                    }
                }
            }
        }
        if located.is_empty() {
            continue;
        }
        let (chosen, left) = Chooser::new(&line, &located, taken).choose(options.single_step);
        for (_, reason) in left {
            *coverage.left_out.entry(reason).or_default() += 1;
        }
        for point in chosen {
            let count = point.touches.len() as u64;
            match point.cost {
                Cost::Emulated => coverage.emulated += count,
                Cost::SingleStepped => coverage.single_stepped += count,
            }
            let weakened = point.touches.iter().filter(|(access, plan)| {
                located[*access].operand.flags & AccessDescriptor::WRITE & !plan.touch.flags != 0
            });
            coverage.without_write += weakened.count() as u64;
            points.push(TouchPoint {
                at: line.instructions[point.at].ip(),
                cost: point.cost,
                touches: point.touches.into_iter().map(|(_, plan)| plan).collect(),
            });
        }
    }
    points.sort_by_key(|point| point.at);
    Touches { points, coverage, globals: globals.all() }
}

/// Constant addresses and sizes, and whether they are written.
#[derive(Default)]
struct Globals(BTreeMap<(u64, u32), bool>);

impl Globals {
    fn note(&mut self, address: u64, operand: &operands::Operand, options: TouchOptions<'_>) {
        if !(options.is_constant)(address) {
            let writes = operand.flags & AccessDescriptor::WRITE != 0;
            *self.0.entry((address, operand.size.into())).or_default() |= writes;
        }
    }

    fn all(self) -> Vec<Global> {
        let global = |((address, size), is_written)| Global { address, size, is_written };
        self.0.into_iter().map(global).collect()
    }
}

/// Where a function calls or jumps to outside of its own code, as far as the instructions say; by address.
#[must_use]
pub fn callees(parts: &[Part<'_>]) -> Vec<u64> {
    let contains = |target: u64| {
        parts.iter().any(|part| {
            target.checked_sub(part.start).is_some_and(|offset| offset < part.code.len() as u64)
        })
    };
    let mut targets = BTreeSet::new();
    for part in parts {
        for instruction in &mut Decoder::with_ip(64, part.code, part.start, DecoderOptions::NONE) {
            let is_direct = instruction.op_count() > 0
                && matches!(
                    instruction.op0_kind(),
                    OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
                );
            let target = instruction.near_branch_target();
            let leads_out = match instruction.flow_control() {
                FlowControl::Call => true,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    !contains(target)
                }
                _ => false,
            };
            if is_direct && leads_out {
                targets.insert(target);
            }
        }
    }
    targets.into_iter().collect()
}

/// Whether an instruction adds to memory in one step. Reference counts are made of these: what threads add comes to the
/// same in any order, so that two of them do not conflict.
#[must_use]
pub fn adds(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        && matches!(
            instruction.mnemonic(),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xadd
        )
}

/// Whether an instruction changes bits of memory in one step, and tells nothing of what they were but flags. Those of one
/// kind come to the same in any order.
#[must_use]
pub fn changes_bits(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        && matches!(instruction.mnemonic(), Mnemonic::Or | Mnemonic::And | Mnemonic::Xor)
}

/// The instruction that some code begins with.
#[must_use]
pub fn decode(code: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode()
}

fn all_accesses(parts: &[Part<'_>]) -> Vec<Access> {
    let mut info = InstructionInfoFactory::new();
    let decoders =
        parts.iter().map(|part| Decoder::with_ip(64, part.code, part.start, DecoderOptions::NONE));
    decoders
        .flat_map(IntoIterator::into_iter)
        .flat_map(|instruction| operands::accesses(&mut info, &instruction))
        .collect()
}

#[cfg(test)]
mod tests;
