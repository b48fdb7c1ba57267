//! Watchpoints, as the tracer sets them and takes their hits.

use std::io;

use super::{Traced, Tracer};

impl Tracer {
    /// Watches memory in a process, or prepares for that.
    pub(super) fn watch(
        &mut self,
        process: u32,
        range: Option<(u64, u64)>,
        at_entry: bool,
    ) -> io::Result<()> {
        let Self { supervisor, processes, .. } = self;
        let Some(Traced { image: Some(image), watchpoints, .. }) = processes.get_mut(&process)
        else {
            // It has ended, or has no probes, which is reported.
            return Ok(());
        };
        if at_entry {
            // A hit does not look at the cells of its words: it would be before accesses that were deferred earlier.
            image.defer_nothing();
        }
        let was_frozen = supervisor.is_frozen(process);
        supervisor.freeze(process)?;
        let prepared =
            if at_entry { watchpoints.prepare(supervisor, process, image) } else { Ok(()) };
        let watched = prepared.and_then(|()| {
            range.map_or(Ok(()), |(address, length)| {
                watchpoints.add(supervisor, process, address, length)
            })
        });
        if !was_frozen {
            supervisor.thaw(process)?;
        }
        watched
    }

    /// Makes the records of a thread's hit.
    pub(super) fn hit(&self, process: u32, thread: u32) {
        let Some(Traced { image: Some(image), watchpoints, stream, .. }) =
            self.processes.get(&process)
        else {
            return;
        };
        // One that was killed has gone.
        if let Ok(hit) = self.supervisor.hit(thread) {
            watchpoints.record(&hit, process, thread, image, stream);
        }
    }
}
