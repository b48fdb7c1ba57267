//! Calls of the functions of a file, and the addresses that they take, from machine code.
//! `probes::regions::defaults` draws the conclusions for regions.

use std::{collections::HashSet, sync::Arc};

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::{Object as _, ObjectSymbol as _, ObjectSymbolTable as _, RelocationTarget};
use rustc_hash::FxHashMap;
use symbolize::{ElfFile, LinkAddr, Name};

use super::instruction::decode;
use super::{
    activity::Activity, dead_ends::dead_ends, functions::Functions, no_return::never_returns,
};

/// Name that is given to a system call that waits for a futex.
pub const FUTEX_WAIT: &str = "futex(FUTEX_WAIT)";

/// Target of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// A function of the file, by its number.
    Own(usize),
    /// A function of a library.
    Import(Arc<Import>),
}

/// A function of a library that a file calls.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Import {
    /// Mangled symbol.
    pub symbol: String,
    /// Short name.
    pub name: String,
}

/// A direct call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectCall {
    /// The calling instruction.
    pub at: LinkAddr,
    /// Target.
    pub callee: Callee,
    /// Set unless this is a tail call, which does not return here.
    pub returns: bool,
    /// Set if the call is through a slot, which holds this target when the program starts.
    pub is_indirect: bool,
    /// Set if the call is in seldom executed code: in a part that the compiler has split off for that, or one
    /// from which control never returns.
    pub is_cold: bool,
}

/// Calls and taken addresses of one function.
#[derive(Clone, Debug, Default)]
pub struct CallFacts {
    /// Direct calls, also those through tables of the linker.
    pub calls: Vec<DirectCall>,
    /// The functions whose addresses it takes.
    pub takes: Vec<usize>,
    /// Calls through pointers that the linker does not know.
    pub pointer_calls: Vec<LinkAddr>,
    /// Everything else that its code does.
    pub activity: Activity,
}

/// Analyzes all functions of a file; indexed by their numbers.
#[must_use]
pub fn facts(file: &ElfFile, functions: &Functions) -> Vec<CallFacts> {
    let imports = Imports::from_file(file);
    (0..functions.iter().count()).map(|index| facts_of(file, functions, &imports, index)).collect()
}

/// Analyzes a function of a file, by its number.
#[must_use]
pub fn facts_of(
    file: &ElfFile,
    functions: &Functions,
    imports: &Imports,
    index: usize,
) -> CallFacts {
    let mut facts = CallFacts::default();
    let parts = functions.get(index).and_then(|function| function.parts(file));
    for (number, part) in parts.unwrap_or_default().into_iter().enumerate() {
        let decoder = decode(part.code, part.start);
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        let first = facts.calls.len();
        // By registers that hold what a slot does; what jumps change is not followed.
        let mut held: FxHashMap<Register, u64> = FxHashMap::default();
        let mut constants = Constants::default();
        for instruction in &instructions {
            note(instruction, index, functions, file, imports, &held, &mut facts);
            let call = facts.calls.last_mut().filter(|call| call.at.0 == instruction.ip());
            match call {
                Some(call) => constants.name_wait(call),
                None if is_pointer_call(instruction) => {
                    facts.pointer_calls.push(LinkAddr(instruction.ip()));
                }
                None => {}
            }
            hold(instruction, imports, &mut held);
            constants.follow(instruction);
        }
        find_cold(&mut facts.calls[first..], &instructions, number > 0, functions);
        facts.activity.add(&instructions);
    }
    facts
}

/// Returns true if an instruction calls through a pointer, also as a tail call. Jumps through tables have an
/// index.
fn is_pointer_call(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::IndirectCall => true,
        FlowControl::IndirectBranch => {
            instruction.op0_kind() == OpKind::Memory && instruction.memory_index() == Register::None
        }
        _ => false,
    }
}

/// Finds out which calls of a part of a function are seldom executed.
fn find_cold(
    calls: &mut [DirectCall],
    instructions: &[Instruction],
    is_split_off: bool,
    functions: &Functions,
) {
    if calls.is_empty() {
        return;
    }
    let ending: HashSet<u64> = calls
        .iter()
        .filter(|call| match &call.callee {
            Callee::Own(index) => {
                functions.get(*index).is_some_and(|own| never_returns(&own.symbol, &own.name.short))
            }
            Callee::Import(import) => never_returns(&import.symbol, &import.name),
        })
        .map(|call| call.at.0)
        .collect();
    let dead = dead_ends(instructions, |call| ending.contains(&call.ip()));
    let dead: HashSet<u64> =
        instructions.iter().zip(dead).filter(|(_, dead)| *dead).map(|(one, _)| one.ip()).collect();
    for call in calls {
        call.is_cold = is_split_off || dead.contains(&call.at.0);
    }
}

/// Constants in the first and third argument registers, as far as they were loaded in the same straight line.
#[derive(Default)]
struct Constants {
    number: Option<u64>,
    operation: Option<u64>,
}

impl Constants {
    fn follow(&mut self, instruction: &Instruction) {
        if instruction.flow_control() != FlowControl::Next {
            // What a jump leads to is not known, but what it leaves is.
            if !matches!(instruction.flow_control(), FlowControl::ConditionalBranch) {
                *self = Self::default();
            }
            return;
        }
        if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
            return;
        }
        let constant = match (instruction.mnemonic(), instruction.op1_kind()) {
            (
                Mnemonic::Mov,
                OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64,
            ) => Some(instruction.immediate(1)),
            (Mnemonic::Xor, OpKind::Register)
                if instruction.op0_register() == instruction.op1_register() =>
            {
                Some(0)
            }
            (Mnemonic::Cmp | Mnemonic::Test, _) => return,
            _ => None,
        };
        match instruction.op0_register().full_register() {
            Register::RDI => self.number = constant,
            Register::RDX => self.operation = constant,
            _ => {}
        }
    }

    /// Names a system call that waits for a futex after its operation.
    fn name_wait(&self, call: &mut DirectCall) {
        /// `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
        const FLAGS: u64 = 0x180;
        /// `FUTEX_WAIT` and `FUTEX_WAIT_BITSET`.
        const WAITS: [u64; 2] = [0, 9];
        if let Callee::Import(import) = &call.callee
            && import.symbol == "syscall"
            && self.number == Some(libc::SYS_futex.cast_unsigned())
            && self.operation.is_some_and(|operation| WAITS.contains(&(operation & !FLAGS)))
        {
            let (symbol, name) = (import.symbol.clone(), FUTEX_WAIT.to_owned());
            call.callee = Callee::Import(Arc::new(Import { symbol, name }));
        }
    }
}

fn note(
    instruction: &Instruction,
    index: usize,
    functions: &Functions,
    file: &ElfFile,
    imports: &Imports,
    held: &FxHashMap<Register, u64>,
    facts: &mut CallFacts,
) {
    let in_slot = |slot: &LinkerSlot| match slot {
        LinkerSlot::Import(import) => Some(Callee::Import(Arc::clone(import))),
        LinkerSlot::Own(address) => functions.starting_at(*address).map(Callee::Own),
    };
    let at_slot = |slot: &u64| imports.slots.get(slot).and_then(in_slot);
    let callee = match instruction.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            let target = LinkAddr(instruction.near_branch_target());
            match functions.starting_at(target) {
                Some(own) => Some(Callee::Own(own)),
                None => imports.slot_of(file, target).and_then(in_slot),
            }
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch
            if instruction.is_ip_rel_memory_operand() =>
        {
            at_slot(&instruction.ip_rel_memory_address())
        }
        FlowControl::IndirectCall if instruction.op0_kind() == OpKind::Register => {
            held.get(&instruction.op0_register()).and_then(at_slot)
        }
        _ => None,
    };
    if let Some(callee) = callee {
        let returns =
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        // A jump to the own start is a loop or a call of itself, and no news.
        if returns || callee != Callee::Own(index) {
            let at = LinkAddr(instruction.ip());
            let is_indirect = is_pointer_call(instruction);
            facts.calls.push(DirectCall { at, callee, returns, is_indirect, is_cold: false });
        }
        return;
    }
    if instruction.flow_control() != FlowControl::Next {
        return;
    }
    let taken = if instruction.is_ip_rel_memory_operand() {
        let address = instruction.ip_rel_memory_address();
        match imports.slots.get(&address) {
            Some(LinkerSlot::Own(own)) => Some(*own),
            Some(LinkerSlot::Import(_)) => None,
            None => Some(LinkAddr(address)),
        }
    } else {
        // Code at fixed addresses has them as constants.
        (0..instruction.op_count())
            .filter(|&operand| {
                matches!(
                    instruction.op_kind(operand),
                    OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
                )
            })
            .map(|operand| LinkAddr(instruction.immediate(operand)))
            .next()
    };
    if let Some(own) = taken.and_then(|address| functions.starting_at(address)) {
        facts.takes.push(own);
    }
}

/// Records which registers hold the contents of a slot that the dynamic linker has filled.
fn hold(instruction: &Instruction, imports: &Imports, held: &mut FxHashMap<Register, u64>) {
    if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
        return;
    }
    let register = instruction.op0_register();
    if instruction.code() == Code::Mov_r64_rm64
        && instruction.is_ip_rel_memory_operand()
        && imports.slots.contains_key(&instruction.ip_rel_memory_address())
    {
        held.insert(register, instruction.ip_rel_memory_address());
    } else if !matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Cmp | Mnemonic::Test) {
        held.remove(&register.full_register());
    }
}

/// Contents of a slot that the dynamic linker fills.
#[derive(Debug)]
enum LinkerSlot {
    Import(Arc<Import>),
    Own(LinkAddr),
}

/// The slots through which functions of libraries are called.
#[derive(Debug, Default)]
pub struct Imports {
    slots: FxHashMap<u64, LinkerSlot>,
}

impl Imports {
    /// Reads them from the file's relocations.
    #[must_use]
    pub fn from_file(file: &ElfFile) -> Self {
        let mut slots = FxHashMap::default();
        let Ok(parsed) = object::File::parse(&**file.bytes()) else { return Self { slots } };
        let symbols = parsed.dynamic_symbol_table();
        for (offset, relocation) in parsed.dynamic_relocations().into_iter().flatten() {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                if relocation.target() == RelocationTarget::Absolute {
                    let own = LinkAddr(relocation.addend().cast_unsigned());
                    slots.insert(offset, LinkerSlot::Own(own));
                }
                continue;
            };
            let symbol = symbols.as_ref().and_then(|table| table.symbol_by_index(index).ok());
            let Some(symbol) = symbol else { continue };
            let Ok(name) = symbol.name() else { continue };
            let slot = if symbol.is_definition() && symbol.address() != 0 {
                LinkerSlot::Own(LinkAddr(symbol.address()))
            } else {
                let short = Name::demangle(name).short;
                LinkerSlot::Import(Arc::new(Import { symbol: name.to_owned(), name: short }))
            };
            slots.insert(offset, slot);
        }
        Self { slots }
    }

    /// The slots of functions of libraries.
    pub fn imports(&self) -> impl Iterator<Item = (u64, &Import)> {
        self.slots.iter().filter_map(|(&slot, target)| match target {
            LinkerSlot::Import(import) => Some((slot, &**import)),
            LinkerSlot::Own(_) => None,
        })
    }

    /// The slots that hold addresses of the file itself.
    pub fn own(&self) -> impl Iterator<Item = (u64, LinkAddr)> {
        self.slots.iter().filter_map(|(&slot, target)| match target {
            LinkerSlot::Own(address) => Some((slot, *address)),
            LinkerSlot::Import(_) => None,
        })
    }

    /// The function of the file itself that a slot holds the address of, if it is one.
    #[must_use]
    pub fn own_at(&self, slot: u64) -> Option<LinkAddr> {
        match self.slots.get(&slot)? {
            LinkerSlot::Own(address) => Some(*address),
            LinkerSlot::Import(_) => None,
        }
    }

    /// The function of a library whose address the linker fills in at a slot.
    #[must_use]
    pub fn slot(&self, slot: u64) -> Option<Arc<Import>> {
        match self.slots.get(&slot)? {
            LinkerSlot::Import(import) => Some(Arc::clone(import)),
            LinkerSlot::Own(_) => None,
        }
    }

    /// The function that the linker's stub at an address jumps to.
    #[must_use]
    pub fn behind(&self, file: &ElfFile, stub: LinkAddr) -> Option<Arc<Import>> {
        match self.slot_of(file, stub)? {
            LinkerSlot::Import(import) => Some(Arc::clone(import)),
            LinkerSlot::Own(_) => None,
        }
    }

    /// The function of the file itself that the linker's stub at an address jumps to.
    #[must_use]
    pub fn own_behind(&self, file: &ElfFile, stub: LinkAddr) -> Option<LinkAddr> {
        match self.slot_of(file, stub)? {
            LinkerSlot::Own(address) => Some(*address),
            LinkerSlot::Import(_) => None,
        }
    }

    /// Returns whether the linker's stub at an address jumps to a function with one of these names, of a library or of
    /// the file itself.
    #[must_use]
    pub fn leads_to(&self, file: &ElfFile, stub: LinkAddr, names: &[&str]) -> bool {
        match self.slot_of(file, stub) {
            Some(LinkerSlot::Import(import)) => names.contains(&&*import.symbol),
            Some(&LinkerSlot::Own(own)) => names
                .iter()
                .any(|name| file.symbols_named(name).any(|symbol| symbol.address == own)),
            None => false,
        }
    }

    fn slot_of(&self, file: &ElfFile, stub: LinkAddr) -> Option<&LinkerSlot> {
        let code = file.bytes_at(stub, 32)?;
        // An `endbr64` may come before the jump.
        let jump = decode(code, stub.0)
            .take(2)
            .find(|instruction| instruction.flow_control() == FlowControl::IndirectBranch)?;
        if !jump.is_ip_rel_memory_operand() {
            return None;
        }
        self.slots.get(&jump.ip_rel_memory_address())
    }
}
