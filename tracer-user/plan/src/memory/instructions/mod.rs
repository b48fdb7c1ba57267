//! Plans the probes that report the memory accesses of a function's code. Reads machine code, and
//! neither files nor processes. The kernel side computes addresses by the plans made here.
//!
//! Code is split into straight lines. No jump enters a line in the middle; a line ends where control may go elsewhere,
//! at calls, at instructions that order memory, and at other probes. An access is reported inside its line, so never on
//! the wrong side of a lock. In a line one probe can report several accesses, before or after
//! it, if their addresses can be computed there from registers, or from a place on the stack that holds the
//! pointer. Probes go on instructions that the kernel emulates, if there is one; else on others, if that is
//! allowed.
//!
//! The stack is not shared, nor are thread-local variables and constants: these are counted and left alone.
//! String instructions are taken to go upwards, as the ABI has it, unless the function says otherwise.

mod placement;

pub use self::placement::MAX_ACCESSES;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use abi::AccessDescriptor;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};
use serde::{Deserialize, Serialize};
use x86::instruction::{decode, is_direct};
pub use x86::operands::{compares, is_locked, is_masked};
use x86::{
    basic_blocks::BasicBlocks,
    operands::{self, OperandAccess, Unsupported},
    symbolic::{AccessLocation, Located},
};
use x86::{
    exits::Part,
    placement::{Cost, PlaceRules},
};

use self::placement::Chooser;

/// An access that a probe reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedAccess {
    /// The link-time address of the accessing instruction.
    pub instruction: u64,
    /// Kind of the access, and the computation of its address at the probe.
    pub descriptor: AccessDescriptor,
    /// The displacement is a link-time address: how far the file was moved when it was loaded is to be added to
    /// it. There is no base register then; there may be an index.
    pub is_static: bool,
    /// The probe sees the value before or after the access: nothing in between can write to the same place.
    pub sees_value: bool,
}

/// A place for a probe, and the accesses that it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessProbe {
    /// The link-time address.
    pub at: u64,
    /// Cost of a hit.
    pub cost: Cost,
    /// The accesses, in the order of the program; 8 at most.
    pub accesses: Vec<PlannedAccess>,
}

/// Reason why no probe reports an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnprobedReason {
    /// The instruction is inside a restartable sequence, where no probe may be.
    Restartable,
    /// The control flow of the function is unknown.
    HiddenFlow,
    /// The address cannot be computed at any cheap place.
    NoCheapPoint,
    /// The address cannot be computed at any place that the kernel puts a probe on.
    NoPoint,
    /// The instruction orders memory, and the address cannot be computed after it.
    Locked,
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

impl From<Unsupported> for UnprobedReason {
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

impl fmt::Display for UnprobedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restartable => "it is inside a restartable sequence (rseq)",
            Self::HiddenFlow => "the control flow of the function is unknown",
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

/// Numbers of accesses of some code, by the way they are reported. Each is counted once, however often it is
/// executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// By probes on emulated instructions, or in the process.
    pub emulated: u64,
    /// By probes on single-stepped ones.
    pub single_stepped: u64,
    /// Number of these that are compare-and-exchanges reported as reads only.
    pub without_write: u64,
    /// Accesses without a probe.
    pub left_out: BTreeMap<UnprobedReason, u64>,
    /// On the stack: not shared.
    pub stack: u64,
    /// To the thread's own variables.
    pub thread_local: u64,
    /// Reads of what never changes.
    pub constant: u64,
}

impl Coverage {
    /// Returns the number of accesses that may be shared.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reported() + self.left_out.values().sum::<u64>()
    }

    /// Returns the number of accesses that are reported.
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

/// Options, and knowledge beyond the code.
#[derive(Clone, Copy)]
pub struct AccessOptions<'file> {
    /// Rules of the back end for the places of probes.
    pub place_rules: PlaceRules,
    /// Set if probes may go on instructions that the kernel has to single-step.
    pub single_step: bool,
    /// The four bytes of the file that are loaded to an address: jump tables are read by it.
    pub word_at: &'file dyn Fn(u64) -> Option<u32>,
    /// Returns true if the memory at a link-time address never changes after the start: it is in a section
    /// without writing, or one that the dynamic linker protects after filling it in.
    pub is_constant: &'file dyn Fn(u64) -> bool,
    /// Returns true if an instruction is inside a restartable sequence.
    pub is_restartable: &'file dyn Fn(u64) -> bool,
}

/// A variable with a constant address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Global {
    /// Link-time address.
    pub address: u64,
    /// Number of bytes of one access.
    pub size: u32,
    /// Set if the code writes to it.
    pub is_written: bool,
}

/// Probes and coverage of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessProbes {
    /// The places, by address.
    pub points: Vec<AccessProbe>,
    /// Numbers of accesses, reported and not.
    pub coverage: Coverage,
    /// Variables with constant addresses that the function reads or writes, reported or not, by address and
    /// size. The caller looks up their names.
    pub globals: Vec<Global>,
}

/// Plans the probes for a function, from all of its parts, the start first.
///
/// `taken` holds for the places of other probes: they get no second probe, and no access is reported beyond them.
/// Returns of the function, where regions end, need not be among them.
#[must_use]
pub fn access_probes(
    parts: &[Part<'_>],
    taken: &dyn Fn(u64) -> bool,
    options: AccessOptions<'_>,
) -> AccessProbes {
    let (mut points, mut coverage) = (Vec::new(), Coverage::default());
    let mut globals = Globals::default();
    let Some(code) = BasicBlocks::analyze(parts, options.word_at) else {
        for access in all_accesses(parts) {
            match access {
                OperandAccess::Stack => coverage.stack += 1,
                OperandAccess::ThreadLocal => coverage.thread_local += 1,
                OperandAccess::Plain(operand) if operand.base == Register::RSP => {
                    coverage.stack += 1;
                }
                OperandAccess::Plain(operand) => {
                    *coverage.left_out.entry(UnprobedReason::HiddenFlow).or_default() += 1;
                    if operand.base == Register::None && operand.index == Register::None {
                        globals.note(operand.displacement, &operand, options);
                    }
                }
                OperandAccess::Unsupported(reason) => {
                    *coverage.left_out.entry(reason.into()).or_default() += 1;
                }
            }
        }
        return AccessProbes { points, coverage, globals: globals.all() };
    };
    let mut info = InstructionInfoFactory::new();
    for range in code.lines(taken, options.is_restartable) {
        let line = code.follow(range, &mut info);
        let is_restartable =
            line.instructions.first().is_some_and(|first| (options.is_restartable)(first.ip()));
        let mut located: Vec<&Located> = Vec::new();
        for found in &line.found {
            match found {
                AccessLocation::Stack => coverage.stack += 1,
                AccessLocation::ThreadLocal => coverage.thread_local += 1,
                AccessLocation::Unsupported(reason) => {
                    *coverage.left_out.entry((*reason).into()).or_default() += 1;
                }
                AccessLocation::Shared(access)
                    if access.operand.flags == AccessDescriptor::READ
                        && access.fixed().is_some_and(options.is_constant) =>
                {
                    coverage.constant += 1;
                }
                AccessLocation::Shared(access) => {
                    if let Some(address) = access.fixed() {
                        globals.note(address, &access.operand, options);
                    }
                    if is_restartable {
                        *coverage.left_out.entry(UnprobedReason::Restartable).or_default() += 1;
                    } else {
                        located.push(access);
                    }
                }
            }
        }
        if located.is_empty() {
            continue;
        }
        let (chosen, left) =
            Chooser::new(&line, &located, options.place_rules, taken).choose(options.single_step);
        for (_, reason) in left {
            *coverage.left_out.entry(reason).or_default() += 1;
        }
        for point in chosen {
            let count = point.accesses.len() as u64;
            match point.cost {
                Cost::Displaced | Cost::Emulated => coverage.emulated += count,
                Cost::SingleStepped => coverage.single_stepped += count,
            }
            let weakened = point.accesses.iter().filter(|(access, plan)| {
                located[*access].operand.flags & AccessDescriptor::WRITE & !plan.descriptor.flags
                    != 0
            });
            coverage.without_write += weakened.count() as u64;
            points.push(AccessProbe {
                at: line.instructions[point.at].ip(),
                cost: point.cost,
                accesses: point.accesses.into_iter().map(|(_, plan)| plan).collect(),
            });
        }
    }
    points.sort_by_key(|point| point.at);
    AccessProbes { points, coverage, globals: globals.all() }
}

/// Constant addresses and sizes, and whether they are written.
#[derive(Default)]
struct Globals(BTreeMap<(u64, u32), bool>);

impl Globals {
    fn note(&mut self, address: u64, operand: &operands::Operand, options: AccessOptions<'_>) {
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

/// Returns the targets of calls, and of jumps out of the function's own code, as far as instructions have them;
/// by address.
#[must_use]
pub fn callees(parts: &[Part<'_>]) -> Vec<u64> {
    let contains = |target: u64| {
        parts.iter().any(|part| {
            target.checked_sub(part.start).is_some_and(|offset| offset < part.code.len() as u64)
        })
    };
    let mut targets = BTreeSet::new();
    for part in parts {
        for instruction in decode(part.code, part.start) {
            let is_direct = is_direct(&instruction);
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

/// Returns true if an instruction adds to memory atomically. Reference counts are made of these: additions of
/// several threads have one sum in any order, so that two of them do not conflict.
#[must_use]
pub fn adds(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        && matches!(
            instruction.mnemonic(),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xadd
        )
}

/// Returns true if an instruction changes bits of memory atomically, and returns nothing of the old ones but
/// flags. Several of one kind have one result in any order.
#[must_use]
pub fn changes_bits(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        && matches!(instruction.mnemonic(), Mnemonic::Or | Mnemonic::And | Mnemonic::Xor)
}

fn all_accesses(parts: &[Part<'_>]) -> Vec<OperandAccess> {
    let mut info = InstructionInfoFactory::new();
    let decoders = parts.iter().map(|part| decode(part.code, part.start));
    decoders
        .flat_map(IntoIterator::into_iter)
        .flat_map(|instruction| operands::accesses(&mut info, &instruction))
        .collect()
}

#[cfg(test)]
mod tests;
