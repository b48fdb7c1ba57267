//! Threads: forks and exits, and the ids of threads.

use checker::event::{LocationId, Op, ThreadId};
use tracer_ebpf::{ChildProcessRecord, ExitRecord, FRAMES, ForkRecord};

use super::{ChildProcess, Item, MAX_CHILDREN, SeenThread, Source};
use crate::{live::location::Location, report::text_of_bytes};

impl Source {
    pub(super) fn fork(&mut self, record: &ForkRecord, sink: &mut impl FnMut(Item)) {
        let thread = self.thread(record.header.tid);
        self.at(thread, 0, sink);
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
        let location = location.unwrap_or_else(|| self.nowhere());
        self.stack_begins(thread, child, record.pthread, location, sink);
        self.emit(thread, Op::Fork(child), location, sink);
    }

    pub(super) fn exit(&mut self, record: &ExitRecord, sink: &mut impl FnMut(Item)) {
        let thread = self.thread(record.header.tid);
        self.at(thread, 0, sink);
        self.exits += 1;
        self.region_stacks.end_thread(thread);
        self.leader.1 |= record.header.tid == self.leader.0;
        self.running.remove(&record.header.tid);
        self.syncs.exits(thread);
        self.threads[thread.index()].name = Some(text_of_comm(&record.comm));
        let location = self.nowhere();
        self.emit(thread, Op::Exit, location, sink);
    }

    pub(super) fn child_process(
        &mut self,
        record: &ChildProcessRecord,
        sink: &mut impl FnMut(Item),
    ) {
        let thread = self.thread(record.header.tid);
        self.at(thread, 0, sink);
        if record.flags & ChildProcessRecord::FOLLOWED != 0 {
            // It has a report of its own.
            return;
        }
        self.omissions.child_process_count += 1;
        if self.omissions.child_processes.len() < MAX_CHILDREN {
            let child = ChildProcess { pid: record.child, name: text_of_comm(&record.comm) };
            self.omissions.child_processes.push(child);
        }
    }

    fn nowhere(&mut self) -> LocationId {
        self.locations.stack(Location::Call([0; FRAMES]), &mut self.symbolizer)
    }

    /// Returns the thread that runs under an id of the system now.
    pub(super) fn thread(&mut self, tid: u32) -> ThreadId {
        *self.running.entry(tid).or_insert_with(|| {
            self.threads.push(SeenThread { tid, ..SeenThread::default() });
            ThreadId((self.threads.len() - 1) as u32)
        })
    }
}

/// Returns the name of a thread from the kernel's field, which is padded with zeros.
fn text_of_comm(comm: &[u8]) -> String {
    let length = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
    text_of_bytes(&comm[..length])
}
