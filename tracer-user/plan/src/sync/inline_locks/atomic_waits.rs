//! Steps of synchronization other than by locks: passing a once flag, unparking a thread and being unparked.
//! Each is one instruction that reads or changes the object, inlined or in a function that is known by its
//! name.

use std::collections::BTreeSet;

use iced_x86::Code;

use super::*;

/// Instructions to look for in a function that is known by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A once routine has run, and its flag is about to be changed.
    Ran,
    /// A once flag is looked at.
    Passed,
    /// A thread goes on that was parked.
    Parked,
    /// A place in a channel is taken for a message: its number is in `rax`.
    Sent,
    /// The message of a place is taken.
    Received,
    /// A number is lowered by a compare-and-exchange.
    Taken,
    /// A number is about to be raised.
    Raised,
    /// A number is about to be lowered.
    Lowered,
    /// A number is seen to be 0.
    Zero,
    /// A byte is about to be read for the first time.
    Byte,
}

/// A step, and where probes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStep {
    /// The instruction.
    pub at: u64,
    /// Just one of them records each time.
    pub points: Vec<InlinedPoint>,
    /// Set if the step counts only where `rax` is 1 at the probe.
    pub if_one: bool,
}

/// Distance of the number of the next message to send from that of the next message to receive in a channel:
/// they are in cache lines of their own.
const TAIL: i64 = 0x80;

/// Finds all such steps in a function, from all of its parts. `None` when it cannot be taken apart.
#[must_use]
pub fn steps(
    parts: &[Part<'_>],
    surroundings: &Surroundings<'_>,
    look: Look,
) -> Option<Vec<WaitStep>> {
    let is_slot = |slot: u64| (surroundings.in_slot)(slot).is_some();
    let values = Dataflow::analyze(parts, &is_slot, surroundings.word_at)?;
    let finder = Finder { values, surroundings, is_slot: &is_slot };
    let all = 0..finder.values.instructions().len();
    Some(all.filter_map(|index| finder.step(index, look)).collect())
}

/// Finds steps for several looks, each in stretches of the code; see [`steps()`].
#[must_use]
pub fn steps_within(
    parts: &[Part<'_>],
    surroundings: &Surroundings<'_>,
    looks: &[(Look, Vec<(u64, u64)>)],
) -> Option<Vec<(Look, WaitStep)>> {
    let is_slot = |slot: u64| (surroundings.in_slot)(slot).is_some();
    let values = Dataflow::analyze(parts, &is_slot, surroundings.word_at)?;
    let finder = Finder { values, surroundings, is_slot: &is_slot };
    let mut found: Vec<(Look, WaitStep)> = Vec::new();
    for (look, stretches) in looks {
        let inside = |at: u64| stretches.iter().any(|&(start, end)| (start..end).contains(&at));
        let all = (0..finder.values.instructions().len())
            .filter(|&index| inside(finder.instruction(index).ip()))
            .filter_map(|index| finder.step(index, *look));
        let first = if *look == Look::Byte { 1 } else { usize::MAX };
        for step in all.take(first) {
            // Stretches may lie in one another.
            if found.iter().all(|(_, known)| known.points != step.points) {
                found.push((*look, step));
            }
        }
    }
    Some(found)
}

impl Finder<'_> {
    fn step(&self, index: usize, look: Look) -> Option<WaitStep> {
        let instruction = self.instruction(index);
        let at = instruction.ip();
        let is_word = instruction.memory_size().size() == 4;
        let is_exchange = instruction.mnemonic() == Mnemonic::Xchg;
        match look {
            Look::Ran => {
                let ran = is_word && is_exchange && self.is_atomic(index);
                let points = ran.then(|| self.points_before(index).ok())??;
                Some(WaitStep { at, points, if_one: false })
            }
            Look::Passed => {
                let flag = self.loaded_at(index)?;
                Some(WaitStep { at, points: vec![self.equal_after(index, flag)?], if_one: false })
            }
            Look::Sent | Look::Received => {
                let tail = if look == Look::Sent { TAIL } else { 0 };
                let is_number = instruction.mnemonic() == Mnemonic::Cmpxchg
                    && self.is_atomic(index)
                    && instruction.memory_size().size() == 8
                    && instruction.memory_index() == Register::None
                    && instruction.memory_displacement64().cast_signed() == tail;
                let number = is_number.then(|| self.address_at(index))??;
                let channel = Value { plus: number.plus.wrapping_sub(tail), ..number };
                Some(WaitStep {
                    at,
                    points: vec![self.equal_after(index, channel)?],
                    if_one: false,
                })
            }
            Look::Taken => {
                let exchanges =
                    is_word && instruction.mnemonic() == Mnemonic::Cmpxchg && self.is_atomic(index);
                let number = exchanges.then(|| self.address_at(index))??;
                Some(WaitStep { at, points: vec![self.equal_after(index, number)?], if_one: false })
            }
            Look::Raised | Look::Lowered => {
                let changes = match instruction.mnemonic() {
                    Mnemonic::Xadd => true,
                    Mnemonic::Sub | Mnemonic::Dec => look == Look::Lowered,
                    _ => false,
                };
                if !changes || !is_word || !self.is_atomic(index) {
                    return None;
                }
                let points = match self.points_before(index) {
                    Ok(points) => points,
                    // Behind it no other is harmed: who is let through before that is not seen to be.
                    Err(_) => vec![self.point_behind(index)?],
                };
                Some(WaitStep { at, points, if_one: false })
            }
            Look::Zero => {
                let number = self.loaded_at(index)?;
                if number.on_stack().is_some() {
                    return None;
                }
                Some(WaitStep { at, points: vec![self.equal_after(index, number)?], if_one: false })
            }
            Look::Byte => {
                let reads = matches!(instruction.code(), Code::Movzx_r32_rm8 | Code::Mov_r8_rm8)
                    && instruction.op1_kind() == OpKind::Memory;
                let byte = reads.then(|| self.before(index)?.address(instruction))??;
                if byte.on_stack().is_some() {
                    return None;
                }
                let point = self.near_before(index, byte)?;
                Some(WaitStep { at, points: vec![point], if_one: false })
            }
            Look::Parked => {
                if !is_word || !self.is_atomic(index) {
                    return None;
                }
                let parker = self.address_at(index)?;
                let point = if is_exchange {
                    self.result_after(index, parker)?
                } else {
                    self.equal_after(index, parker)?
                };
                Some(WaitStep { at, points: vec![point], if_one: is_exchange })
            }
        }
    }

    /// Finds the places where a once flag is passed without the slow path: the load, and the jump that depends
    /// on it. Without a check of the flag, the slow path sees all.
    pub(crate) fn passed_before(
        &self,
        slow: usize,
    ) -> Result<Option<(usize, InlinedPoint)>, UnrecognisedLock> {
        let mut reason = None;
        let Some(argument) = self.before(slow).map(|state| state.register(ARGUMENT)) else {
            return Ok(None);
        };
        // The slow path may get the flag, or what it is a part of. Another load than that of a flag does no
        // harm: at its address nothing is ever completed.
        let is_in = |distance: Option<i64>| distance.is_some_and(|distance| distance >= 0);
        let mut visited = BTreeSet::from([slow]);
        let mut todo = vec![slow];
        while let Some(index) = todo.pop() {
            for &before in self.values.predecessors(index) {
                let load = self.loaded_at(before);
                if let Some(flag) = load.filter(|load| is_in(load.distance_from(argument))) {
                    match self.points_after(before, flag, &visited).as_deref() {
                        Ok(&[point]) if point.condition == Some(FlagCondition::EQUAL) => {
                            return Ok(Some((before, point)));
                        }
                        Ok(_) => reason = Some(UnrecognisedLock::NotCompared),
                        Err(&why) => reason = Some(why),
                    }
                    continue;
                }
                let control = self.instruction(before).flow_control();
                let is_call = matches!(control, FlowControl::Call | FlowControl::IndirectCall);
                if !is_call && visited.len() < MAX_FAST_PATH_DISTANCE && visited.insert(before) {
                    todo.push(before);
                }
            }
        }
        reason.map_or(Ok(None), Err)
    }

    /// The address that four bytes are loaded from, to be compared, or are compared at.
    pub(crate) fn loaded_at(&self, index: usize) -> Option<Value> {
        if self.helper(index) == Some(Helper::Load) {
            return Some(self.before(index)?.register(ARGUMENT));
        }
        let instruction = self.instruction(index);
        let loads = match instruction.code() {
            Code::Mov_r32_rm32 => instruction.op1_kind() == OpKind::Memory,
            Code::Cmp_rm32_imm8 | Code::Cmp_rm32_imm32 => instruction.op0_kind() == OpKind::Memory,
            _ => false,
        };
        loads.then(|| self.before(index)?.address(instruction)).flatten()
    }

    /// The instruction that first depends on whether what was compared last is equal. Between the two may be a
    /// comparison, and nothing else that matters.
    pub(crate) fn equal_after(&self, from: usize, object: Value) -> Option<InlinedPoint> {
        let mut index = from;
        for _ in 0..MAX_TEST_DISTANCE {
            let [next] = self.values.successors(index)[..] else { return None };
            index = next;
            let instruction = self.instruction(index);
            let depends = match instruction.flow_control() {
                FlowControl::ConditionalBranch => {
                    matches!(
                        jump_condition(instruction)?,
                        FlagCondition::EQUAL | FlagCondition::NOT_EQUAL
                    )
                }
                FlowControl::Next => {
                    matches!(instruction.mnemonic(), Mnemonic::Sete | Mnemonic::Setne)
                }
                FlowControl::UnconditionalBranch => false,
                _ => return None,
            };
            if depends {
                let lock = locate(&self.before(index)?, object)?;
                return Some(InlinedPoint {
                    address: instruction.ip(),
                    lock,
                    condition: Some(FlagCondition::EQUAL),
                });
            }
            if instruction.flow_control() == FlowControl::ConditionalBranch || self.is_atomic(index)
            {
                return None;
            }
        }
        None
    }

    /// The instruction behind an atomic one.
    fn point_behind(&self, atomic: usize) -> Option<InlinedPoint> {
        let mut next = atomic;
        // Some nops cannot be probed.
        let instruction = loop {
            [next] = self.values.successors(next)[..].try_into().ok()?;
            let instruction = self.instruction(next);
            // Other ways may lead there.
            let [_] = self.values.predecessors(next)[..] else { return None };
            if instruction.mnemonic() != Mnemonic::Nop || self.cost(instruction).is_some() {
                break instruction;
            }
        };
        self.cost(instruction)?;
        let lock = locate(&self.before(next)?, self.address_at(atomic)?)?;
        Some(InlinedPoint { address: instruction.ip(), lock, condition: None })
    }

    /// The next instruction that can be probed while `rax` has what was exchanged.
    fn result_after(&self, from: usize, object: Value) -> Option<InlinedPoint> {
        let result = self.instruction(from).op1_register();
        if number(result) != Some(RESULT) {
            return None;
        }
        let mut info = InstructionInfoFactory::new();
        let mut index = from;
        for _ in 0..MAX_TEST_DISTANCE {
            let [next] = self.values.successors(index)[..] else { return None };
            index = next;
            let instruction = self.instruction(index);
            if self.cost(instruction).is_some()
                && let Some(lock) = self.before(index).and_then(|state| locate(&state, object))
            {
                return Some(InlinedPoint { address: instruction.ip(), lock, condition: None });
            }
            let changes = info.info(instruction).used_registers().iter().any(|used| {
                number(used.register()) == Some(RESULT) && used.access() != OpAccess::Read
            });
            if changes || instruction.flow_control() != FlowControl::Next {
                return None;
            }
        }
        None
    }
}
