//! Threads: forks and exits, and the ids of threads.

use checker::event::{Op, ThreadId};
use tracer_ebpf::{FRAMES, Kind, ThreadRecord};

use super::{ChildProcess, Item, MAX_CHILDREN, SeenThread, Source, comm};
use crate::live::location::Location;

impl Source {
    pub(super) fn thread_record(
        &mut self,
        kind: Kind,
        record: &ThreadRecord,
        sink: &mut impl FnMut(Item),
    ) {
        let thread = self.thread(record.header.tid);
        self.at(thread, 0, sink);
        match kind {
            Kind::Fork => {
                // An id that the system uses again is a new thread.
                self.running.remove(&record.child);
                let child = self.thread(record.child);
                // A thread without an identity of its own (a bare `clone`) shows that of its parent.
                if self.threads[thread.index()].pthread != Some(record.pthread) {
                    self.threads[child.index()].pthread = Some(record.pthread);
                    self.by_pthread.insert(record.pthread, child);
                }
                // A thread that is created in another way than by the functions that are probed has no place.
                let location = self.threads[thread.index()].creates_at.take();
                let nowhere = Location::Call([0; FRAMES]);
                let location =
                    location.unwrap_or_else(|| self.locations.stack(nowhere, &mut self.symbolizer));
                self.stack_begins(thread, child, record.pthread, location, sink);
                self.emit(thread, Op::Fork(child), location, sink);
            }
            Kind::Exit => {
                self.exits += 1;
                self.region_stacks.end_thread(thread);
                self.leader.1 |= record.header.tid == self.leader.0;
                self.running.remove(&record.header.tid);
                self.syncs.exits(thread);
                let seen = &mut self.threads[thread.index()];
                seen.name = Some(comm(record));
                let location =
                    self.locations.stack(Location::Call([0; FRAMES]), &mut self.symbolizer);
                self.emit(thread, Op::Exit, location, sink);
            }
            // One that is followed has a report of its own.
            Kind::ChildProcess if record.header.detail != 0 => {}
            Kind::ChildProcess => {
                self.omissions.child_process_count += 1;
                if self.omissions.child_processes.len() < MAX_CHILDREN {
                    let child = ChildProcess { pid: record.child, name: comm(record) };
                    self.omissions.child_processes.push(child);
                }
            }
            // The other kinds concern the process, and are handled by the session.
            _ => {}
        }
    }

    /// Returns the thread that runs under an id of the system now.
    pub(super) fn thread(&mut self, tid: u32) -> ThreadId {
        *self.running.entry(tid).or_insert_with(|| {
            self.threads.push(SeenThread { tid, ..SeenThread::default() });
            ThreadId((self.threads.len() - 1) as u32)
        })
    }
}
