//! End of the tracing of processes that go on: their threads leave the code of probes, and their code is their own
//! again.

use std::{
    collections::{BTreeMap, BTreeSet},
    io, mem,
    sync::Arc,
};

use inline::tracer::Note;

use super::{State, Traced, Tracer};
use crate::in_process::{
    image::Image,
    leave::{self, Moved},
    libraries,
};
use linux::proc;

impl Tracer {
    /// Has a process that is held, and whose program has no probes, go on without a tracer. The end of the first one is
    /// waited for all the same, as it is a child of this process.
    pub(super) fn leave_alone(&mut self, process: u32) -> io::Result<()> {
        let Some(traced) = self.processes.get_mut(&process) else { return Ok(()) };
        self.shared.programs().remove(&process);
        traced.image = None;
        traced.state = State::Left;
        let (stream, threads) = (Arc::clone(&traced.stream), mem::take(&mut traced.threads));
        for tid in threads {
            stream.notes.add(Note::Ended { tid });
        }
        if !self.supervisor.leave_alone(process)? {
            self.processes.remove(&process);
            self.end_threads(&stream, BTreeSet::new());
        }
        Ok(())
    }

    /// Has the processes that are left go on without probes and tracer.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.supervisor.feed_all()?;
        self.come_out()?;
        let Self { supervisor, processes, shared, .. } = self;
        for (&process, traced) in &mut *processes {
            // From here on nothing is written to it.
            shared.programs().remove(&process);
            if let Some(image) = &traced.image {
                libraries::open_gate(image, process);
            }
            supervisor.freeze(process)?;
            traced.watchpoints.clear(supervisor, process);
        }
        let mut restored = self.move_out();
        let Self { supervisor, processes, .. } = self;
        let images = images(processes);
        let mut left_patched = Vec::new();
        for (process, image) in images {
            // All patches stay if a thread is left in a trampoline.
            restored = restored.and_then(|()| {
                match leave::restore(supervisor, process, &image) {
                    Ok(is_complete) => left_patched.extend((!is_complete).then_some(process)),
                    // It was killed: there is nothing to restore.
                    Err(error) if has_no_memory(&error) => {}
                    Err(error) => return Err(error),
                }
                Ok(())
            });
        }
        for process in left_patched {
            // A jump to it may be among these.
            if let Some(traced) = self.processes.get_mut(&process) {
                traced.has_contexts = true;
            }
        }
        if restored.is_ok() && self.is_attached {
            self.leave_nothing();
        }
        let Self { supervisor, processes, .. } = self;
        for (&process, traced) in &*processes {
            traced.stream.close();
            supervisor.detach(process)?;
        }
        restored
    }

    /// Freezes all processes when their threads are out of the code of probes, and all that these have done on the way
    /// out has been dealt with. A thread that does not come out is no error here, but one of moving it again.
    fn come_out(&mut self) -> io::Result<()> {
        while !self.processes.is_empty() {
            while self.is_in_vfork() {
                // The child runs code of probes until it has replaced its program.
                let event = self.supervisor.next_event()?;
                self.handle(event)?;
            }
            for process in self.processes.keys().copied().collect::<Vec<_>>() {
                self.supervisor.freeze(process)?;
            }
            self.is_leaving = true;
            while self.supervisor.expects_birth() {
                let event = self.supervisor.next_event()?;
                self.handle(event)?;
            }
            while let Some(event) = self.supervisor.pending_event()? {
                self.handle(event)?;
            }
            if !self.is_in_vfork() {
                // A thread that comes out of the code of a probe may do more.
                if self.move_out().is_err() || self.supervisor.is_quiet() {
                    break;
                }
                if !self.is_in_vfork() {
                    continue;
                }
            }
            self.is_leaving = false;
            // A thread has created a child in its memory on the way to the stop, or out of the code of a probe, and
            // waits for it.
            for process in self.processes.keys().copied().collect::<Vec<_>>() {
                self.supervisor.thaw(process)?;
            }
        }
        Ok(())
    }

    /// Returns whether a thread waits for a child that runs in its memory.
    fn is_in_vfork(&self) -> bool {
        self.processes.keys().any(|&process| self.supervisor.is_in_vfork(process))
    }

    /// Moves all threads of processes, which stand still, out of the code of probes.
    fn move_out(&mut self) -> io::Result<()> {
        for (process, image) in images(&self.processes) {
            let moved = leave::move_out(&mut self.supervisor, process, &image)?;
            self.note_moved(process, moved);
        }
        Ok(())
    }

    /// Notes the handlers that threads have entered on their way out of the code of probes.
    pub(super) fn note_moved(&mut self, process: u32, moved: Moved) {
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.has_contexts |= moved.has_contexts;
        }
        for (thread, at) in moved.faulted {
            self.entered.entry((process, thread)).or_default().push(at);
            self.supervisor.stop_at_calls(thread, true);
        }
    }
}

/// Returns the processes that share memory, with that.
fn images(processes: &BTreeMap<u32, Traced>) -> Vec<(u32, Arc<Image>)> {
    let image_of = |(process, traced): (&u32, &Traced)| Some((*process, traced.image.clone()?));
    processes.iter().filter_map(image_of).collect()
}

/// Returns whether an error of writing to a process means that it has no memory any more.
fn has_no_memory(error: &io::Error) -> bool {
    proc::is_gone(error) || error.kind() == io::ErrorKind::WriteZero
}
