//! Accesses to words that synchronise: their order. They are no accesses to data.

use checker::event::{LocationId, Op, ThreadId};

use super::{Item, Source};
use crate::{
    live::words::{Meaning, Step, WordAccess, step_at},
    symbolize::ProcessAddr,
};

impl Source {
    /// Returns whether an access that a probe or a sampling watchpoint has seen is a step of synchronisation. If so,
    /// its order is passed on.
    pub(super) fn synchronises(
        &mut self,
        thread: ThreadId,
        instruction: u64,
        (address, bytes): (u64, u64),
        (reads, writes): (bool, bool),
        location: LocationId,
        sink: &mut impl FnMut(Item),
    ) -> bool {
        let transaction = self.transaction(thread, u64::MAX);
        let step = self.step(instruction);
        let done =
            WordAccess { thread, address, bytes, step, reads, writes, instruction, transaction };
        let (waits, signals) = match self.words.access(&done) {
            Meaning::Data => return false,
            Meaning::Nothing => (false, false),
            Meaning::Orders { waits, signals } => (waits, signals),
        };
        self.omissions.word_accesses += 1;
        if !waits && !signals {
            return true;
        }
        let Self { words, syncs, .. } = self;
        let Some(id) = words.id(address, bytes, || syncs.word(address, location)) else {
            return true;
        };
        if waits {
            self.emit(thread, Op::Wait(id), location, sink);
        }
        if signals {
            self.emit(thread, Op::Signal(id), location, sink);
        }
        true
    }

    /// Returns the number of the transaction that a thread is in, if its actions in an epoch belong to it.
    pub(super) fn transaction(&self, thread: ThreadId, epoch: u64) -> Option<u64> {
        let seen = &self.threads[thread.index()];
        (seen.open > 0 && epoch > seen.epoch_before).then_some(seen.transactions)
    }

    /// Returns the kind of access that the instruction at an address makes.
    pub(super) fn step(&mut self, instruction: u64) -> Step {
        let Self { steps, symbolizer, .. } = self;
        *steps.entry(instruction).or_insert_with(|| {
            let at = ProcessAddr(instruction);
            let module = symbolizer.module_at(at);
            let found =
                module.and_then(|module| step_at(module.file().ok()?, module.link_address(at)?));
            found.unwrap_or(Step::Plain)
        })
    }
}
