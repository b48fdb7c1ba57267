//! Accesses to words that synchronise: their order. They are no accesses to data.

use std::ops::Range;

use checker::event::{LocationId, Op, SyncId, ThreadId};
use rustc_hash::FxHashMap;
use symbolize::ProcessAddr;

use crate::{
    code_map::CodeMap,
    extent::Extent,
    stream::Stream,
    sync::SyncObjects,
    words::{Meaning, Step, WordAccess, Words, step_at},
};

/// Access that may be a step of synchronisation.
#[derive(Clone, Copy, Debug)]
pub(super) struct PossibleStep {
    pub(super) thread: ThreadId,
    /// Address of the instruction.
    pub(super) instruction: u64,
    pub(super) extent: Extent,
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// The number of the thread's transaction that it belongs to.
    pub(super) transaction: Option<u64>,
    pub(super) location: LocationId,
}

/// Words that synchronise without a function that is known, and the instructions that access them.
#[derive(Debug, Default)]
pub(super) struct SyncWords {
    words: Words,
    /// Kinds of access that the instructions at these addresses make.
    steps: FxHashMap<u64, Step>,
}

impl SyncWords {
    /// Returns whether an access that a probe or a sampling watchpoint has seen is a step of synchronisation. If so,
    /// its order is emitted.
    pub(super) fn access(
        &mut self,
        access: &PossibleStep,
        syncs: &mut SyncObjects,
        code: &impl CodeMap,
        stream: &mut Stream,
    ) -> bool {
        let PossibleStep { thread, extent: Extent { address, bytes }, location, .. } = *access;
        let done = self.word_access(access, code);
        let (waits, signals) = match self.words.access(&done) {
            Meaning::Data => return false,
            Meaning::Nothing => (false, false),
            Meaning::Orders { waits, signals } => (waits, signals),
        };
        if !waits && !signals {
            return true;
        }
        if let Some(id) = self.words.id(address, bytes, || syncs.word(address, location)) {
            syncs.note_lock_word(id, self.words.is_lock(address, bytes));
            if waits {
                stream.emit(thread, Op::Wait(id), location);
            }
            if signals {
                stream.emit(thread, Op::Signal(id), location);
            }
        }
        true
    }

    /// Classifies a deferred access. `None` for one to data; else the signal that it is, if it is one.
    pub(super) fn deferred(
        &mut self,
        access: &PossibleStep,
        syncs: &mut SyncObjects,
        code: &impl CodeMap,
    ) -> Option<Option<SyncId>> {
        let PossibleStep { extent: Extent { address, bytes }, location, .. } = *access;
        let done = self.word_access(access, code);
        let is_signal = self.words.classify_deferred(&done)?;
        let id = || self.words.id(address, bytes, || syncs.word(address, location));
        Some(is_signal.then(id).flatten())
    }

    /// Notes the kind of access that an instruction makes, where its code does not show it.
    pub(super) fn known(&mut self, instruction: u64, step: Step) {
        self.steps.insert(instruction, step);
    }

    /// Returns whether an instruction stores, and the value that it exchanges is not used.
    pub(super) fn is_store(&mut self, instruction: u64, code: &impl CodeMap) -> bool {
        self.step(instruction, code) == Step::Store
    }

    /// Forgets words in memory that was given back or given out.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.words.forget(range);
    }

    /// Forgets the words and instructions in a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<u64>) {
        self.steps.retain(|address, _| !range.contains(address));
        self.words.unload(range);
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.words.gap();
    }

    /// From now on accesses are left out for a time.
    pub(super) const fn become_partial(&mut self) {
        self.words.become_partial();
    }

    fn word_access(&mut self, access: &PossibleStep, code: &impl CodeMap) -> WordAccess {
        let PossibleStep { thread, instruction, extent, reads, writes, transaction, .. } = *access;
        let (Extent { address, bytes }, step) = (extent, self.step(instruction, code));
        WordAccess { thread, address, bytes, step, reads, writes, instruction, transaction }
    }

    fn step(&mut self, instruction: u64, code: &impl CodeMap) -> Step {
        let step = || step_at(code, ProcessAddr(instruction)).unwrap_or(Step::Plain);
        *self.steps.entry(instruction).or_insert_with(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_map::fake::FakeCode;

    #[test]
    fn an_exchange_and_a_store_make_a_lock() {
        // xchg [rdi],eax; mov [rdi],ecx; test eax,eax
        let code = vec![0x87, 0x07, 0x89, 0x0f, 0x85, 0xc0];
        let code = FakeCode { start: 0x1000, code, ..FakeCode::default() };
        let (mut words, mut syncs) = (SyncWords::default(), SyncObjects::default());
        let mut stream = Stream::default();
        let mut access = |instruction, reads, thread| {
            let (thread, location) = (ThreadId(thread), LocationId(0));
            let (extent, writes, transaction) = (Extent { address: 0x5000, bytes: 4 }, true, None);
            let step =
                PossibleStep { thread, instruction, extent, reads, writes, transaction, location };
            words.access(&step, &mut syncs, &code, &mut stream)
        };
        assert!(!access(0x1002, false, 0), "its initialisation is one to data");
        assert!(access(0x1000, true, 0) && access(0x1002, false, 0) && access(0x1000, true, 1));
        let word = SyncId(0);
        assert_eq!(stream.ops(), [(0, Op::Wait(word)), (0, Op::Signal(word)), (1, Op::Wait(word))]);
    }
}
