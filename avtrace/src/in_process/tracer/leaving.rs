//! End of the tracing of processes that go on: their threads leave the code of probes, and their code is their own
//! again.

use std::{collections::BTreeMap, io, sync::Arc};

use super::{Traced, Tracer};
use crate::in_process::{image::Image, leave, libraries};

impl Tracer {
    /// Has the processes that are left go on without probes and tracer.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        let Self { supervisor, processes, shared, .. } = self;
        supervisor.feed_all()?;
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
                let is_complete = leave::restore(supervisor, process, &image)?;
                left_patched.extend((!is_complete).then_some(process));
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

    /// Moves all threads of processes, which stand still, out of the code of probes.
    pub(super) fn move_out(&mut self) -> io::Result<()> {
        let Self { supervisor, processes, .. } = self;
        for (process, image) in images(processes) {
            let has_contexts = leave::move_out(supervisor, process, &image)?;
            if let Some(traced) = processes.get_mut(&process) {
                traced.has_contexts |= has_contexts;
            }
        }
        Ok(())
    }
}

/// Returns the processes that share memory, with that.
fn images(processes: &BTreeMap<u32, Traced>) -> Vec<(u32, Arc<Image>)> {
    let image_of = |(process, traced): (&u32, &Traced)| Some((*process, traced.image.clone()?));
    processes.iter().filter_map(image_of).collect()
}
