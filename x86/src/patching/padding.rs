//! Padding between functions and behind jumps: bytes that nothing executes, with room for a jump that a short one leads
//! to.

use std::{collections::BTreeMap, ops::Range};

use iced_x86::{Instruction, Mnemonic};

use super::NEAR_JUMP;
use crate::{dataflow::Dataflow, instruction::decode};

/// Padding that is not in use yet.
#[derive(Clone, Debug, Default)]
pub struct Padding {
    /// Ends, by the starts.
    free: BTreeMap<u64, u64>,
}

/// Distance that a short jump reaches from the instruction after it, in bytes.
const REACH: Range<i64> = -128..128;

impl Padding {
    /// Adds the padding at the end of a function: the nops and breakpoints from the address behind its last instruction
    /// up to the start of the next function. Control must not come to the end of the function.
    pub fn add(&mut self, start: u64, code: &[u8]) {
        let end = decode(code, start).take_while(is_filler).last();
        if let Some(end) = end {
            self.free.insert(start, end.next_ip());
        }
    }

    /// Adds the padding inside a function, behind jumps and returns.
    pub(super) fn add_inside(&mut self, flow: &Dataflow, is_target: &dyn Fn(u64) -> bool) {
        let instructions = flow.instructions();
        let mut run: Option<Range<u64>> = None;
        for (at, instruction) in instructions.iter().enumerate() {
            let is_unreached = match &run {
                None => at > 0 && flow.predecessors(at).is_empty(),
                Some(run) => run.end == instruction.ip() && flow.predecessors(at) == [at - 1],
            };
            let is_free = is_unreached && is_filler(instruction) && !is_target(instruction.ip());
            run = match run {
                Some(run) if is_free => Some(run.start..instruction.next_ip()),
                other => {
                    self.free.extend(other.map(|run| (run.start, run.end)));
                    is_free.then(|| instruction.ip()..instruction.next_ip())
                }
            };
        }
        self.free.extend(run.map(|run| (run.start, run.end)));
    }

    /// Uses up the first bytes of padding that begins at an address; returns whether it has as many.
    pub(super) fn take_at(&mut self, start: u64, bytes: u64) -> bool {
        let Some(&end) = self.free.get(&start).filter(|&&end| end - start >= bytes) else {
            return false;
        };
        self.free.remove(&start);
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
        if start < at {
            self.free.insert(start, at);
        }
        if at + NEAR_JUMP < end {
            self.free.insert(at + NEAR_JUMP, end);
        }
        Some(at)
    }
}

fn is_filler(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
