//! Programs in the kernel that are loaded for one process, and the guardian of its stops. Both are made while this
//! process has one thread, since they fork.

use std::sync::Arc;

use abi::Target;

use super::{error::RunError, options::RunOptions};
use capture::kernel::{Copies, Kernel, LoadOptions};
use linux::{guardian::Guardian, ids::NsPid, perf, proc};
use report::Limitation;

/// Programs in the kernel for one process.
pub(super) struct LoadedKernel {
    pub(super) kernel: Kernel,
    pub(super) guardian: Arc<Guardian>,
    /// The process in its own PID namespace.
    pub(super) ns_pid: NsPid,
}

impl LoadedKernel {
    /// Loads the programs for a process. With `is_gated` the process runs already, and the programs record nothing
    /// before their gate is opened.
    pub(super) fn load(
        options: &RunOptions,
        is_gated: bool,
        process: u32,
    ) -> Result<Self, RunError> {
        let namespace_error = RunError::system("cannot read the PID namespace");
        let (pidns_dev, pidns_ino, tgid) = proc::pid_namespace(process).map_err(namespace_error)?;
        let kernel = Kernel::load(&LoadOptions {
            target: Target { tgid: tgid.into(), pidns_dev, pidns_ino },
            process,
            buffer_bytes: options.buffer_bytes,
            debug: options.debug_bpf,
            perf_probes: options.perf_probes,
            follow: options.follow_forks,
            is_gated,
            accesses: options.accesses.level.probes_instructions(),
            defers_owned: options.defers_owned(),
        })?;
        let ns_pid = NsPid(tgid);
        // Its result is asked for later, and it forks now.
        let _ = perf::trial();
        let guardian = kernel.start_guardian(is_gated.then_some((ns_pid, process)));
        let guardian = guardian.map_err(RunError::system("cannot start the guardian"))?;
        tracing::debug!(process, is_gated, "loaded the programs of the kernel");
        Ok(Self { kernel, guardian: Arc::new(guardian), ns_pid })
    }
}

/// Returns the limitations for children whose code was not restored.
pub(super) fn unrestored(copies: Copies) -> impl Iterator<Item = Limitation> {
    let limitation = |(reason, count)| Limitation::UnrestoredChildren { count, reason };
    copies.finish().into_iter().map(limitation)
}
