//! A function, prepared for the flow of labels: what each instruction reads and writes, and which instructions each
//! branch decides on.

use std::collections::BTreeSet;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

use super::{Code, Effect};
use crate::{
    dataflow::{DataState, Dataflow, Value, ValueOrigin, number},
    exits::Part,
    instruction::{ARGUMENTS, RSP, may_write},
};

/// A register that labels are kept for. Low parts of general registers have labels apart from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Lowest eight or sixteen bits of a general register.
    Low(u8),
    /// A general register.
    Full(u8),
    /// A vector register, in all its sizes.
    Vector(u8),
}

/// A place in memory, as far as the code determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In the function's frame or above: the distance from the stack pointer at the entry.
    Stack(i64),
    /// In the function's frame, at this distance or above: an element of an array.
    StackFrom(i64),
    /// An expression.
    At(Value),
    /// Unknown.
    Unknown,
}

impl Spot {
    /// The value that the address is relative to.
    pub fn base(self) -> Option<ValueOrigin> {
        match self {
            Self::At(place) => place.base,
            _ => None,
        }
    }
}

/// An access to memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub spot: Spot,
    /// In bytes.
    pub size: u32,
    /// Base and index of the address, but for the stack pointer.
    pub registers: [Option<u8>; 2],
    pub reads: bool,
    pub writes: bool,
    /// Set where the write may be left out.
    pub is_conditional: bool,
}

/// Kinds of instructions that are treated alike.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Plain,
    /// Its result has no labels, as that of `xor eax, eax`.
    Constant,
    /// The registers or places of both operands change their values.
    Exchange,
    /// A call; `arguments` are the values of the argument registers.
    Call {
        target: Option<u64>,
        arguments: [Value; ARGUMENTS.len()],
        stack: Option<i64>,
    },
    /// A jump to another function.
    TailCall {
        target: Option<u64>,
        arguments: [Value; ARGUMENTS.len()],
        stack: Option<i64>,
    },
    /// A conditional jump, or a jump to a computed address.
    Branch,
    Return,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub kind: Kind,
    pub reads: Vec<Cell>,
    pub writes: Vec<(Cell, bool)>,
    pub accesses: Vec<Access>,
    pub reads_flags: bool,
    pub writes_flags: bool,
}

impl Step {
    /// Returns whether a register is part of the address of an access.
    pub fn is_in_address(&self, cell: Cell) -> bool {
        let mut registers = self.accesses.iter().flat_map(|access| access.registers).flatten();
        matches!(cell, Cell::Full(number) if registers.any(|one| one == number))
    }

    /// Returns whether the instruction writes a constant.
    pub fn is_constant(&self) -> bool {
        let is_data = |cell: &&Cell| !self.is_in_address(**cell);
        let reads =
            self.reads_flags || self.reads.iter().any(|cell| is_data(&cell)) || self.loads();
        matches!(self.kind, Kind::Constant) || !reads
    }

    /// Returns whether the instruction loads from memory.
    pub fn loads(&self) -> bool {
        self.accesses.iter().any(|access| access.reads)
    }

    /// Returns whether the instruction stores to memory.
    pub fn stores(&self) -> bool {
        self.accesses.iter().any(|access| access.writes)
    }

    /// Returns whether a register is the base of the address of an access.
    pub fn is_base(&self, cell: Cell) -> bool {
        let mut bases = self.accesses.iter().filter_map(|access| access.registers[0]);
        matches!(cell, Cell::Full(number) if bases.any(|one| one == number))
    }
}

/// Branch, with the instructions whose execution it decides on.
#[derive(Debug)]
pub(super) struct Decision {
    pub branch: usize,
    /// By their numbers.
    pub decided: Vec<usize>,
    /// Set if a way leads to no return of the function: to the end of the program, or to an exception.
    pub may_leave: bool,
}

#[derive(Debug)]
pub(super) struct Body {
    pub values: Dataflow,
    /// By the number of the instruction; `None` where control never comes.
    pub steps: Vec<Option<Step>>,
    entry: u64,
    /// By the number of the instruction; empty behind a call that does not return.
    successors: Vec<Vec<usize>>,
    /// Calls by which the function itself throws an exception.
    throws: Vec<bool>,
    decisions: Vec<Decision>,
}

impl Body {
    pub fn read(parts: &[Part<'_>], code: &dyn Code) -> Option<Self> {
        let entry = parts.first()?.start;
        let is_slot = |address| code.is_slot(address);
        let values = Dataflow::analyze(parts, &is_slot, &|address| code.word_at(address))?;
        let mut steps = vec![None; values.instructions().len()];
        let mut info = InstructionInfoFactory::new();
        values.walk(&is_slot, &mut |index, state| {
            let instruction = &values.instructions()[index];
            steps[index] = Some(step(&values, instruction, state, &mut info, &is_slot));
        });
        let effect = |step: &Option<Step>| match step.as_ref().map(|step| &step.kind) {
            Some(Kind::Call { target: Some(target), .. }) => Some(code.effect(*target)),
            _ => None,
        };
        let effects: Vec<Option<Effect>> = steps.iter().map(effect).collect();
        let throws = effects.iter().map(|effect| *effect == Some(Effect::Throws)).collect();
        let goes_on = |at: usize| !matches!(effects[at], Some(Effect::NoReturn | Effect::Throws));
        let successors = (0..steps.len())
            .map(|at| if goes_on(at) { values.successors(at) } else { Vec::new() })
            .collect();
        let mut body = Self { values, steps, entry, successors, throws, decisions: Vec::new() };
        body.decisions = body.decide();
        Some(body)
    }

    /// Instructions that may come next.
    pub fn successors(&self, at: usize) -> &[usize] {
        &self.successors[at]
    }

    /// Address of the first instruction.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Instructions that load from memory other than the function's frame.
    pub fn loads(&self) -> impl Iterator<Item = usize> {
        let is_load = |step: &Step| {
            let mut accesses = step.accesses.iter().filter(|access| access.reads);
            accesses.any(|access| !matches!(access.spot, Spot::Stack(_) | Spot::StackFrom(_)))
                && !matches!(step.kind, Kind::Call { .. } | Kind::TailCall { .. } | Kind::Return)
        };
        let steps = self.steps.iter().enumerate();
        steps.filter(move |(_, step)| step.as_ref().is_some_and(is_load)).map(|(at, _)| at)
    }

    /// Targets of calls.
    pub fn callees(&self) -> BTreeSet<u64> {
        let target = |step: &Option<Step>| match step.as_ref()?.kind {
            Kind::Call { target, .. } | Kind::TailCall { target, .. } => target,
            _ => None,
        };
        self.steps.iter().filter_map(target).collect()
    }

    /// The branches, and for each the instructions whose execution it decides on.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Finds them. Ways that lead to no return count as not taken, if others do: a failed check ends the program, or
    /// the thread, and does not choose for those that go on.
    fn decide(&self) -> Vec<Decision> {
        let mut successors = self.successors.clone();
        let returning = self.returning(&successors);
        let returns = |at: usize| returning.as_ref().is_none_or(|returning| returning[at]);
        let mut may_leave = vec![false; successors.len()];
        for (at, nexts) in successors.iter_mut().enumerate().filter(|(at, _)| returns(*at)) {
            let before = nexts.len();
            nexts.retain(|&next| returns(next));
            may_leave[at] = nexts.len() < before;
        }
        let is_reached = |at: usize| self.steps[at].is_some() && returns(at);
        self.decisions_among(&successors, &is_reached, &may_leave)
    }

    /// Finds the decisions of branches among some ways. Of those that `may_leave` the function for good, some ways are
    /// left out.
    fn decisions_among(
        &self,
        successors: &[Vec<usize>],
        is_reached: &dyn Fn(usize) -> bool,
        may_leave: &[bool],
    ) -> Vec<Decision> {
        let after = PostDominators::find(successors, is_reached);
        let is_branch = |at: &usize| {
            is_reached(*at)
                && matches!(self.steps[*at], Some(Step { kind: Kind::Branch, .. }))
                && (successors[*at].len() > 1 || may_leave[*at])
        };
        (0..successors.len())
            .filter(is_branch)
            .map(|branch| {
                // The branch decides up to where all ways meet again.
                let meeting = after.next[branch].filter(|_| !may_leave[branch]);
                let mut decided = BTreeSet::new();
                let mut todo = successors[branch].clone();
                while let Some(at) = todo.pop() {
                    if Some(at) != meeting && decided.insert(at) {
                        todo.extend(&successors[at]);
                    }
                }
                let decided = decided.into_iter().collect();
                Decision { branch, decided, may_leave: may_leave[branch] }
            })
            .collect()
    }

    /// The ways from the begin of the region to an instruction.
    pub fn ways_to(&self, to: usize, boundary: Option<usize>) -> WaysTo {
        let count = self.steps.len();
        let mut successors = self.successors.clone();
        successors[to].clear();
        let mut predecessors = vec![Vec::new(); count];
        for (at, nexts) in successors.iter_mut().enumerate() {
            nexts.retain(|&next| Some(next) != boundary);
            for &next in &*nexts {
                predecessors[next].push(at);
            }
        }
        let mut leading = vec![false; count];
        let mut todo = vec![to];
        while let Some(at) = todo.pop() {
            if !std::mem::replace(&mut leading[at], true) {
                todo.extend(&predecessors[at]);
            }
        }
        for nexts in &mut successors {
            nexts.retain(|&next| leading[next]);
        }
        let is_reached = |at: usize| leading[at] && self.steps[at].is_some();
        let decisions = self.decisions_among(&successors, &is_reached, &vec![false; count]);
        let accesses = self.steps[to].iter().flat_map(|step| &step.accesses);
        let object = accesses.filter(|access| access.writes).find_map(|access| access.spot.base());
        WaysTo { leading, decisions, object }
    }

    /// Returns the instructions from which a return can be reached, if the function has any.
    fn returning(&self, successors: &[Vec<usize>]) -> Option<Vec<bool>> {
        let mut predecessors = vec![Vec::new(); successors.len()];
        for (at, nexts) in successors.iter().enumerate() {
            nexts.iter().for_each(|&next| predecessors[next].push(at));
        }
        let is_return = |at: &usize| {
            let kind = self.steps[*at].as_ref().map(|step| &step.kind);
            matches!(kind, Some(Kind::Return | Kind::TailCall { .. })) || self.throws[*at]
        };
        let mut todo: Vec<usize> = (0..self.steps.len()).filter(is_return).collect();
        let mut returning = vec![false; successors.len()];
        let any = !todo.is_empty();
        while let Some(at) = todo.pop() {
            if !std::mem::replace(&mut returning[at], true) {
                todo.extend(&predecessors[at]);
            }
        }
        any.then_some(returning)
    }
}

/// The ways to an instruction in one execution of the region.
#[derive(Debug)]
pub(super) struct WaysTo {
    /// Set for the instructions on one of them, by their numbers.
    pub leading: Vec<bool>,
    /// Decisions among them, by branches with several sides that lead on.
    pub decisions: Vec<Decision>,
    /// Base of the address that the instruction writes to.
    pub object: Option<ValueOrigin>,
}

impl WaysTo {
    /// Returns the number of instructions that it has something of.
    pub fn size(&self) -> usize {
        let decided = self.decisions.iter().map(|decision| decision.decided.len());
        self.leading.len() + decided.sum::<usize>()
    }
}

/// The next instruction that all ways from an instruction to an end of the function have in common.
struct PostDominators {
    next: Vec<Option<usize>>,
}

impl PostDominators {
    /// Finds them by the algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001) on the
    /// reversed graph. An end is an instruction without successors, and the end of an iteration of a loop that has no
    /// other end.
    fn find(successors: &[Vec<usize>], is_reached: &dyn Fn(usize) -> bool) -> Self {
        let count = successors.len();
        let end = count;
        let mut predecessors = vec![Vec::new(); count + 1];
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, nexts) in successors.iter().enumerate().filter(|(at, _)| is_reached(*at)) {
            for &next in nexts {
                predecessors[next].push(at);
            }
            if nexts.is_empty() {
                predecessors[end].push(at);
                ends[at].push(end);
            }
        }
        loop {
            let mut reaches = vec![false; count + 1];
            let mut todo = vec![end];
            while let Some(at) = todo.pop() {
                if !std::mem::replace(&mut reaches[at], true) {
                    todo.extend(&predecessors[at]);
                }
            }
            // The last jump back of a loop without an end.
            let endless = (0..count).rev().find(|&at| is_reached(at) && !reaches[at]);
            let Some(at) = endless else { break };
            predecessors[end].push(at);
            ends[at].push(end);
        }
        let order = postorder(&predecessors, end);
        let mut rank = vec![usize::MAX; count + 1];
        for (number, &at) in order.iter().enumerate() {
            rank[at] = number;
        }
        let mut next: Vec<Option<usize>> = vec![None; count + 1];
        next[end] = Some(end);
        let mut changed = true;
        while changed {
            changed = false;
            for &at in order.iter().rev().filter(|&&at| at != end) {
                let mut common: Option<usize> = None;
                for &to in successors[at].iter().chain(&ends[at]) {
                    if next[to].is_none() {
                        continue;
                    }
                    common = Some(match common {
                        None => to,
                        Some(mut one) => {
                            let mut other = to;
                            while one != other {
                                while rank[one] < rank[other] {
                                    one = next[one].unwrap_or(end);
                                }
                                while rank[other] < rank[one] {
                                    other = next[other].unwrap_or(end);
                                }
                            }
                            one
                        }
                    });
                }
                if common.is_some() && next[at] != common {
                    next[at] = common;
                    changed = true;
                }
            }
        }
        next.truncate(count);
        Self { next }
    }
}

fn postorder(edges: &[Vec<usize>], from: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; edges.len()];
    let mut todo = vec![(from, 0)];
    seen[from] = true;
    while let Some((at, edge)) = todo.pop() {
        match edges[at].get(edge) {
            Some(&to) => {
                todo.push((at, edge + 1));
                if !std::mem::replace(&mut seen[to], true) {
                    todo.push((to, 0));
                }
            }
            None => order.push(at),
        }
    }
    order
}

fn step(
    values: &Dataflow,
    instruction: &Instruction,
    state: &DataState,
    info: &mut InstructionInfoFactory,
    is_slot: &dyn Fn(u64) -> bool,
) -> Step {
    let used = info.info(instruction);
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    for register in used.used_registers() {
        let Some(cell) = cell(register.register()) else { continue };
        if cell == Cell::Full(RSP) {
            continue;
        }
        let access = register.access();
        if !matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::None | OpAccess::NoMemAccess
        ) {
            reads.push(cell);
        }
        if may_write(access) && access != OpAccess::NoMemAccess {
            let is_conditional = matches!(access, OpAccess::CondWrite | OpAccess::ReadCondWrite);
            writes.push((cell, is_conditional));
        }
    }
    let accesses = used
        .used_memory()
        .iter()
        .filter(|memory| memory.access() != OpAccess::NoMemAccess)
        .map(|memory| access(memory, state))
        .collect();
    let flags = instruction.rflags_modified();
    Step {
        kind: kind(values, instruction, state, is_slot),
        reads,
        writes,
        accesses,
        reads_flags: instruction.rflags_read() != 0,
        writes_flags: flags != 0,
    }
}

fn kind(
    values: &Dataflow,
    instruction: &Instruction,
    state: &DataState,
    is_slot: &dyn Fn(u64) -> bool,
) -> Kind {
    let target = || {
        let value = state.target(instruction, is_slot)?;
        match value {
            Value { base: None, index: None, .. } => value.as_constant(),
            Value { base: Some(ValueOrigin::Slot(slot)), index: None, plus: 0 } => Some(slot),
            _ => None,
        }
    };
    let arguments = || ARGUMENTS.map(|register| state.register(register));
    let stack = || state.register(RSP).on_stack();
    let leaves = || values.successors(values.at(instruction.ip()).unwrap_or(0)).is_empty();
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => {
            Kind::Call { target: target(), arguments: arguments(), stack: stack() }
        }
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch if leaves() => {
            Kind::TailCall { target: target(), arguments: arguments(), stack: stack() }
        }
        FlowControl::ConditionalBranch | FlowControl::IndirectBranch => Kind::Branch,
        FlowControl::Return => Kind::Return,
        _ if is_constant(instruction) => Kind::Constant,
        _ if instruction.mnemonic() == Mnemonic::Xchg => Kind::Exchange,
        _ => Kind::Plain,
    }
}

/// Returns whether both operands of an instruction are one register, and its result the same whatever it holds.
fn is_constant(instruction: &Instruction) -> bool {
    use Mnemonic::{Pxor, Sbb, Sub, Vpxor, Vxorps, Xor, Xorpd, Xorps};
    let count = instruction.op_count();
    let last = |number| {
        (instruction.op_kind(number) == OpKind::Register).then(|| instruction.op_register(number))
    };
    let is_same = count >= 2 && last(count - 1).is_some() && last(count - 1) == last(count - 2);
    is_same
        && match instruction.mnemonic() {
            Xor | Sub | Pxor | Vpxor | Xorps | Xorpd | Vxorps => true,
            // It spreads the carry flag.
            Sbb => false,
            _ => false,
        }
}

fn cell(register: Register) -> Option<Cell> {
    if register.is_vector_register() {
        return Some(Cell::Vector((register.number() & 15) as u8));
    }
    let number = number(register)?;
    Some(if register.size() < 4 { Cell::Low(number) } else { Cell::Full(number) })
}

fn access(memory: &UsedMemory, state: &DataState) -> Access {
    let access = memory.access();
    let registers = [memory.base(), memory.index()]
        .map(|register| number(register).filter(|&register| register != RSP));
    Access {
        spot: spot(memory, state),
        size: memory.memory_size().size().clamp(1, 64) as u32,
        registers,
        reads: !matches!(access, OpAccess::Write | OpAccess::CondWrite),
        writes: may_write(access),
        is_conditional: matches!(access, OpAccess::CondWrite | OpAccess::ReadCondWrite),
    }
}

fn spot(memory: &UsedMemory, state: &DataState) -> Spot {
    if matches!(memory.segment(), Register::FS | Register::GS) {
        return Spot::Unknown;
    }
    let displacement = memory.displacement().cast_signed();
    let mut value = match memory.base() {
        Register::None | Register::RIP => Value { base: None, index: None, plus: 0 },
        base => match number(base) {
            Some(number) => state.register(number),
            None => return Spot::Unknown,
        },
    };
    value.plus = value.plus.wrapping_add(displacement);
    if memory.index() != Register::None {
        let Some(index) = number(memory.index()).map(|number| state.register(number)) else {
            return Spot::Unknown;
        };
        let scale = memory.scale() as u8;
        match (value.index, index) {
            (_, Value { base: None, index: None, plus }) => {
                value.plus = value.plus.wrapping_add(plus.wrapping_mul(scale.into()));
            }
            (None, Value { base: Some(origin), index: None, plus }) => {
                value.index = Some((origin, scale));
                value.plus = value.plus.wrapping_add(plus.wrapping_mul(scale.into()));
            }
            _ if value.base == Some(ValueOrigin::Entry(RSP)) => return Spot::StackFrom(value.plus),
            _ => return Spot::Unknown,
        }
    }
    match (value.base, value.index) {
        (Some(ValueOrigin::Entry(RSP)), None) => Spot::Stack(value.plus),
        (Some(ValueOrigin::Entry(RSP)), Some(_)) => Spot::StackFrom(value.plus),
        _ => Spot::At(value),
    }
}
