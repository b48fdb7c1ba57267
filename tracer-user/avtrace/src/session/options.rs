//! Options of a run.

use std::{ffi::OsString, sync::Arc};

use checker::Regions;
use inline::layout::Mode;
use x86::placement::PlaceRules;

use super::{capture_reason::CaptureReason, record::RecordTo};
use capture::windows::CaptureBudget;
use plan::perturbation::Perturbation;
use plan::{
    focus::Focus,
    memory::{options::Accesses, watch_spec::WatchSpec},
    plan::{Wanted, own_code::OwnCode},
    regions::patterns::Rules,
    sync::lock_rule::LockRule,
};

/// Choice of the back end of capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureBackend {
    /// BPF programs in the kernel.
    Kernel,
    /// Probes in the process.
    Inline,
    /// The back end that supports all options, or the preferred one if both do (`capture_choice`).
    Auto,
}

/// Behaviour of a thread whose records find no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits for avtrace.
    Wait,
    /// It loses events, which are counted.
    Drop,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub capture: CaptureBackend,
    /// Reason for the back end, once one was chosen.
    pub capture_reason: CaptureReason,
    /// Behaviour of threads whose records find no room; `None` for that of the back end.
    pub when_full: Option<WhenFull>,
    /// The program's name as the user wrote it, and its arguments.
    pub command: Vec<OsString>,
    pub watch: Vec<WatchSpec>,
    /// Rules for the functions that are regions.
    pub rules: Rules,
    /// Functions that acquire and release locks.
    pub locks: Vec<LockRule>,
    pub accesses: Accesses,
    pub own_code: OwnCode,
    /// Take plans from the cache, and store them there.
    pub is_cached: bool,
    /// Run all threads on one processor.
    pub serialize: bool,
    /// Options of the checker; `None` to check nothing.
    pub checker: Option<checker::Options>,
    /// Record the events there.
    pub record: Option<RecordTo>,
    /// Size of the ring buffer in bytes.
    pub buffer_bytes: u32,
    /// Keep root for the program under sudo.
    pub as_root: bool,
    /// Log what the programs in the kernel do.
    pub debug_bpf: bool,
    /// Attach each probe as a perf event, as on kernels without `uprobe_multi`.
    pub perf_probes: bool,
    pub follow_forks: bool,
    pub perturbation: Option<Perturbation>,
    pub gaps: bool,
    /// Name what takes part in imprecise cycles, instead of checking.
    pub first_pass: bool,
    /// Look at what a first pass has named alone.
    pub focus: Option<Arc<Focus>>,
    /// Bound on the costs of capture; `None` for no bound.
    pub budget: Option<CaptureBudget>,
}

impl RunOptions {
    /// Returns whether the gaps of regions are observed.
    #[must_use]
    pub(super) fn observes_gaps(&self) -> bool {
        self.gaps || self.perturbation.as_ref().is_some_and(|plan| plan.observe_gaps)
    }

    /// Returns the behaviour of threads whose records find no room: probes in the process wait, and those of the kernel
    /// cannot.
    #[must_use]
    pub(super) fn when_full(&self) -> WhenFull {
        match self.capture {
            CaptureBackend::Inline => self.when_full.unwrap_or(WhenFull::Wait),
            CaptureBackend::Kernel | CaptureBackend::Auto => WhenFull::Drop,
        }
    }

    /// Returns the mode of probes in the process.
    pub(super) fn ring_mode(&self) -> Mode {
        match self.when_full() {
            WhenFull::Wait => Mode::Lossless,
            WhenFull::Drop => Mode::Drop,
        }
    }

    /// Returns whether accesses of a variable's owner may come late. Recordings and first passes have each event at its
    /// place. A child has the addresses of its parent, and other memory.
    pub(super) const fn defers_owned(&self) -> bool {
        self.record.is_none() && !self.first_pass && !self.follow_forks
    }

    /// Returns the options for the plans of its programs.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            rules: &self.rules,
            locks: &self.locks,
            accesses: &self.accesses,
            regions_alone: self.budget.is_some() && self.capture == CaptureBackend::Inline,
            watches: !self.watch.is_empty(),
            own_code: self.own_code,
            place_rules: match self.capture {
                CaptureBackend::Inline => PlaceRules::InProcess,
                CaptureBackend::Kernel | CaptureBackend::Auto => PlaceRules::Kernel,
            },
            low_prior: self.checker.is_some_and(|options| options.regions == Regions::All),
            thread_starts: self.perturbation.as_ref().is_some_and(|plan| plan.observe_gaps),
            delays: self.perturbation.as_ref().map_or(&[], |perturbation| &perturbation.delays),
            focus: self.focus.as_ref(),
        }
    }
}
