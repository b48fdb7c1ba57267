//! Run of a process that has just replaced its program to the entry point, where its libraries are mapped.

use std::{cell::RefCell, io, path::PathBuf};

use abi::{PlanNumber, ProbeProgram};

use super::{Kernel, KernelError};
use linux::{
    ids::NsPid,
    seized_thread::{SeizedThread, StopOutcome},
};
use plan::point::ProbePoint;

/// Entry point of a process's program.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The process.
    pub process: u32,
    /// The process in its own PID namespace.
    pub ns_pid: NsPid,
    /// Plan of the program.
    pub plan: PlanNumber,
    /// File with the entry point.
    pub file: PathBuf,
    /// Offset in the file.
    pub offset: u64,
}

/// Stop of a process on its way to the entry point of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryStop {
    /// Number of the stop.
    pub number: u32,
    /// The program was replaced before it reached its entry point.
    pub is_replaced: bool,
}

/// Reason why a process has not reached the entry point of its program.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// The kernel side does not work.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The entry point can have no probe.
    #[error("{0}")]
    Refused(io::Error),
    /// The thread cannot be followed.
    #[error("{0}")]
    Ptrace(io::Error),
    /// It has ended before.
    #[error("it ended before it reached its entry point")]
    Ended,
}

impl Kernel {
    /// Has a process that is held run to the entry point of its program, or to that of the next one.
    ///
    /// # Errors
    ///
    /// See [`EntryError`].
    pub fn run_to_entry(
        &mut self,
        held: &SeizedThread,
        Entry { process, ns_pid, plan, file, offset }: &Entry,
    ) -> Result<EntryStop, EntryError> {
        let point = ProbePoint {
            program: ProbeProgram::Halt,
            file: file.clone(),
            offset: *offset,
            cookie: ns_pid.0.into(),
            access: None,
            regions: None,
        };
        self.limit_plan(*plan, *process);
        let refusals = self.attach_probes(*plan, vec![point])?;
        if let Some(refusal) = refusals.into_iter().next() {
            return Err(EntryError::Refused(refusal.error));
        }
        let before = self.stops(*ns_pid);
        let number = before + 1;
        let kernel = RefCell::new(&mut *self);
        let has_stopped = || kernel.borrow_mut().stops(*ns_pid) != before;
        let reached = held.run_to_stop(has_stopped);
        self.detach_probes(*plan, |_| true);
        match reached.map_err(EntryError::Ptrace)? {
            StopOutcome::Stop => Ok(EntryStop { number, is_replaced: false }),
            StopOutcome::Gone => Err(EntryError::Ended),
            StopOutcome::Replaced => {
                let kernel = RefCell::new(self);
                // The stop that goes with it.
                let has_stopped = || kernel.borrow_mut().stops(*ns_pid) >= number;
                let stopped = held.run_to_stop(has_stopped).map_err(EntryError::Ptrace)?;
                if stopped == StopOutcome::Gone {
                    return Err(EntryError::Ended);
                }
                Ok(EntryStop { number, is_replaced: true })
            }
        }
    }
}
