//! BPF programs in the kernel: loads and attaches them, and reads their maps. The places to attach to are decided in
//! `probes`, the meaning of records in `live`.

mod access_probes;
mod attach;
pub mod btf;
mod copies;
mod counters;
mod delays;
mod detach;
mod entry;
mod error;
mod gate;
mod limit;
mod load;
mod log;
mod main_thread_exit;
pub mod object;
pub mod privileges;
mod processes;
pub mod reader;
pub mod trial;
mod watchpoints;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::fd::OwnedFd,
    path::PathBuf,
    thread,
};

pub use abi::ProbeProgram;
use abi::{PlanNumber, Target};
use aya::{Ebpf, programs::Program};

pub use self::{
    copies::Copies,
    counters::Lost,
    detach::PendingDetach,
    entry::{Entry, EntryError, EntryStop},
    error::KernelError,
    gate::Gate,
    limit::LIMITED_PROBES,
    main_thread_exit::ProbeLoss,
};
use self::{copies::SharedPlaces, limit::Limit};
use linux::apart;
use plan::point::{ProbeGroup, ProbePoint};

/// Options for loading.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// The process to trace.
    pub target: Target,
    /// Target process, as this process's PID namespace numbers it.
    pub process: u32,
    /// Size of the ring buffer in bytes: a power of two, and a multiple of the page size.
    pub buffer_bytes: u32,
    /// Makes the programs log their actions.
    pub debug: bool,
    /// Attach each probe as a perf event, as on kernels without `uprobe_multi`.
    pub perf_probes: bool,
    /// Traces child processes as well: probes are then not limited to one process.
    pub follow: bool,
    /// Records nothing until the [`Gate`] is open.
    pub is_gated: bool,
    /// Prepares for probes on instructions that access memory.
    pub accesses: bool,
    /// Defers accesses of a thread to memory that it owns: they are reported when another thread arrives, and only
    /// then.
    pub defers_owned: bool,
}

#[derive(Debug)]
struct Attached {
    plan: PlanNumber,
    file: PathBuf,
    group: Option<ProbeGroup>,
    /// It keeps them attached.
    link: OwnedFd,
}

/// The loaded programs and all that is attached. Dropping it detaches everything; so does the kernel when this
/// process dies, since nothing is pinned.
#[derive(Debug)]
pub struct Kernel {
    ebpf: Ebpf,
    /// Programs for `uprobe_multi` links; `None` on kernels without.
    multi: Option<BTreeMap<ProbeProgram, OwnedFd>>,
    /// Rare programs, loaded when they are first needed; for each the variants, of which the first that the kernel
    /// accepts is used.
    rare: BTreeMap<ProbeProgram, Vec<object::Relocated>>,
    links: Vec<OwnedFd>,
    /// Handles of the probes, and the points attached by each plan.
    probes: Vec<Attached>,
    points: Vec<(PlanNumber, ProbePoint)>,
    /// The files that they are in, by plan and name.
    files: BTreeMap<(PlanNumber, PathBuf), File>,
    limit: Limit,
    /// Plans of processes whose main threads have ended, and whose probes have no limit any more.
    anchored: BTreeSet<PlanNumber>,
    /// Links of processes that have ended, which are being closed.
    pending_detaches: Vec<PendingDetach>,
    access_groups: u32,
    /// Places of probes, for copies of memory that have them as well.
    places: SharedPlaces,
    watchpoints: Vec<OwnedFd>,
    /// Watchpoints reserved for ranges that become known later; each has one event for each thread that there was
    /// then.
    spare: Vec<Vec<OwnedFd>>,
    /// Watchpoints that are moved all the time.
    samples: Vec<Vec<OwnedFd>>,
}

impl Kernel {
    /// Returns whether probes are attached through `uprobe_multi` links. Without (kernels before 6.6), each probe is
    /// a perf event that fires in every process that maps the file, and takes a tenth of a second to detach: that is
    /// left to a process of its own.
    #[must_use]
    pub const fn has_uprobe_multi(&self) -> bool {
        self.multi.is_some()
    }

    fn program<'this, P>(&'this mut self, name: &str) -> Result<&'this mut P, KernelError>
    where
        &'this mut P: TryFrom<&'this mut Program>,
    {
        let program = self.ebpf.program_mut(name);
        program
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| KernelError::Object(format!("no program `{name}`")))
    }

    /// The traced process has a program again that starts with a main thread; its watchpoints are gone.
    pub fn start_anew(&mut self) {
        drop(PendingDetach::start(std::mem::take(&mut self.links)));
        self.watchpoints.clear();
        self.spare.clear();
        self.samples.clear();
    }

    /// Detaches everything.
    pub fn detach(self) {
        let Self { ebpf, multi, links, probes, watchpoints, spare, samples, .. } = self;
        drop((watchpoints, spare, samples));
        let is_slow = multi.is_none();
        let probes = probes.into_iter().map(|probe| probe.link).collect();
        thread::scope(|scope| {
            // Without another thread it is done here, when the closure is dropped.
            let close = move || drop((ebpf, multi));
            let _ = thread::Builder::new().spawn_scoped(scope, close);
            release(probes, is_slow);
            drop(PendingDetach::start(links));
        });
    }
}

/// Detaches probes, at once or, where each is slow to detach, after this has returned, also when this process ends.
fn release(links: Vec<OwnedFd>, is_slow: bool) {
    if is_slow {
        apart::leave(links);
    } else {
        drop(PendingDetach::start(links));
    }
}

/// Checks for the capabilities that loading BPF programs needs, before any program is started.
///
/// # Errors
///
/// [`KernelError::NotPermitted`].
pub fn check_privileges() -> Result<(), KernelError> {
    if privileges::has_capabilities() { Ok(()) } else { Err(KernelError::NotPermitted) }
}

/// The running kernel's release: major and minor.
#[must_use]
pub fn kernel_release() -> (u32, u32) {
    parse_release(&release_name())
}

/// Name of the running kernel's release; empty without `/proc`.
#[must_use]
pub fn release_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns the first two numbers of a release.
#[must_use]
pub fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::parse_release;

    #[test]
    fn releases_are_read() {
        assert_eq!(parse_release("6.18.44-fc-v657\n"), (6, 18));
        assert_eq!(parse_release("6.1.0-38-amd64"), (6, 1));
        assert_eq!(parse_release(""), (0, 0));
    }
}
