//! Course of tracing a process that runs already, with programs in the kernel: attach while it runs, record until it
//! ends or the tracing is to end, detach. The process is never stopped for it.

use std::{
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::Instant,
};

use super::{
    attach_error::AttachError,
    attach_target::AttachTarget,
    attaching::{Pending, Shared, announce},
    await_end::await_end,
    capture_end::CaptureEnd,
    error::RunError,
    finished_program::ProgramReport,
    launching::first_program,
    live_report::LiveReports,
    loaded_kernel::{LoadedKernel, unrestored},
    options::RunOptions,
    pipeline::{Pipeline, prepare_first},
    processes::arguments,
    program_end::ProgramEnd,
    program_id::ProgramId,
};
use capture::{backend::Backend, kernel::reader::Reader};
use linux::tracee;
use report::Limitation;

/// A process to attach to, with the parts that are made while this process has one thread.
pub(super) struct Loaded {
    target: AttachTarget,
    /// Shows the end of the process, whose id another one may have by then.
    process: OwnedFd,
    kernel: LoadedKernel,
}

impl Loaded {
    /// Loads the programs of the kernel for a process. To be called while this process has one thread.
    pub(super) fn load(options: &RunOptions, target: AttachTarget) -> Result<Self, RunError> {
        // Opened before the id is used: if this process is still alive in the end, the id was not reused meanwhile.
        let process = tracee::pidfd(target.pid);
        target.check()?;
        let process = process.map_err(RunError::system("cannot find the process"))?;
        let kernel = LoadedKernel::load(options, true, target.pid)?;
        Ok(Self { target, process, kernel })
    }

    pub(super) const fn target(&self) -> &AttachTarget {
        &self.target
    }

    /// Attaches to the process, and checks it until it ends or the tracing is to end. Returns the report on each
    /// program that it has run.
    pub(super) fn trace(
        self,
        shared: &Arc<Shared>,
        live_reports: LiveReports,
    ) -> Result<Vec<ProgramReport>, RunError> {
        let Self { target, process, kernel: LoadedKernel { mut kernel, guardian, ns_pid } } = self;
        let (pid, options, end_signals) = (target.pid, &shared.options, &shared.end_signals);
        let pending = Pending::new(shared);
        let mut turn = shared.turn(pid)?;
        if options.debug_bpf {
            kernel.print_log()?;
        }
        kernel.attach_threads()?;
        let mut gate = kernel.take_gate()?;
        let events = kernel.take_events()?;
        let copies = kernel.restore_copies()?;
        let mut backend = Backend::from(kernel);
        let argv = arguments(pid);
        let id = ProgramId { argv: argv.clone(), ..first_program(options, pid, ns_pid) };
        let mut first = prepare_first(options, &mut backend, id, &shared.numbers)?;
        first.begin_within();
        let now = Some(Instant::now());
        let end_error = || RunError::system("cannot wait for the end");
        if await_end(&[process.as_fd()], now).map_err(end_error())? {
            return Err(AttachError::EndedMeanwhile { pid }.into());
        }
        gate.open()?;
        turn.has_begun = true;
        // Libraries that were loaded after the plan was made.
        first.libraries(&mut backend, pid);
        drop(turn);
        let cut = end_signals.cut();
        let read = Reader::start(events, cut);
        let (reader, batches) = read.map_err(RunError::system("cannot start a thread"))?;
        // Readable when nobody checks any more: after a panic.
        let (checked, is_unchecked) =
            UnixStream::pair().map_err(RunError::system("cannot create a pair of sockets"))?;
        let (end_request, capture_end) = CaptureEnd::new(Some(gate));
        let tracker = shared.track(backend, first, capture_end, live_reports)?;
        let kept = (checked, guardian.in_case_of_panic());
        let pipeline = Pipeline::start(reader, batches, cut, kept, || Ok(tracker))?;
        announce(&target, &argv, &shared.status);
        drop(pending);
        let until = target.duration.map(|duration| Instant::now() + duration);
        let ends = [process.as_fd(), end_signals.asked(), is_unchecked.as_fd()];
        let awaited = await_end(&ends, until);
        // The program has its own code and speed again before the rest is checked.
        let closed = end_request.close();
        let mut tracker = pipeline.finish()?;
        tracker.limit(unrestored(copies).chain([Limitation::Attached]));
        let end = tracker.first_ending().map_or(ProgramEnd::Running, ProgramEnd::Ended);
        let programs = tracker.end(end);
        awaited.map_err(end_error())?;
        closed?;
        Ok(programs)
    }
}
