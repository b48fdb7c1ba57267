//! A process that ran already: it is seized, shares memory, and is left without a trace.

use std::{io, sync::Arc};

use crossbeam_channel::Receiver;
use inline::layout::Mode;

use super::{Ending, Event, State, Tracer, signals};
use crate::in_process::{
    error::{InProcessError, ProgramRefusal, StartError, failed},
    handle::{InProcess, connect},
    records::Stream,
    standing::Standing,
};
use crate::probe_memory;
use linux::{proc, supervisor::Supervisor, tracee};

/// Process that ran already, as it is held.
pub type Attached = (Box<Tracer>, InProcess, Receiver<Arc<Stream>>);

/// End of the tracing of a process that ran already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its end, if that was the end of the tracing.
    pub ending: Option<Ending>,
    /// It has memory of probes left, as it may come back to their code.
    pub keeps_memory: bool,
}

impl Tracer {
    /// Seizes a process that runs, shares memory with it, and resumes it. `mode` says what its threads do when their
    /// rings are full.
    ///
    /// # Errors
    ///
    /// [`StartError::Start`] when the process may not be traced, or has ended; and the reason why it cannot have
    /// probes: it goes on then as if nothing had been.
    pub fn attach(process: u32, mode: Mode) -> Result<Attached, StartError> {
        let (in_process, shared, requests) = connect();
        let stream = Stream::without_rings(&shared.counts)
            .map_err(|error| {
                let what = "avtrace cannot create memory to share with a process by `memfd_create`, which a seccomp \
                            filter may deny";
                StartError::InProcess(InProcessError::System { what, error })
            })?;
        // One that waits for a child in its memory does not stop.
        if let Some(other) = sharer_of_memory(process) {
            return Err(StartError::InProcess(ProgramRefusal::SharesMemory { other }.into()));
        }
        let supervisor = Supervisor::attach(process)?;
        let (streams, received) = crossbeam_channel::unbounded();
        let channels = (shared, requests, streams);
        // No access is deferred: threads are in the middle of epochs of which nothing is known.
        let mut tracer = Box::new(Self::new(supervisor, process, stream, channels, mode));
        // It is not this process that has started it, and so not the one to end it.
        (tracer.has_started, tracer.is_attached) = (true, true);
        match tracer.share_running(process) {
            Ok(()) => Ok((tracer, in_process.attached(), received)),
            Err(error) => {
                // The first error is the one to report.
                let _ = tracer.supervisor.detach(process);
                Err(StartError::InProcess(error))
            }
        }
    }

    /// Shares memory with the process, all threads of which were stopped somewhere.
    fn share_running(&mut self, process: u32) -> Result<(), InProcessError> {
        let stop_error = || failed("cannot stop the process", process);
        // Events before the stop: threads that were created get their state here.
        while let Some(event) = self.supervisor.pending_event().map_err(stop_error())? {
            if matches!(event, Event::Exec { .. }) {
                let error = io::Error::other("it replaces its program just now: try again");
                return Err(stop_error()(error));
            }
            self.handle(event).map_err(stop_error())?;
        }
        if !self.processes.contains_key(&process) {
            return Err(stop_error()(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        if probe_memory::is_in(process).map_err(failed("cannot read the memory map", process))? {
            return Err(ProgramRefusal::HasLeftOvers.into());
        }
        if let Some(other) = sharer_of_memory(process) {
            return Err(ProgramRefusal::SharesMemory { other }.into());
        }
        if let Err(error) = self.share_frozen(process) {
            // The first error is the one to report.
            let _ = probe_memory::unmap(&mut self.supervisor, process);
            return Err(error);
        }
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.state = State::Running;
        }
        self.supervisor.thaw(process).map_err(failed("cannot let the process go", process))
    }

    /// Does what is asked for until the process has ended, or is to be left, and leaves it.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn run_attached(mut self) -> io::Result<Left> {
        self.follow(|| ())?;
        self.leave()?;
        let keeps_memory = self.processes.values().any(|traced| traced.has_contexts);
        Ok(Left { ending: self.ending, keeps_memory })
    }

    /// Takes back all that processes were given, of which none runs and whose code is their own again. Where a context
    /// that a program has saved may come back to the code of a probe, that stays.
    pub(super) fn leave_nothing(&mut self) {
        let Self { supervisor, processes, .. } = self;
        for (&process, traced) in processes {
            if traced.has_contexts || traced.image.is_none() {
                continue;
            }
            // An error is that of a process that was killed, or whose filter has become stricter since.
            let withdrawn = traced.watchpoints.withdraw(supervisor, process);
            let unmapped = withdrawn.and_then(|()| {
                for thread in supervisor.threads(process) {
                    supervisor.set_gs_base(thread, 0)?;
                }
                probe_memory::unmap(supervisor, process)
            });
            traced.has_contexts = unmapped.is_err_and(|error| !proc::is_gone(&error));
        }
    }

    /// Notes that a thread is about to receive a signal in code of a probe, if its handler may return there.
    pub(super) fn note_context(&mut self, process: u32, thread: u32) {
        let Some(traced) = self.processes.get_mut(&process) else { return };
        let Some(image) = traced.image.as_ref().filter(|_| self.is_attached) else { return };
        let Ok((mut place, _)) = self.supervisor.place(thread) else { return };
        // A handler that returns there finds the program's own code.
        if let Some(to) = image.leaving_patch(place)
            && self.supervisor.relocate(thread, to).unwrap_or(false)
        {
            place = to;
        }
        if image.standing(place) == Standing::Outside {
            return;
        }
        traced.has_contexts |= signals::is_handled(&self.supervisor, thread);
    }
}

/// Returns a process that runs in the memory of another one, as far as parents and children show.
fn sharer_of_memory(process: u32) -> Option<u32> {
    let parent = proc::Status::of_process(process).ok().and_then(|status| status.parent());
    let others = proc::children(process).into_iter().chain(parent);
    let shares = |&other: &u32| {
        tracee::share_memory(process.cast_signed(), other.cast_signed()).unwrap_or(false)
    };
    others.into_iter().find(shares)
}
