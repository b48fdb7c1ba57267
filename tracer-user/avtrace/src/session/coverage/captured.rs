//! Way in which a run's events were captured, for its report.

use abi::Class;
use inline::layout::Clock;

use crate::session::options::{RunOptions, WhenFull};
use capture::{backend::Backend, in_process::Withdrawal, kernel::Lost};
use report::{
    Capture, CaptureBackend, CaptureOrder, Limitation, LostEvents, UNKNOWN_CLASS, WithdrawnProbes,
};

/// Returns the way in which events were captured; `None` where there was no order yet.
pub(crate) fn capture(options: &RunOptions, backend: &Backend) -> Option<Capture> {
    let reason = &options.capture_reason;
    let (backend, order, order_reason, waits) = match backend {
        Backend::Kernel(_) => (CaptureBackend::Kernel, CaptureOrder::RingBuffer, None, 0),
        Backend::InProcess(process) => {
            let clock = process.clock()?;
            let order = match clock.clock() {
                Clock::Tsc => CaptureOrder::TimeStampCounter,
                Clock::Counter => CaptureOrder::SharedCounter,
            };
            (CaptureBackend::Inline, order, clock.doubt(), process.waits())
        }
    };
    Some(Capture {
        backend,
        reason: reason.to_string(),
        reason_kind: reason.kind().to_owned(),
        order,
        order_reason,
        lossless: options.when_full() == WhenFull::Wait,
        waits,
    })
}

/// Returns the lost events by class. Of inline probes' the class is not known.
pub(crate) fn lost_events(backend: &Backend, lost: &Lost) -> Vec<LostEvents> {
    let class_of = |class: Class| match backend {
        Backend::Kernel(_) => class.name(),
        Backend::InProcess(_) => UNKNOWN_CLASS,
    };
    let lost = lost.iter().filter(|(_, count)| *count > 0);
    lost.map(|&(class, count)| LostEvents { class: class_of(class).to_owned(), count }).collect()
}

/// Returns the limitation for threads of which nothing was recorded.
pub(crate) fn threads_without_rings(backend: &Backend) -> Option<Limitation> {
    let Backend::InProcess(process) = backend else { return None };
    let count = process.threads_without_rings();
    (count > 0).then_some(Limitation::ThreadsWithoutRings { count })
}

/// Returns the limitation for a process that could have probes no longer.
pub(crate) fn withdrawn_probes(backend: &Backend, process: u32) -> Option<Limitation> {
    let Backend::InProcess(in_process) = backend else { return None };
    let (reason, error) = in_process.withdrawn(process)?;
    let reason = match reason {
        Withdrawal::OwnGsBase => WithdrawnProbes::OwnGsBase,
        Withdrawal::UntracedThread => WithdrawnProbes::UntracedThread,
        Withdrawal::UnmappedMemory => WithdrawnProbes::UnmappedMemory,
    };
    Some(Limitation::WithdrawnProbes { reason, error })
}

/// Returns the limitation for threads in which nothing is watched.
pub(crate) fn threads_without_watchpoints(backend: &Backend) -> Option<Limitation> {
    let Backend::InProcess(process) = backend else { return None };
    let count = process.threads_without_watchpoints();
    (count > 0).then_some(Limitation::ThreadsWithoutWatchpoints { count })
}
