//! Places where code can be patched: the bytes that a jump to a trampoline displaces for a set of probe points, and
//! the live registers that a probe at each point must preserve. Reads machine code, without trampolines or processes.
//!
//! A patch displaces instructions of one straight line: control enters the displaced bytes at their start only. A
//! call is the last of them. It stays a call, at its place, and leads to the trampoline, so that the return address
//! is the program's own for the unwinder, the processor's return predictor and shadow stacks; the instructions before
//! it that are displaced too are executed with the return address on the stack (see [`called()`]). Only where these
//! cannot, the call is displaced as a jump, with its return address pushed. No system call is displaced, and no
//! `endbr64`, which an indirect call looks for. A probe point at an instruction that stays where it is ends the
//! displaced bytes of the line before it.
//!
//! Where a line is too short for a jump, a short jump leads to room for the long one: to padding, or to the rest
//! of displaced bytes behind the jump at their start. A line near it may be displaced for that alone.
//!
//! Where such room is missing too, as at a `ret` of one byte that others jump to, every instruction from which control
//! comes there is displaced, and their trampolines lead to the line's trampoline: see [`Jump::Redirected`].
//!
//! A point in bytes that an earlier plan has displaced is added to the patch that is there.

mod called;
mod code;
mod liveness;
mod padding;
mod planner;
mod red_zone;
mod targets;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use self::{
    called::{Called, RETURN_ADDRESS, call_as_jump, called},
    liveness::Live,
    padding::Padding,
    targets::Targets,
};
use self::{code::FunctionCode, planner::Planner};
use super::{basic_blocks::BasicBlocks, exits::Part, instruction::decode};

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
    /// Returns whether control may come to an address from outside of the function, except by a return, or by an
    /// address that the file names: a jump of another function, a symbol, a landing pad, a word of data, an address
    /// that an instruction of another function computes.
    pub is_target: &'code dyn Fn(u64) -> bool,
    /// Returns whether an address is in a restartable sequence.
    pub is_restartable: &'code dyn Fn(u64) -> bool,
    /// Returns what the probes at an address read, those of points that are asked for and of earlier plans: whatever
    /// acts between its last change and the probe leaves it as it is.
    pub reads: &'code dyn Fn(u64) -> Live,
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
    /// A jump of [`SHORT_JUMP`] bytes to this address, where there is room for a jump of [`NEAR_JUMP`] bytes: in
    /// padding, or in the displaced bytes of another patch, which is to be written before.
    Short(u64),
    /// None: the last [`NEAR_JUMP`] bytes, of a call, become a call of the trampoline, and those before do nothing.
    /// With at least [`SKIPPED`] of these, a short jump at the start leads over the others, which may be room for
    /// another jump.
    Call,
    /// None, the bytes stay: all ways to the start are displaced by other patches, whose trampolines lead to this
    /// one's.
    Redirected,
}

/// Number of bytes before a call that a short jump leads over, at least: room for a jump, and that one.
pub const SKIPPED: u64 = NEAR_JUMP + SHORT_JUMP;

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
    /// The function has no instruction there, or its bytes are no code.
    #[error("no instruction of the function begins there")]
    NoInstruction,
    /// An indirect jump leads to unknown places, maybe into the bytes of a patch.
    #[error("control may come to any place of the function")]
    UnknownControlFlow,
    /// The instruction is in a restartable sequence.
    #[error("it is inside a restartable sequence (rseq)")]
    Restartable,
    /// The straight line is too short for a jump, and there is no room for one near it.
    #[error("there is no room for a jump in {0} bytes of straight code")]
    NoRoom(u64),
    /// Bytes of the instruction are in use for a jump.
    #[error("another probe has displaced it")]
    Displaced,
}

/// Patches for probe points, and the points without a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// The patches, by address. They do not overlap.
    pub patches: Vec<Patch>,
    /// Patches with [`Jump::Redirected`], each behind those that its own trampoline leads to.
    pub redirected: Vec<Patch>,
    /// Patches of earlier plans, with their points and more, or with more that counts at these.
    pub extended: Vec<Patch>,
    /// Points without a patch.
    pub refused: Vec<(u64, Refusal)>,
}

impl Point {
    /// Point with unknown liveness.
    const UNKNOWN: Self = Self { address: 0, before: 0, live: Live::ALL, red_zone: true };
}

impl Patches {
    /// Adds a point to a patch of an earlier plan.
    fn extend(&mut self, known: &Patch, point: Point) {
        let points = &mut self.extended(known).points;
        if points.iter().all(|other| other.address != point.address) {
            points.push(point);
            points.sort_by_key(|point| (point.before, point.address));
        }
    }

    /// Returns a patch of an earlier plan, which is among those that are extended from now on.
    fn extended(&mut self, known: &Patch) -> &mut Patch {
        let index = self.extended.iter().position(|patch| patch.range == known.range);
        let index = index.unwrap_or_else(|| {
            self.extended.push(known.clone());
            self.extended.len() - 1
        });
        &mut self.extended[index]
    }
}

impl Function<'_> {
    /// Chooses patches for probe points, one for all points of a straight line. Room in `padding` is used up.
    #[must_use]
    pub fn patches(&self, points: &[u64], padding: &mut Padding) -> Patches {
        let blocks = BasicBlocks::analyze(self.parts, self.word_at);
        let flow = blocks.as_ref().map(BasicBlocks::dataflow);
        let patches = match FunctionCode::read(self, flow) {
            Some(code) => {
                let red_zone = flow.is_none_or(red_zone::is_used);
                Planner::new(self, &code, red_zone, padding).plan(points)
            }
            None => self.single_instructions(points, padding),
        };
        let all = patches.patches.iter().chain(&patches.redirected).chain(&patches.extended);
        all.for_each(|patch| padding.note(patch));
        patches
    }

    /// Chooses a patch without points that leaves room for a jump which a short one near an address reaches, for the
    /// sake of a function nearby. `None` where no line of the function has as much, or its control flow is not known.
    #[must_use]
    pub fn room_near(&self, address: u64, padding: &mut Padding) -> Option<Patch> {
        let blocks = BasicBlocks::analyze(self.parts, self.word_at);
        let flow = blocks.as_ref().map(BasicBlocks::dataflow);
        let code = FunctionCode::read(self, flow)?;
        let red_zone = flow.is_none_or(red_zone::is_used);
        let patch = Planner::new(self, &code, red_zone, padding).room_near(address)?;
        padding.note(&patch);
        Some(patch)
    }

    /// Patches where control may come to any instruction: of one instruction each, which only has a start.
    fn single_instructions(&self, points: &[u64], padding: &mut Padding) -> Patches {
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
                Some(at) if padding.is_displaced(&(at.ip()..at.next_ip())) => {
                    let known = padding.patch_around(address);
                    if let Some(known) = known.filter(|known| known.range.start == address) {
                        let point = Point { address, before: address, ..Point::UNKNOWN };
                        patches.extend(known, point);
                        continue;
                    }
                    Refusal::Displaced
                }
                Some(at) if at.len() as u64 >= NEAR_JUMP && planner::is_displaceable(&at) => {
                    let point = Point { address, before: address, ..Point::UNKNOWN };
                    let range = at.ip()..at.next_ip();
                    let is_called = called(&[at], true).is_some();
                    let jump = if is_called { Jump::Call } else { Jump::Near };
                    padding.displace(&range);
                    patches.patches.push(Patch { range, jump, points: vec![point] });
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
