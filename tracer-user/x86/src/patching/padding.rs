//! Room for jumps that short ones lead to: padding between functions and behind jumps, which is never executed, and the
//! rest of displaced bytes behind the jump at their start. Also keeps the bytes that are displaced already.

use std::{collections::BTreeMap, ops::Range};

use iced_x86::{Instruction, Mnemonic};

use super::{Jump, NEAR_JUMP, Patch, code::FunctionCode};
use crate::instruction::decode;

/// Padding that is not in use yet, and the displaced bytes of the functions around it.
#[derive(Clone, Debug, Default)]
pub struct Padding {
    /// Ends, by the starts.
    free: BTreeMap<u64, u64>,
    /// Ends of padding, in use or not, by the starts.
    fillers: BTreeMap<u64, u64>,
    /// Ends of displaced bytes, by their starts.
    displaced: BTreeMap<u64, u64>,
    /// Patches of all plans, by the starts of their ranges.
    patches: BTreeMap<u64, Patch>,
}

/// Distance that a short jump reaches from the instruction after it, in bytes.
const REACH: Range<i64> = -128..128;

impl Padding {
    /// Adds the padding at the end of a function: the nops and breakpoints from the address behind its last instruction
    /// up to the start of the next function. Control must not come to the end of the function.
    pub fn add(&mut self, start: u64, code: &[u8]) {
        let end = decode(code, start).take_while(is_filler).last();
        if let Some(end) = end {
            self.add_room(start..end.next_ip());
        }
    }

    /// Adds room, unless some of it is in use or known already.
    pub(super) fn add_room(&mut self, room: Range<u64>) {
        if !overlaps(&self.free, &room) && !overlaps(&self.displaced, &room) {
            self.free.insert(room.start, room.end);
            self.fillers.insert(room.start, room.end);
        }
    }

    /// Adds the rest of displaced bytes behind the jump at their start.
    pub(super) fn add_left(&mut self, room: Range<u64>) {
        self.free.insert(room.start, room.end);
    }

    pub(super) fn displace(&mut self, range: &Range<u64>) {
        self.displaced.insert(range.start, range.end);
    }

    /// Notes that bytes are not displaced after all.
    pub(super) fn restore(&mut self, range: &Range<u64>) {
        self.displaced.remove(&range.start);
    }

    /// Makes displaced bytes longer.
    pub(super) fn replace(&mut self, range: &Range<u64>, by: &Range<u64>) {
        self.displaced.remove(&range.start);
        self.displace(by);
    }

    /// Returns whether room holds a jump that a short one reaches which ends at an address.
    pub(super) fn reaches(from: u64, room: &Range<u64>) -> bool {
        let lowest = from.saturating_add_signed(REACH.start);
        let highest = from.saturating_add_signed(REACH.end - 1);
        let at = room.start.max(lowest);
        at <= highest && at + NEAR_JUMP <= room.end
    }

    /// Returns whether some of a range is displaced.
    pub(super) fn is_displaced(&self, range: &Range<u64>) -> bool {
        overlaps(&self.displaced, range)
    }

    /// Notes a patch that a plan has chosen.
    pub(super) fn note(&mut self, patch: &Patch) {
        self.patches.insert(patch.range.start, patch.clone());
    }

    /// Returns the patches of earlier plans that begin in a range.
    pub(super) fn patches_in(&self, range: Range<u64>) -> impl Iterator<Item = &Patch> {
        self.patches.range(range).map(|(_, patch)| patch)
    }

    /// Returns the patch of an earlier plan that has displaced the byte at an address.
    pub(super) fn patch_around(&self, address: u64) -> Option<&Patch> {
        let (_, patch) = self.patches.range(..=address).next_back()?;
        patch.range.contains(&address).then_some(patch)
    }

    /// Removes a patch that has not been written.
    pub fn remove(&mut self, patch: &Patch) {
        self.displaced.remove(&patch.range.start);
        self.patches.remove(&patch.range.start);
        if let Jump::Short(room) = patch.jump
            && !self.is_left(room)
        {
            self.displaced.remove(&room);
        }
    }

    /// Returns whether the bytes of a jump at an address are never executed: they are padding, or a patch has displaced
    /// them.
    #[must_use]
    pub fn is_free(&self, room: u64) -> bool {
        let around = self.fillers.range(..=room).next_back();
        self.is_left(room) || around.is_some_and(|(_, &end)| room + NEAR_JUMP <= end)
    }

    /// Returns whether room for a jump is in displaced bytes, behind their start.
    fn is_left(&self, room: u64) -> bool {
        let around = self.displaced.range(..room).next_back();
        around.is_some_and(|(_, &end)| room + NEAR_JUMP <= end)
    }

    /// Returns the displaced bytes that jumps are in place of, as the addresses of the first ones.
    pub fn displaced(&self) -> impl Iterator<Item = u64> {
        let stays = |start: &u64| {
            self.patches.get(start).is_some_and(|patch| patch.jump == Jump::Redirected)
        };
        self.displaced.keys().copied().filter(move |start| !stays(start))
    }

    /// Adds the padding inside a function, behind jumps and returns.
    pub(super) fn add_inside(&mut self, flow: &FunctionCode, is_target: &dyn Fn(u64) -> bool) {
        let instructions = flow.instructions();
        let mut run: Option<Range<u64>> = None;
        for (at, instruction) in instructions.iter().enumerate() {
            let is_unreached = match &run {
                None => at > 0 && flow.predecessors(at).is_empty(),
                Some(run) => run.end == instruction.ip() && flow.predecessors(at) == [at - 1],
            };
            let is_free = is_unreached
                && is_filler(instruction)
                && !flow.is_named(at)
                && !is_target(instruction.ip());
            run = match run {
                Some(run) if is_free => Some(run.start..instruction.next_ip()),
                other => {
                    other.into_iter().for_each(|run| self.add_room(run));
                    is_free.then(|| instruction.ip()..instruction.next_ip())
                }
            };
        }
        run.into_iter().for_each(|run| self.add_room(run));
    }

    /// Uses up the first bytes of padding that begins at an address; returns whether it has as many.
    pub(super) fn take_at(&mut self, start: u64, bytes: u64) -> bool {
        let Some(&end) = self.free.get(&start).filter(|&&end| end - start >= bytes) else {
            return false;
        };
        self.free.remove(&start);
        self.displace(&(start..start + bytes));
        if start + bytes < end {
            self.free.insert(start + bytes, end);
        }
        true
    }

    /// Uses up room for a jump in the reach of a short one that ends at an address; returns the room's address.
    pub(super) fn take_near(&mut self, from: u64) -> Option<u64> {
        let lowest = from.saturating_add_signed(REACH.start);
        let highest = from.saturating_add_signed(REACH.end - 1);
        let found = self
            .free
            .range(..=highest)
            .rev()
            .map(|(&start, &end)| (start, start.max(lowest), end))
            .take_while(|&(start, ..)| start >= lowest || lowest - start < 4096)
            .find(|&(_, at, end)| at + NEAR_JUMP <= end);
        let (start, at, end) = found?;
        self.free.remove(&start);
        if !self.is_displaced(&(at..at + NEAR_JUMP)) {
            self.displace(&(at..at + NEAR_JUMP));
        }
        if start < at {
            self.free.insert(start, at);
        }
        if at + NEAR_JUMP < end {
            self.free.insert(at + NEAR_JUMP, end);
        }
        Some(at)
    }
}

fn overlaps(ranges: &BTreeMap<u64, u64>, range: &Range<u64>) -> bool {
    ranges.range(..range.end).next_back().is_some_and(|(_, &end)| range.start < end)
}

fn is_filler(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
