//! Places where code can be patched: the bytes that a jump to a trampoline displaces for a set of probe points, and
//! what a probe at each point must leave as it is. Reads machine code, knows nothing of trampolines or processes.
//!
//! A patch displaces instructions of one straight line: control enters the displaced bytes at their start only. A
//! direct call is the last of them, so that it returns to the instruction behind the patch; no other call is displaced,
//! and no `endbr64`, which an indirect call looks for. A probe point at an instruction that stays where it is ends the
//! displaced bytes of the line before it.

mod liveness;
mod padding;
mod red_zone;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ops::Range};

use iced_x86::{FlowControl, Instruction, Mnemonic};

use self::liveness::Liveness;
pub use self::{liveness::Live, padding::Padding};
use super::{
    basic_blocks::BasicBlocks,
    dataflow::Dataflow,
    exits::Part,
    instruction::{decode, is_direct},
};

/// Length in bytes of a jump that reaches any trampoline.
pub const NEAR_JUMP: u64 = 5;

/// Length in bytes of a jump to padding.
pub const SHORT_JUMP: u64 = 2;

/// Function to patch, with what its own code does not show.
pub struct Function<'code> {
    /// All parts of its code, the start first.
    pub parts: &'code [Part<'code>],
    /// Returns the four bytes of the file that are loaded to an address.
    pub word_at: &'code dyn Fn(u64) -> Option<u32>,
    /// Returns whether control may come to an address from outside of the function, except by a return: a jump of
    /// another function, a symbol, a landing pad.
    pub is_target: &'code dyn Fn(u64) -> bool,
    /// Returns whether an address is in a restartable sequence.
    pub is_restartable: &'code dyn Fn(u64) -> bool,
    /// Calling convention of the code.
    pub convention: Convention,
}

/// Calling convention, which says what counts after a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// System V ABI, AMD64 supplement.
    SystemV,
    /// Any other: all registers count after a return.
    Unknown,
}

/// Bytes to displace for one or more probe points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Addresses of the displaced bytes: whole instructions.
    pub range: Range<u64>,
    /// The jump that is written to the start of the range.
    pub jump: Jump,
    /// The probe points, by their places.
    pub points: Vec<Point>,
}

/// Jump at the start of the displaced bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// A jump of [`NEAR_JUMP`] bytes to the trampoline.
    Near,
    /// A jump of [`SHORT_JUMP`] bytes to this address, where padding holds a jump of [`NEAR_JUMP`] bytes.
    Short(u64),
}

/// Probe point in a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Address that was asked for.
    pub address: u64,
    /// Instruction before which the probe acts: `address`, or the one after an `endbr64` there; the end of the range
    /// for an instruction that is not displaced.
    pub before: u64,
    /// Registers and flags that count there.
    pub live: Live,
    /// Set if the 128 bytes below the stack pointer may be in use.
    pub red_zone: bool,
}

/// Reason why there can be no patch for a probe point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The function has no instruction there, or its bytes are none.
    #[error("no instruction of the function begins there")]
    NoInstruction,
    /// An indirect jump leads to unknown places, maybe into the bytes of a patch.
    #[error("control may come to any place of the function")]
    UnknownControlFlow,
    /// The instruction is in a restartable sequence.
    #[error("it is inside a restartable sequence (rseq)")]
    Restartable,
    /// The straight line is too short for a jump, and there is no padding near it.
    #[error("there is no room for a jump in {0} bytes of straight code")]
    NoRoom(u64),
}

/// Patches for probe points, and the points that have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// The patches, by address. They do not overlap.
    pub patches: Vec<Patch>,
    /// Points without a patch.
    pub refused: Vec<(u64, Refusal)>,
}

impl Function<'_> {
    /// Chooses patches for probe points, one for all points of a straight line. Room in `padding` is used up.
    #[must_use]
    pub fn patches(&self, points: &[u64], padding: &mut Padding) -> Patches {
        match BasicBlocks::analyze(self.parts, self.word_at) {
            Some(blocks) => Planner::new(self, blocks.dataflow()).plan(points, padding),
            None => self.single_instructions(points),
        }
    }

    /// Patches where control may come to any instruction: of one instruction each, which only has a start.
    fn single_instructions(&self, points: &[u64]) -> Patches {
        let mut patches = Patches::default();
        for &address in points {
            let part = self.parts.iter().find(|part| part.contains(address));
            let at = part.and_then(|part| {
                decode(part.code, part.start)
                    .take_while(|instruction| !instruction.is_invalid())
                    .find(|instruction| instruction.ip() == address)
            });
            let refusal = match at {
                None => Refusal::NoInstruction,
                Some(_) if (self.is_restartable)(address) => Refusal::Restartable,
                Some(at) if at.len() as u64 >= NEAR_JUMP && is_displaceable(&at) => {
                    let point = Point { address, before: address, live: Live::ALL, red_zone: true };
                    let range = at.ip()..at.next_ip();
                    patches.patches.push(Patch { range, jump: Jump::Near, points: vec![point] });
                    continue;
                }
                Some(_) => Refusal::UnknownControlFlow,
            };
            patches.refused.push((address, refusal));
        }
        patches.patches.sort_by_key(|patch| patch.range.start);
        patches
    }
}

/// Returns true if an instruction can be executed elsewhere without a difference that anything sees.
fn is_displaceable(instruction: &Instruction) -> bool {
    let moves = match instruction.flow_control() {
        FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => true,
        // A call is the last of its line: its trampoline jumps, with the return address that is the program's own.
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            is_direct(instruction)
        }
        _ => false,
    };
    let is_call = matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Sysexit | Mnemonic::Sysret
    );
    moves && !is_call && !matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Hlt)
}

/// Chooses the patches of a function whose control flow is known.
struct Planner<'a> {
    function: &'a Function<'a>,
    flow: &'a Dataflow,
    liveness: Liveness,
    red_zone: bool,
}

/// Straight line of instructions that can be displaced, by their numbers.
struct Line {
    first: usize,
    /// Number after the last instruction.
    end: usize,
}

impl<'a> Planner<'a> {
    fn new(function: &'a Function<'a>, flow: &'a Dataflow) -> Self {
        let liveness = Liveness::analyze(flow, function.convention);
        Self { function, flow, liveness, red_zone: red_zone::is_used(flow) }
    }

    fn plan(&self, points: &[u64], padding: &mut Padding) -> Patches {
        let mut patches = Patches::default();
        // Points by the line that is patched for them: its first instruction, with the place of each.
        let mut lines: BTreeMap<usize, (Line, Vec<(usize, u64)>)> = BTreeMap::new();
        for &address in points {
            match self.place(address) {
                Ok((at, line)) => {
                    lines.entry(line.first).or_insert((line, Vec::new())).1.push((at, address));
                }
                Err(refusal) => patches.refused.push((address, refusal)),
            }
        }
        padding.add_inside(self.flow, self.function.is_target);
        for (line, mut places) in lines.into_values() {
            places.sort_unstable();
            places.dedup();
            match self.patch(&line, &places, padding) {
                Ok(patch) => patches.patches.push(patch),
                Err(refusal) => {
                    patches.refused.extend(places.iter().map(|&(_, address)| (address, refusal)));
                }
            }
        }
        patches.patches.sort_by_key(|patch| patch.range.start);
        patches
    }

    /// Instruction before which the probe acts, and the line to patch for it.
    fn place(&self, address: u64) -> Result<(usize, Line), Refusal> {
        let mut at = self.flow.at(address).ok_or(Refusal::NoInstruction)?;
        if (self.function.is_restartable)(address) {
            return Err(Refusal::Restartable);
        }
        let instructions = self.flow.instructions();
        if instructions[at].mnemonic() == Mnemonic::Endbr64 && self.continues(at + 1) {
            at += 1;
        }
        let inside = if self.is_displaceable(at) {
            at
        } else {
            // The line before it, if control comes from nowhere else.
            let before = at.checked_sub(1).filter(|_| self.continues(at));
            before.filter(|&before| self.is_displaceable(before)).ok_or(Refusal::NoRoom(0))?
        };
        Ok((at, self.line(inside)))
    }

    fn is_displaceable(&self, at: usize) -> bool {
        let instruction = &self.flow.instructions()[at];
        is_displaceable(instruction) && !(self.function.is_restartable)(instruction.ip())
    }

    /// Returns whether control comes to an instruction only from the one before it.
    fn continues(&self, at: usize) -> bool {
        let instructions = self.flow.instructions();
        let Some((before, here)) = at
            .checked_sub(1)
            .and_then(|before| Some((instructions.get(before)?, instructions.get(at)?)))
        else {
            return false;
        };
        self.flow.predecessors(at) == [at - 1]
            && matches!(before.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
            && before.next_ip() == here.ip()
            && !(self.function.is_target)(here.ip())
    }

    fn line(&self, at: usize) -> Line {
        let mut first = at;
        while self.continues(first) && self.is_displaceable(first - 1) {
            first -= 1;
        }
        let mut end = at + 1;
        while self.continues(end) && self.is_displaceable(end) {
            end += 1;
        }
        Line { first, end }
    }

    /// Chooses the bytes of a line: from the first point to the last, then more of the line behind them, padding behind
    /// the line, and more of the line before them, until a jump fits.
    fn patch(
        &self,
        line: &Line,
        places: &[(usize, u64)],
        padding: &mut Padding,
    ) -> Result<Patch, Refusal> {
        let instructions = self.flow.instructions();
        let start = |first: usize| instructions[first].ip();
        let stop = |end: usize| instructions[end - 1].next_ip();
        let (lowest, highest) = (places[0].0, places[places.len() - 1].0);
        let most = (highest + 1).min(line.end);
        // A point behind the line needs an instruction before it.
        let lowest = lowest.min(most - 1);
        let fit = |room: u64| {
            let (mut first, mut end) = (lowest, most);
            while stop(end) - start(first) < room && end < line.end {
                end += 1;
            }
            while stop(end) - start(first) < room && first > line.first {
                first -= 1;
            }
            (first, end)
        };
        let returns = |end: usize| {
            matches!(
                instructions[end - 1].flow_control(),
                FlowControl::Return
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
            )
        };
        let (first, end) = fit(NEAR_JUMP);
        let found = start(first)..stop(end);
        let missing = NEAR_JUMP.saturating_sub(found.end - found.start);
        let (range, jump) = if missing == 0 {
            (found, Jump::Near)
        } else if returns(end) && padding.take_at(found.end, missing) {
            (found.start..found.end + missing, Jump::Near)
        } else {
            let (first, end) = fit(SHORT_JUMP);
            let short = start(first)..stop(end);
            let room = short.end - short.start;
            let through = (room >= SHORT_JUMP).then(|| padding.take_near(short.start + SHORT_JUMP));
            let through = through.flatten().ok_or(Refusal::NoRoom(found.end - found.start))?;
            (short, Jump::Short(through))
        };
        let points = places.iter().map(|&(at, address)| self.point(at, address)).collect();
        Ok(Patch { range, jump, points })
    }

    fn point(&self, at: usize, address: u64) -> Point {
        // Nothing is below the stack pointer yet where a function begins, unless control comes back there.
        let is_entry = (0..=at).all(|before| {
            before == at || self.flow.instructions()[before].mnemonic() == Mnemonic::Endbr64
        }) && self.flow.predecessors(at).iter().all(|&before| before < at);
        Point {
            address,
            before: self.flow.instructions()[at].ip(),
            live: self.liveness.before(at),
            red_zone: self.red_zone && !is_entry,
        }
    }
}
