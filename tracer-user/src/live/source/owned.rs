//! Deferred accesses: those of threads to memory that they owned, reported by the kernel side when another thread
//! arrives.

use checker::event::ThreadId;
use tracer_ebpf::{LastAccess, OwnedRecord, Record};

use super::{Item, Source};
use crate::{
    live::{
        deferred::{DeferredAccess, DeferredOperation, Epoch},
        location::Location,
    },
    probes::memory::site::MemorySite,
};

impl Source {
    /// Begins an epoch after the first record of one. The record itself belongs to the epoch before.
    pub(super) fn epoch_begins(&mut self, record: &Record, sink: &mut impl FnMut(Item)) {
        let (epoch, tid) = (record.begun_epoch(), record.header().tid);
        if epoch == 0 {
            return;
        }
        // None has it any more when this was the last that its thread did.
        let Some(&thread) = self.running.get(&tid) else { return };
        let seen = &mut self.threads[thread.index()];
        let before = std::mem::replace(&mut seen.epoch, epoch);
        if before == epoch {
            return;
        }
        if before == 0 {
            self.lives.entry(tid).or_default().push((epoch, thread));
        }
        let lowest = self.region_stacks.lowest(thread);
        sink(Item::Epoch(Epoch { thread, epoch, lowest }));
    }

    /// Returns the thread that had an id of the system in an epoch.
    fn thread_in(&self, tid: u32, epoch: u64) -> Option<ThreadId> {
        let lives = self.lives.get(&tid)?;
        lives.iter().rev().find(|(first, _)| *first <= epoch).map(|&(_, thread)| thread)
    }

    /// Handles a record of deferred accesses, made by the owner of a word.
    pub(super) fn owned(&mut self, record: &OwnedRecord, sink: &mut impl FnMut(Item)) {
        let OwnedRecord { header, owner, address, write, read } = *record;
        if write.epoch != 0 {
            self.deferred_access(header.tid, (owner, address), write, true, sink);
        }
        // What was read before the same bytes were written orders nothing more: the checker sees to that.
        if read.epoch != 0 {
            self.deferred_access(header.tid, (owner, address), read, false, sink);
        }
    }

    fn deferred_access(
        &mut self,
        acting: u32,
        (owner, word): (u32, u64),
        LastAccess { epoch, sp, site, bytes }: LastAccess,
        writes: bool,
        sink: &mut impl FnMut(Item),
    ) {
        // An access of a program that was replaced since has no thread in this one, and its site means nothing here.
        let Some(thread) = self.thread_in(owner, epoch) else { return };
        // The plan of the site is that of the acting thread's program: owners are of the same.
        let site = self.sites.get(site.number() as usize).and_then(|site| site.kind.memory());
        let Some(&MemorySite::Access(place)) = site else {
            self.omissions.foreign_records += 1;
            return;
        };
        let address = word + u64::from(bytes.trailing_zeros());
        let size = u64::from(bytes.count_ones());
        if !self.touch_counts(thread, place, (address, size)) {
            return;
        }
        let mut since = 0;
        if let Some(block) = self.memory.block(address) {
            if block.thread != thread {
                since = block.born.event;
            } else if epoch < block.born.epoch {
                // It was other memory.
                return;
            }
        }
        let stack = Location::Access([place.instruction.0, 0, 0, 0, 0, 0]);
        let location = self.locations.stack(stack, &mut self.symbolizer);
        let step = self.step(place.instruction.0);
        let transaction = self.transaction(thread, epoch);
        let classified =
            self.words.classify_deferred(thread, (address, size), (step, writes), transaction);
        if let Some(signals) = classified {
            self.omissions.word_accesses += 1;
            let Self { words, syncs, .. } = self;
            if signals && let Some(id) = words.id(address, size, || syncs.word(address, location)) {
                let what = DeferredOperation::Signal(id);
                sink(Item::Deferred(DeferredAccess { thread, epoch, sp, since, what, location }));
            }
            return;
        }
        let acting = self.thread(acting);
        self.touch_for(thread, acting, (address, size), sink);
        for &variable in &self.touched {
            let what = if writes {
                DeferredOperation::Write(variable)
            } else {
                DeferredOperation::Read(variable)
            };
            sink(Item::Deferred(DeferredAccess { thread, epoch, sp, since, what, location }));
        }
        self.shared_words.touched(thread, address, size, writes);
    }
}
