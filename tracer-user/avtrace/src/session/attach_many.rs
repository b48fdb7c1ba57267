//! Attaching to processes that run already: each is traced by threads, and programs in the kernel or probes in it, of
//! its own, so that what befalls one leaves the others alone. They share the end, and the receiver of reports.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread,
};

use signal_hook::{consts::SIGUSR1, flag};

use super::{
    attach_error::AttachError,
    attach_inline,
    attach_run::Loaded,
    attach_target::AttachTarget,
    attaching::{Shared, Turns},
    capture_choice::Choice,
    end_signals::EndSignals,
    error::RunError,
    finished_program::ProgramReport,
    live_report::{LiveReports, Receiver},
    options::RunOptions,
    process_selection::MAX_PROCESSES,
    recording_numbers::RecordingNumbers,
};
use crate::status_line::StatusLine;
use linux::{self, ptrace_breakpoint};
use report;

/// Smallest buffer of a process, in bytes, when several share what is set aside.
const LEAST_BUFFER: u32 = 4 << 20;

/// Process to attach to, with all that is to be made while this process has one thread.
enum Prepared {
    /// For programs in the kernel.
    Kernel(Box<Loaded>),
    /// For probes in the process. The thread that traces it seizes it.
    Inline(AttachTarget),
}

impl Prepared {
    fn new(options: &RunOptions, is_inline: bool, target: AttachTarget) -> Result<Self, RunError> {
        if is_inline {
            target.check()?;
            return Ok(Self::Inline(target));
        }
        Ok(Self::Kernel(Box::new(Loaded::load(options, target)?)))
    }

    const fn target(&self) -> &AttachTarget {
        match self {
            Self::Kernel(loaded) => loaded.target(),
            Self::Inline(target) => target,
        }
    }

    fn trace(
        self,
        shared: &Arc<Shared>,
        live_reports: LiveReports,
    ) -> Result<Vec<ProgramReport>, RunError> {
        match self {
            Self::Kernel(loaded) => loaded.trace(shared, live_reports),
            Self::Inline(target) => attach_inline::trace(&target, shared, live_reports),
        }
    }
}

/// Attaches to processes with the back end that was chosen, and checks each until it ends or the tracing is to end.
/// `receiver` gets reports meanwhile. Returns the report on each program that they have run. With several, one that
/// cannot be attached to is named on standard error, and the others are traced.
///
/// # Errors
///
/// See [`RunError`]; that of the process, if there is only one. Where the other back end may do instead, nothing has
/// been printed.
pub(super) fn attach(
    options: &RunOptions,
    choice: &Choice,
    targets: Vec<AttachTarget>,
    receiver: Receiver,
    status: &StatusLine,
) -> Result<Vec<ProgramReport>, RunError> {
    let memory_error = RunError::system("cannot set memory aside for the run");
    linux::memory::check_headroom().map_err(memory_error)?;
    // A process for which no descriptor is left is named later.
    let _raised = linux::descriptors::RaisedLimit::new();
    // It forks while there is one thread.
    let _ = ptrace_breakpoint::trial();
    let attempts = Attempts::new(targets.len(), status);
    let (mut loaded, mut failed) = (Vec::new(), Vec::new());
    let within = targets.len().min(MAX_PROCESSES);
    let options = choice.apply(options);
    let options = RunOptions { buffer_bytes: share(options.buffer_bytes, within), ..options };
    for target in targets {
        if loaded.len() == MAX_PROCESSES {
            failed.push((target, AttachError::TooMany { pid: target.pid }.into()));
            continue;
        }
        match Prepared::new(&options, choice.is_inline, target) {
            Ok(process) => loaded.push(process),
            Err(error) => failed.push((target, error)),
        }
    }
    failed.into_iter().for_each(|(target, error)| attempts.fail(&target, error));
    if !loaded.is_empty() {
        // All forks that need a single thread are done. Where nothing was loaded, those of the other back end follow.
        status.start_printer();
    }
    let handler_error = || RunError::system("cannot install signal handlers");
    let end_signals = EndSignals::install().map_err(handler_error())?;
    let shared = Arc::new(Shared {
        options: Arc::new(options),
        end_signals,
        numbers: RecordingNumbers::default(),
        turn: Mutex::new(Turns::default()),
        pending: AtomicUsize::new(loaded.len()),
        status: status.clone(),
    });
    let receiver = Arc::new(Mutex::new(receiver));
    let mut traces = Vec::new();
    for process in loaded {
        let report_asked_for = Arc::<AtomicBool>::default();
        flag::register(SIGUSR1, Arc::clone(&report_asked_for)).map_err(handler_error())?;
        let receiver = Arc::clone(&receiver);
        let receiver: Receiver = Box::new(move |occasion, report| {
            let mut receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver(occasion, report)
        });
        let asker = shared.end_signals.asker().map_err(handler_error())?;
        traces.push((process, LiveReports::new(receiver, report_asked_for, asker, status.clone())));
    }
    let mut programs = Vec::new();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (process, live_reports) in traces {
            let (target, shared, attempts) = (*process.target(), &shared, &attempts);
            let trace = move || {
                let traced = process.trace(shared, live_reports);
                // Said at once, while others are traced.
                traced.unwrap_or_else(|error| {
                    attempts.fail(&target, error);
                    Vec::new()
                })
            };
            let thread = thread::Builder::new().name("avtrace-attach".to_owned());
            match thread.spawn_scoped(scope, trace) {
                Ok(thread) => running.push((target, thread)),
                Err(error) => {
                    attempts.fail(&target, RunError::system("cannot start a thread")(error));
                }
            }
        }
        for (target, thread) in running {
            // Reports on the other processes are kept in any case.
            match thread.join() {
                Ok(found) => programs.extend(found),
                Err(_) => attempts.fail(&target, AttachError::Panicked { pid: target.pid }.into()),
            }
        }
    });
    let finished = attempts.finish();
    if finished.is_err() {
        // Another back end may be tried.
        shared.end_signals.uninstall();
    }
    finished.map(|()| programs)
}

/// Processes that were named, and those of them that could not be attached to.
struct Attempts<'status> {
    count: usize,
    status: &'status StatusLine,
    failures: Mutex<Vec<RunError>>,
}

impl<'status> Attempts<'status> {
    const fn new(count: usize, status: &'status StatusLine) -> Self {
        Self { count, status, failures: Mutex::new(Vec::new()) }
    }

    /// Notes that a process could not be attached to. With others, it is said here.
    fn fail(&self, target: &AttachTarget, error: RunError) {
        let pid = target.pid;
        let error = target.explain(error);
        if self.count > 1 {
            warn(self.status, &format!("process {pid} is not traced: {error}"));
        }
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// # Errors
    ///
    /// When no process could be attached to: with several, and several reasons, the first that lies with avtrace or the
    /// machine rather than with a process, since that one is likely behind all.
    fn finish(self) -> Result<(), RunError> {
        let failures = self.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (failed, count, status) = (failures.len(), self.count, self.status);
        let mut failures = failures.into_iter();
        let first = if count == 1 {
            failures.next()
        } else {
            failures.find(|error| error.exit_status() != REFUSED)
        };
        match first {
            _ if failed == 0 => Ok(()),
            Some(error) if failed == count => Err(error),
            None if failed == count => Err(AttachError::None { count }.into()),
            _ => {
                let were = if failed == 1 { "was" } else { "were" };
                // Printed before the end, which a reader that does not read cannot delay.
                warn(status, &format!("{failed} of {count} processes {were} not traced"));
                status.end();
                Ok(())
            }
        }
    }
}

/// Exit status where a process cannot be traced.
const REFUSED: u8 = 3;

/// Prints a warning, in one line.
fn warn(status: &StatusLine, message: &str) {
    let message = report::printable(message);
    status.print(&format!("avtrace: warning: {}\n", report::cut_message(&message)));
}

/// Returns each process's part of a buffer of this size: a power of two.
fn share(bytes: u32, processes: usize) -> u32 {
    let parts = u32::try_from(processes.max(1).next_power_of_two()).unwrap_or(u32::MAX);
    (bytes / parts).max(LEAST_BUFFER.min(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_the_buffer() {
        assert_eq!(share(64 << 20, 1), 64 << 20);
        assert_eq!(share(64 << 20, 3), 16 << 20);
        assert_eq!(share(64 << 20, 32), LEAST_BUFFER);
        assert_eq!(share(1 << 20, 4), 1 << 20);
    }

    #[test]
    fn the_reason_of_a_single_process_is_the_error() {
        let (status, ended) = (StatusLine::hidden(), AttachError::Ended { pid: 7 });
        let target = |pid| AttachTarget { pid, duration: None, quiet: true };
        let attempts = Attempts::new(1, &status);
        attempts.fail(&target(7), ended.into());
        let error = attempts.finish().expect_err("no process");
        assert!(matches!(error, RunError::Attach(AttachError::Ended { pid: 7 })), "{error}");
        let attempts = Attempts::new(2, &status);
        attempts.fail(&target(7), AttachError::Ended { pid: 7 }.into());
        attempts.fail(&target(8), AttachError::Ended { pid: 8 }.into());
        let error = attempts.finish().expect_err("no process");
        assert!(matches!(error, RunError::Attach(AttachError::None { count: 2 })), "{error}");
        assert_eq!(error.exit_status(), 3);
        // In whatever order they fail.
        for of_system in [7, 8] {
            let attempts = Attempts::new(2, &status);
            for pid in [7, 8] {
                let failed = RunError::system("cannot start a thread");
                let own = std::process::id();
                let error = if pid == of_system {
                    failed(std::io::Error::other("no memory"))
                } else {
                    AttachError::Ended { pid }.into()
                };
                // Of a process that has not ended.
                attempts.fail(&target(own), error);
            }
            let error = attempts.finish().expect_err("no process");
            assert_eq!(error.exit_status(), 1, "{error}");
        }
    }
}
