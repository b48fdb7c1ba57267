//! Way in which a run's events were captured, for its report.

use abi::Class;
use inline::layout::Clock;

use crate::session::options::{RunOptions, WhenFull};
use capture::{
    backend::{Backend, EventOrder, Unrecorded},
    in_process::Withdrawal,
    kernel::{Lost, ProbeLoss},
    windows::CaptureWindows,
};
use report::{
    Capture, CaptureBackend, CaptureOrder, Limitation, LostEvents, UNKNOWN_CLASS, WithdrawnProbes,
};

/// Returns the limitation of a program that was not watched all the time.
pub(crate) fn windows(windows: &CaptureWindows) -> Option<Limitation> {
    let watched = windows.watched()?;
    Some(Limitation::Windows {
        watched_ms: watched.time.as_millis() as u64,
        elapsed_ms: watched.elapsed.as_millis() as u64,
        count: watched.windows,
        budget: watched.budget.into(),
    })
}

/// Returns the way in which events were captured; `None` where there was no order yet.
pub(crate) fn capture(options: &RunOptions, backend: &Backend) -> Option<Capture> {
    let reason = &options.capture_reason;
    let (backend, order, order_reason, waits) = match backend.order()? {
        EventOrder::RingBuffer => (CaptureBackend::Kernel, CaptureOrder::RingBuffer, None, 0),
        EventOrder::Clock { choice, waits } => {
            let order = match choice.clock() {
                Clock::Tsc => CaptureOrder::TimeStampCounter,
                Clock::Counter => CaptureOrder::SharedCounter,
            };
            (CaptureBackend::Inline, order, choice.doubt(), waits)
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

/// Returns the lost events by class, which is not known of inline probes.
pub(crate) fn lost_events(backend: &Backend, lost: &Lost) -> Vec<LostEvents> {
    let class_of = |class: Class| if backend.is_inline() { UNKNOWN_CLASS } else { class.name() };
    let lost = lost.iter().filter(|(_, count)| *count > 0);
    lost.map(|&(class, count)| LostEvents { class: class_of(class).to_owned(), count }).collect()
}

/// Returns the limitations for threads and a process in which probes record nothing.
pub(crate) fn unrecorded(unrecorded: Unrecorded) -> impl Iterator<Item = Limitation> {
    let Unrecorded { threads_without_rings, threads_without_watchpoints, withdrawn } = unrecorded;
    let count = threads_without_rings;
    let rings = (count > 0).then_some(Limitation::ThreadsWithoutRings { count });
    let count = threads_without_watchpoints;
    let watchpoints = (count > 0).then_some(Limitation::ThreadsWithoutWatchpoints { count });
    let withdrawn = withdrawn.map(|(reason, error)| {
        let reason = match reason {
            Withdrawal::OwnGsBase => WithdrawnProbes::OwnGsBase,
            Withdrawal::UntracedThread => WithdrawnProbes::UntracedThread,
            Withdrawal::UnmappedMemory => WithdrawnProbes::UnmappedMemory,
            Withdrawal::OwnSystemCalls => WithdrawnProbes::OwnSystemCalls,
        };
        Limitation::WithdrawnProbes { reason, error }
    });
    [rings, withdrawn, watchpoints].into_iter().flatten()
}

/// Returns the limitation for probes that were lost with a main thread.
pub(crate) fn lost_probes(loss: ProbeLoss) -> Limitation {
    match loss {
        ProbeLoss::Unanchored { error } => Limitation::UnanchoredProbes { error },
        ProbeLoss::Removed { error } => Limitation::RemovedProbes { error },
    }
}
