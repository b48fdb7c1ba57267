//! Threads and processes that begin: each gets a ring, or the block of those that record nothing.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, atomic::Ordering},
};

use abi::{ChildProcessRecord, ForkRecord, Kind, Record, StopRecord};
use inline::{
    arena::{MUTED, ThreadStart},
    memory::ProcessAddress,
    ring::Ring,
    tracer::Note,
};

use super::{
    super::{leave, records::header, stacks::stack_around},
    State, Traced, Tracer, unless_gone,
};
use crate::in_process::withdrawal::Withdrawal;
use linux::{proc, time_stamp};

/// Bits of the number of a thread's epoch, below the thread's id.
const EPOCH_BITS: u32 = 42;

impl Tracer {
    pub(super) fn new_thread(&mut self, process: u32, parent: u32, child: u32) {
        let Some(traced) = self.processes.get(&process) else { return };
        // A killed thread needs no ring.
        let Ok((thread_pointer, gs_base)) = self.supervisor.bases(child) else { return };
        if traced.state == State::Loading {
            // It gets its ring with the others.
            return;
        }
        let record = ForkRecord {
            header: header(Kind::Fork, process, parent),
            child,
            epoch: 0,
            pthread: thread_pointer,
        };
        traced.stream.record(Record::Fork(record));
        if traced.image.as_ref().is_some_and(|image| image.block_of(gs_base).is_none()) {
            // It has its creator's GS base, which the program has set.
            return self.note_unfit(process, Withdrawal::OwnGsBase);
        }
        self.share_escaped_stacks(process, child);
        self.begin_thread(process, child);
    }

    /// Follows a child before its first instruction, or detaches it.
    pub(super) fn new_process(
        &mut self,
        process: u32,
        parent: u32,
        child: u32,
        shares_memory: bool,
    ) -> io::Result<()> {
        let traced = self.processes.get(&process);
        let Some(traced) = traced.filter(|traced| traced.state != State::Loading) else {
            // Of libraries that start before the program; a copy of memory has the breakpoint.
            if !shares_memory {
                self.supervisor.clear_entry(process, child)?;
            }
            return self.supervisor.detach(child);
        };
        let (stream, image) = (Arc::clone(&traced.stream), traced.image.clone());
        let watchpoints = traced.watchpoints.of_child();
        let has_own_base = image.as_ref().is_some_and(|image| {
            let bases = self.supervisor.bases(child);
            bases.is_ok_and(|(_, gs_base)| image.block_of(gs_base).is_none())
        });
        let is_followed = self.follows_forks && !self.is_alone && traced.state != State::Muted;
        let followed = image.as_ref().filter(|_| is_followed && !has_own_base);
        let flags = match followed {
            None => 0,
            Some(_) if shares_memory => ChildProcessRecord::FOLLOWED,
            Some(_) => ChildProcessRecord::FOLLOWED | ChildProcessRecord::STOPS,
        };
        let followed = followed.cloned();
        if let Some(image) = &image {
            if has_own_base && !shares_memory {
                // Probes would end it, as it has no tracer.
                unless_gone(leave::restore(&self.supervisor, child, image).map(drop))?;
            } else {
                self.supervisor.set_gs_base(child, image.gs_base(MUTED))?;
            }
            if followed.is_none()
                && !shares_memory
                && let Err(error) = image.separate(&mut self.supervisor, child)
                && !proc::is_gone(&error)
            {
                tracing::info!(child, %error, "it shares the memory of probes with its parent");
            }
        }
        let record = ChildProcessRecord {
            header: header(Kind::ChildProcess, process, parent),
            child,
            epoch: 0,
            child_process: child,
            flags,
            comm: proc::thread_name(process, parent),
        };
        stream.record(Record::ChildProcess(record));
        if shares_memory
            && !self.supervisor.is_in_vfork(process)
            && let Some(traced) = self.processes.get_mut(&process)
        {
            // It may be anywhere when the process is left.
            traced.has_contexts = true;
        }
        let Some(image) = followed else { return self.supervisor.detach(child) };
        let stop = (!shares_memory).then(|| self.shared.next_stop());
        let state = stop.map_or(State::Muted, State::Standing);
        let (threads, copy) = (BTreeSet::new(), Arc::clone(&stream));
        let image_of = Some(image.clone());
        let has_contexts = true;
        let traced =
            Traced { stream: copy, image: image_of, threads, watchpoints, has_contexts, state };
        self.processes.insert(child, traced);
        if let Some(stop) = stop {
            self.shared.programs().insert(child, (image, Arc::clone(&stream)));
            self.begin_thread(child, child);
            self.supervisor.freeze(child)?;
            let header = header(Kind::Start, child, child);
            stream.record(Record::Stop(Kind::Start, StopRecord { header, stop, epoch: 0 }));
        }
        Ok(())
    }

    /// Returns a number for the epoch of a thread that begins: no thread makes as many records in the same time.
    fn next_epoch(&self) -> u64 {
        const CYCLES_PER_RECORD: u64 = 16;
        let passed = time_stamp::now().saturating_sub(self.began) / CYCLES_PER_RECORD;
        (passed + 1).min((1 << EPOCH_BITS) - 1)
    }

    /// Gives a held thread a ring, or where there is none, the block of those that record nothing.
    pub(super) fn begin_thread(&mut self, process: u32, thread: u32) {
        let mode = self.mode;
        let epoch = u64::from(thread) << EPOCH_BITS | self.next_epoch();
        let Some(traced) = self.processes.get_mut(&process) else { return };
        let Some(image) = &traced.image else { return };
        let registers = self.supervisor.place(thread).ok().zip(self.supervisor.bases(thread).ok());
        let stack = registers.and_then(|((_, sp), (pointer, _))| stack_around(thread, sp, pointer));
        let (low, high) = stack.unwrap_or_default();
        let stack = (ProcessAddress(low), ProcessAddress(high));
        let start = ThreadStart { tid: thread, epoch, stack, mode };
        let started = image.arena().start(start, &image.rings);
        let base = match started {
            Ok(segment) => {
                image.begin_delays(segment);
                let ring = Box::new(Ring::new(segment, mode));
                traced.stream.notes.add(Note::Started { tid: thread, process, ring });
                traced.threads.insert(thread);
                image.gs_base(segment.block)
            }
            Err(_) => {
                self.shared.muted_threads.fetch_add(1, Ordering::Relaxed);
                image.gs_base(MUTED)
            }
        };
        // One that was killed needs none.
        let _ = self.supervisor.set_gs_base(thread, base);
        if traced.watchpoints.arm(&self.supervisor, thread).is_err() {
            self.shared.unwatched_threads.fetch_add(1, Ordering::Relaxed);
        }
    }
}
