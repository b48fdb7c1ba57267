//! Options of a run.

use std::{ffi::OsString, path::PathBuf};

use checker::Regions;

use crate::probes::{
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
    /// The kernel where this process may load programs, else probes in the process.
    Auto,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Back end of capture.
    pub capture: CaptureBackend,
    /// The program's name as the user wrote it, and its arguments.
    pub command: Vec<OsString>,
    /// Ranges to watch.
    pub watch: Vec<WatchSpec>,
    /// Rules for the functions that are regions.
    pub rules: Rules,
    /// Functions that acquire and release locks.
    pub locks: Vec<LockRule>,
    /// Capture of memory accesses.
    pub accesses: Accesses,
    /// Probing of the program's own code.
    pub own_code: OwnCode,
    /// Run all threads on one processor.
    pub serialize: bool,
    /// Options of the checker; `None` to check nothing.
    pub checker: Option<checker::Options>,
    /// Record the events in this file.
    pub record: Option<PathBuf>,
    /// Size of the ring buffer in bytes.
    pub buffer_bytes: u32,
    /// Keep root for the program under sudo.
    pub as_root: bool,
    /// Log what the programs in the kernel do.
    pub debug_bpf: bool,
    /// Attach each probe as a perf event, as on kernels without `uprobe_multi`.
    pub perf_probes: bool,
    /// Trace child processes as well.
    pub follow_forks: bool,
}

impl RunOptions {
    /// Returns the options for the plans of its programs.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            rules: &self.rules,
            locks: &self.locks,
            accesses: &self.accesses,
            watches: !self.watch.is_empty(),
            own_code: self.own_code,
            return_probes: self.capture != CaptureBackend::Inline,
            low_prior: self.checker.is_some_and(|options| options.regions == Regions::All),
        }
    }
}
