//! Finds the inlined acquires and releases of locks in a function: the atomic instruction before a call of a
//! slow path, and the instructions beside it where a probe sees that it has happened, or is about to. Reads
//! machine code; the caller knows the slow paths, files and processes.
//!
//! Acquire: a compare-and-exchange, and a conditional jump after it of which one side leads to the slow path.
//! On the other side the lock is held. Release: the atomic instruction from which the slow path is reached; it
//! is recorded before it happens.

pub mod atomic_waits;
mod operand;
mod sites;
mod try_lock;

pub use self::sites::{
    Helper, InlinedLocks, InlinedPoint, InlinedSite, LockAddress, Passed, Surroundings,
    Unrecognised, UnrecognisedLock,
};
pub use self::try_lock::tried_lock;

use std::collections::{BTreeMap, BTreeSet};

use abi::FlagCondition;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use x86::{
    dataflow::{DataState, Dataflow, RESULT, Value, ValueOrigin, number},
    exits::Part,
    instruction::{ARGUMENTS, jump_condition},
    placement::Cost,
};

use self::operand::loaded_by;
pub(super) use self::operand::locate;
use super::slow_paths::FastPath;

/// Maximum distance of a fast path before its slow path, in instructions.
const MAX_FAST_PATH_DISTANCE: usize = 256;

/// Maximum number of instructions between an atomic instruction and the jump that depends on it.
const MAX_TEST_DISTANCE: usize = 16;

/// Finds all places in a function, from all of its parts. `None` when it cannot be taken apart.
#[must_use]
pub fn inlined_locks(parts: &[Part<'_>], surroundings: &Surroundings<'_>) -> Option<InlinedLocks> {
    let is_slot = |slot: u64| (surroundings.in_slot)(slot).is_some();
    let values = Dataflow::analyze(parts, &is_slot, surroundings.word_at)?;
    let finder = Finder { values, surroundings, is_slot: &is_slot };
    Some(finder.find())
}

struct Finder<'code> {
    values: Dataflow,
    surroundings: &'code Surroundings<'code>,
    is_slot: &'code dyn Fn(u64) -> bool,
}

/// An atomic instruction, or a call of one, before a slow path.
struct Atomic {
    index: usize,
    /// Number of conditional jumps between the two.
    jumps: usize,
}

impl Finder<'_> {
    fn find(&self) -> InlinedLocks {
        let mut sites: BTreeMap<u64, InlinedSite> = BTreeMap::new();
        let (mut unrecognised, mut looked_at, mut passed) = (Vec::new(), Vec::new(), Vec::new());
        for (index, instruction) in self.values.instructions().iter().enumerate() {
            let Some((slow_path, fast)) =
                self.callee(index).and_then(|callee| (self.surroundings.slow_path_at)(callee))
            else {
                continue;
            };
            if self.looks_at_result(index) {
                looked_at.push(slow_path);
            }
            if fast == FastPath::Nothing || (fast == FastPath::ReleaseAndWake && !self.wakes(index))
            {
                continue;
            }
            if fast == FastPath::PassOnce {
                match self.passed_before(index) {
                    Ok(None) => {}
                    Ok(Some((load, point))) => {
                        let at = self.instruction(load).ip();
                        let points = vec![point];
                        sites.entry(at).or_insert(InlinedSite { at, fast, slow_path, points });
                    }
                    Err(reason) => {
                        unrecognised.push(Unrecognised { at: instruction.ip(), slow_path, reason });
                    }
                }
                continue;
            }
            let (before, visited) = self.atomics_before(index);
            let mut reason = UnrecognisedLock::NoAtomic;
            let mut found = false;
            for atomic in before {
                if !self.is_of(&atomic, index, fast) {
                    continue;
                }
                let points = if fast.acquires() {
                    self.address_at(atomic.index)
                        .ok_or(UnrecognisedLock::UnknownAddress)
                        .and_then(|lock| self.points_after(atomic.index, lock, &visited))
                } else {
                    self.points_before(atomic.index)
                };
                match points {
                    Ok(points) => {
                        found = true;
                        if fast.acquires() {
                            let lock = self.address_at(atomic.index);
                            let argument = self.before(index).map(|state| state.register(ARGUMENT));
                            let is_lock = lock == argument;
                            let lock = lock.and_then(Value::as_constant);
                            passed.push(Passed { slow_path, is_lock, lock });
                        }
                        // Two that are tested by one jump are seen by one probe.
                        if sites.values().any(|site| site.fast.acquires() && site.points == points)
                        {
                            continue;
                        }
                        let at = self.values.instructions()[atomic.index].ip();
                        let fast = self.refined(atomic.index, fast);
                        sites.entry(at).or_insert(InlinedSite { at, fast, slow_path, points });
                    }
                    Err(why) => reason = why,
                }
            }
            if !found && !fast.is_conditional() {
                unrecognised.push(Unrecognised { at: instruction.ip(), slow_path, reason });
            }
        }
        self.tries(&mut sites);
        self.keep_apart(&mut sites);
        InlinedLocks { sites: sites.into_values().collect(), unrecognised, looked_at, passed }
    }

    /// Moves releases away from acquires: the order of two probes in one place is not defined.
    fn keep_apart(&self, sites: &mut BTreeMap<u64, InlinedSite>) {
        let taken: BTreeSet<u64> = sites
            .values()
            .filter(|site| site.fast.acquires())
            .flat_map(|site| site.points.iter().map(|point| point.address))
            .collect();
        for site in sites.values_mut().filter(|site| !site.fast.acquires()) {
            if site.points.iter().any(|point| taken.contains(&point.address))
                && let Some(index) = self.values.at(site.at)
                && let Some(lock) = self.address_at(index)
                && let Some(point) = self.near_before(index, lock)
            {
                site.points = vec![point];
            }
        }
    }

    fn instruction(&self, index: usize) -> &Instruction {
        &self.values.instructions()[index]
    }

    fn before(&self, index: usize) -> Option<DataState> {
        self.values.before(index, self.is_slot)
    }

    /// Returns the function to which an instruction transfers control, if it is known.
    fn callee(&self, index: usize) -> Option<u64> {
        let instruction = self.instruction(index);
        let target = match instruction.flow_control() {
            FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch => return Some(instruction.near_branch_target()),
            FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                if instruction.is_ip_rel_memory_operand() {
                    return (self.surroundings.in_slot)(instruction.ip_rel_memory_address());
                }
                self.before(index)?.target(instruction, self.is_slot)?
            }
            _ => return None,
        };
        match target {
            Value { base: Some(ValueOrigin::Slot(slot)), index: None, plus: 0 } => {
                (self.surroundings.in_slot)(slot)
            }
            constant => constant.as_constant(),
        }
    }

    /// Returns true if the result of a call is used. If no caller uses it, link-time optimization may leave it
    /// out.
    fn looks_at_result(&self, call: usize) -> bool {
        let mut info = InstructionInfoFactory::new();
        let mut index = call;
        for _ in 0..MAX_TEST_DISTANCE {
            let [next] = self.values.successors(index)[..] else { break };
            index = next;
            let instruction = self.instruction(index);
            if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
                return false;
            }
            for used in info.info(instruction).used_registers() {
                if number(used.register()) == Some(RESULT) {
                    return used.access() != OpAccess::Write;
                }
            }
        }
        // It may be passed on to a caller.
        true
    }

    /// Returns true if a call of `syscall` wakes threads that wait on a futex.
    fn wakes(&self, call: usize) -> bool {
        /// `SYS_futex`, and `FUTEX_WAKE` with `FUTEX_PRIVATE_FLAG`.
        const FUTEX: u64 = 202;
        const WAKE: u64 = 0x81;
        self.before(call).is_some_and(|state| {
            let constant = |register| state.register(register).as_constant();
            constant(ARGUMENT) == Some(FUTEX) && constant(THIRD_ARGUMENT) == Some(WAKE)
        })
    }

    fn is_atomic(&self, index: usize) -> bool {
        let instruction = self.instruction(index);
        instruction.has_lock_prefix()
            || (instruction.mnemonic() == Mnemonic::Xchg
                && instruction.op0_kind() == OpKind::Memory)
    }

    /// The helper that an instruction calls.
    fn helper(&self, index: usize) -> Option<Helper> {
        let control = self.instruction(index).flow_control();
        matches!(control, FlowControl::Call | FlowControl::IndirectCall)
            .then(|| self.callee(index))
            .flatten()
            .and_then(|callee| (self.surroundings.helper_at)(callee))
    }

    /// Goes back from a slow path to the last atomic instructions before it. Returns them and all instructions
    /// passed.
    fn atomics_before(&self, slow: usize) -> (Vec<Atomic>, BTreeSet<usize>) {
        let mut atomics: Vec<Atomic> = Vec::new();
        let mut visited = BTreeSet::from([slow]);
        let mut todo = vec![(slow, 0)];
        while let Some((index, jumps)) = todo.pop() {
            for &before in self.values.predecessors(index) {
                let helper = self.helper(before);
                if self.is_atomic(before)
                    || matches!(helper, Some(Helper::CompareExchange | Helper::Atomic))
                {
                    match atomics.iter_mut().find(|known| known.index == before) {
                        Some(known) => known.jumps = known.jumps.min(jumps),
                        None => atomics.push(Atomic { index: before, jumps }),
                    }
                    continue;
                }
                let control = self.instruction(before).flow_control();
                let is_call = matches!(control, FlowControl::Call | FlowControl::IndirectCall);
                if (is_call && matches!(helper, None | Some(Helper::Load)))
                    || visited.len() >= MAX_FAST_PATH_DISTANCE
                    || !visited.insert(before)
                {
                    continue;
                }
                let jump = usize::from(control == FlowControl::ConditionalBranch);
                todo.push((before, jumps + jump));
            }
        }
        (atomics, visited)
    }

    /// Returns true if an atomic instruction is about the lock that the slow path gets.
    fn is_of(&self, atomic: &Atomic, slow: usize, fast: FastPath) -> bool {
        let instruction = self.instruction(atomic.index);
        let is_call = !self.is_atomic(atomic.index);
        let exchanges = instruction.mnemonic() == Mnemonic::Cmpxchg
            || self.helper(atomic.index) == Some(Helper::CompareExchange);
        if fast.acquires() && !exchanges {
            return false;
        }
        if fast == FastPath::ReleaseAndWake && !self.exchanges_for(atomic.index, 0) {
            return false;
        }
        if fast == FastPath::Unpark && !self.exchanges_for(atomic.index, 1) {
            return false;
        }
        if atomic.jumps <= 1 && !is_call && (!fast.acquires() || self.decides(atomic.index)) {
            return true;
        }
        let lock = self.address_at(atomic.index);
        let register = if fast == FastPath::ReleaseAndWake { SECOND_ARGUMENT } else { ARGUMENT };
        let argument = self.before(slow).map(|state| state.register(register));
        lock.is_some() && lock == argument
    }

    /// Returns true if an instruction exchanges the value in memory for this.
    fn exchanges_for(&self, index: usize, wanted: u64) -> bool {
        let instruction = self.instruction(index);
        let new = number(instruction.op1_register())
            .zip(self.before(index))
            .and_then(|(register, state)| state.register(register).as_constant());
        instruction.mnemonic() == Mnemonic::Xchg && new == Some(wanted)
    }

    /// Returns true if the jump after a compare-and-exchange depends on its result alone.
    fn decides(&self, atomic: usize) -> bool {
        self.values.instructions()[atomic + 1..]
            .iter()
            .take(MAX_TEST_DISTANCE)
            .find(|instruction| {
                instruction.flow_control() != FlowControl::Next
                    || instruction.rflags_modified() != 0
            })
            .is_some_and(|jump| {
                matches!(
                    jump_condition(jump),
                    Some(FlagCondition::EQUAL | FlagCondition::NOT_EQUAL)
                )
            })
    }

    /// The address of the lock, as it is before an atomic instruction.
    fn address_at(&self, index: usize) -> Option<Value> {
        let state = self.before(index)?;
        if self.is_atomic(index) {
            state.address(self.instruction(index))
        } else {
            Some(state.register(ARGUMENT))
        }
    }

    /// Refines the mode of a release by its instruction, where the slow path does not determine it.
    fn refined(&self, index: usize, fast: FastPath) -> FastPath {
        /// Difference in the state of std's `RwLock`: one reader less, and the writer less.
        const READER: u32 = 1_u32.wrapping_neg();
        const WRITER: u32 = 0x3fff_ffff_u32.wrapping_neg();
        match fast {
            FastPath::ReleaseEither => {}
            FastPath::ReleaseAndWake => return FastPath::Release,
            _ => return fast,
        }
        let instruction = self.instruction(index);
        let operand = match instruction.op1_kind() {
            OpKind::Register => number(instruction.op1_register())
                .zip(self.before(index))
                .and_then(|(register, state)| state.register(register).as_constant()),
            _ if instruction.op_count() > 1 => Some(instruction.immediate(1)),
            _ => None,
        };
        match (instruction.mnemonic(), operand.map(|operand| operand as u32)) {
            (Mnemonic::Xadd | Mnemonic::Add, Some(READER)) | (Mnemonic::Sub, Some(1)) => {
                FastPath::ReleaseShared
            }
            (Mnemonic::Xadd | Mnemonic::Add, Some(WRITER)) | (Mnemonic::Sub, Some(0x3fff_ffff)) => {
                FastPath::Release
            }
            (Mnemonic::Dec, _) => FastPath::ReleaseShared,
            _ => FastPath::ReleaseEither,
        }
    }

    /// The jump after a compare-and-exchange of which one side leads to the slow path.
    fn points_after(
        &self,
        atomic: usize,
        lock: Value,
        to_slow: &BTreeSet<usize>,
    ) -> Result<Vec<InlinedPoint>, UnrecognisedLock> {
        let mut index = atomic;
        for _ in 0..MAX_TEST_DISTANCE {
            let successors = self.values.successors(index);
            if let [next] = successors[..] {
                index = next;
            } else {
                break;
            }
            let instruction = self.instruction(index);
            let control = instruction.flow_control();
            if control == FlowControl::ConditionalBranch {
                break;
            }
            let goes_on = matches!(control, FlowControl::Next | FlowControl::UnconditionalBranch);
            if !(goes_on || self.helper(index) == Some(Helper::Other)) || self.is_atomic(index) {
                return Err(UnrecognisedLock::NotTested);
            }
        }
        let jump = self.instruction(index);
        let taken = jump_condition(jump).ok_or(UnrecognisedLock::NotTested)?;
        // A slow path may be jumped to at once, in the last instruction of a function.
        let slow = |address: u64| {
            self.values.at(address).map_or_else(
                || (self.surroundings.slow_path_at)(address).is_some(),
                |index| to_slow.contains(&index),
            )
        };
        let condition = match (slow(jump.next_ip()), slow(jump.near_branch_target())) {
            (true, false) => taken,
            (false, true) => taken.negated(),
            _ => return Err(UnrecognisedLock::BothSides),
        };
        let state = self.before(index).ok_or(UnrecognisedLock::Unreached)?;
        let lock = locate(&state, lock).ok_or(UnrecognisedLock::NoRegister)?;
        Ok(vec![InlinedPoint { address: jump.ip(), lock, condition: Some(condition) }])
    }

    /// Places before an atomic instruction, of which each time just one is passed: cheap ones if there are.
    fn points_before(&self, atomic: usize) -> Result<Vec<InlinedPoint>, UnrecognisedLock> {
        let lock = self.address_at(atomic).ok_or(UnrecognisedLock::UnknownAddress)?;
        // A cheap probe on the instruction itself is the nearest.
        if let Some(point) = self.near_before(atomic, lock)
            && self.is_cheap(atomic)
        {
            return Ok(vec![point]);
        }
        let mut points = Vec::new();
        let is_call = !self.is_atomic(atomic);
        if !is_call && self.cheap_before(atomic, lock, &mut points, &mut BTreeSet::new()).is_some()
        {
            points.sort_by_key(|point| point.address);
            return Ok(points);
        }
        self.near_before(atomic, lock).map(|point| vec![point]).ok_or(UnrecognisedLock::NoPlace)
    }

    /// The nearest instruction before an atomic one, or it itself.
    fn near_before(&self, atomic: usize, lock: Value) -> Option<InlinedPoint> {
        let mut index = atomic;
        for _ in 0..MAX_TEST_DISTANCE {
            let instruction = self.instruction(index);
            if self.cost(instruction).is_some()
                && let Some(lock) = self
                    .before(index)
                    .and_then(|state| locate(&state, lock))
                    .or_else(|| loaded_by(instruction, lock))
            {
                let address = instruction.ip();
                return Some(InlinedPoint { address, lock, condition: None });
            }
            match *self.values.predecessors(index) {
                [before] if before + 1 == index && self.is_plain(before) => index = before,
                _ => break,
            }
        }
        None
    }

    /// Returns true if an instruction goes on to the next, and shares no memory with other threads.
    fn is_plain(&self, index: usize) -> bool {
        let instruction = self.instruction(index);
        if instruction.flow_control() != FlowControl::Next || self.is_atomic(index) {
            return false;
        }
        let mut info = InstructionInfoFactory::new();
        info.info(instruction).used_memory().iter().all(|memory| {
            matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
                || memory.base() == Register::RSP
        })
    }

    /// Instructions with cheap probes on all ways to an atomic instruction, near it; `None` when one way has none.
    fn cheap_before(
        &self,
        index: usize,
        lock: Value,
        points: &mut Vec<InlinedPoint>,
        seen: &mut BTreeSet<usize>,
    ) -> Option<()> {
        const MAX_POINTS: usize = 8;
        let mut here = index;
        for _ in 0..MAX_TEST_DISTANCE {
            if !seen.insert(here) {
                return None;
            }
            let predecessors = self.values.predecessors(here);
            if let [before] = *predecessors
                && before + 1 == here
                && self.instruction(before).flow_control() == FlowControl::Next
            {
                if !self.is_plain(before) {
                    return None;
                }
                if self.is_cheap(before) {
                    return self.add(before, lock, None, points);
                }
                here = before;
                continue;
            }
            if predecessors.is_empty() || here == 0 {
                return None;
            }
            for &before in predecessors {
                let lock = self.at_edge(before, here, lock)?;
                let instruction = self.instruction(before);
                if self.is_cheap(before)
                    && matches!(
                        instruction.flow_control(),
                        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                    )
                {
                    let successors = self.values.successors(before);
                    let when = match (jump_condition(instruction), successors.len()) {
                        (None, _) => None,
                        (Some(taken), 2) if successors[1] == here => Some(taken),
                        (Some(taken), _) => Some(taken.negated()),
                    };
                    self.add(before, lock, when, points)?;
                } else if self.is_plain(before) && before + 1 == here {
                    if self.is_cheap(before) {
                        self.add(before, lock, None, points)?;
                    } else {
                        self.cheap_before(before, lock, points, seen)?;
                    }
                } else {
                    return None;
                }
            }
            return (points.len() <= MAX_POINTS).then_some(());
        }
        None
    }

    fn cost(&self, instruction: &Instruction) -> Option<Cost> {
        self.surroundings.place_rules.cost(instruction)
    }

    fn is_cheap(&self, index: usize) -> bool {
        self.cost(self.instruction(index)).is_some_and(Cost::is_cheap)
    }

    /// Returns the value at the end of a path that leads to the merge.
    fn at_edge(&self, from: usize, to: usize, value: Value) -> Option<Value> {
        let Some(place) = self.values.merged_at(value, to) else { return Some(value) };
        let there = self.before(from)?.get(place)?;
        let sum = Value { plus: there.plus.wrapping_add(value.plus), ..there };
        (value.index.is_none()).then_some(sum)
    }

    fn add(
        &self,
        index: usize,
        lock: Value,
        condition: Option<FlagCondition>,
        points: &mut Vec<InlinedPoint>,
    ) -> Option<()> {
        let lock = locate(&self.before(index)?, lock)?;
        let address = self.instruction(index).ip();
        // Two ways from one jump would be two records in one place.
        if points.iter().any(|point| point.address == address) {
            return None;
        }
        points.push(InlinedPoint { address, lock, condition });
        Some(())
    }
}

/// Register of the first argument.
const ARGUMENT: u8 = ARGUMENTS[0];
const SECOND_ARGUMENT: u8 = ARGUMENTS[1];
const THIRD_ARGUMENT: u8 = ARGUMENTS[2];

#[cfg(test)]
mod tests;
