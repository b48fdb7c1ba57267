//! Names of the maps and of the settings' symbols in the BPF object.

/// A [`Target`](super::Target).
pub const TARGET: &str = "TARGET";
/// A [`KernelLayout`](super::KernelLayout).
pub const KERNEL_LAYOUT: &str = "KERNEL_LAYOUT";
/// A `u32`: non-zero when the programs log their steps.
pub const DEBUG: &str = "DEBUG";
/// A `u32`: the [`ABI_VERSION`](super::ABI_VERSION) that the programs were built with. Only read.
pub const ABI: &str = "AVTRACE_ABI";
/// The ring buffer of records.
pub const EVENTS: &str = "EVENTS";
/// The per-CPU counters of lost events, by [`Class`](super::Class).
pub const LOST: &str = "LOST";
/// The number that goes into [`Header::lost`](super::Header::lost).
pub const LOST_TOTAL: &str = "LOST_TOTAL";
/// A `u32`: non-zero when child processes are traced as well.
pub const FOLLOW: &str = "FOLLOW";
/// The plan of each process that is traced beside the first, and of that one when it is not 0, by
/// [`Header::process`](super::Header::process).
pub const PROCESSES: &str = "PROCESSES";
/// Number of stops of each process, by its id in its PID namespace.
pub const STOPPED: &str = "STOPPED";
/// The number of each process's latest stop that is over.
pub const CONTINUED: &str = "CONTINUED";
/// The ring buffer of [`CopyRecord`](super::CopyRecord)s.
pub const NEW_COPIES: &str = "NEW_COPIES";
/// Processes whose memory may have breakpoints that are not theirs, by [`CopyRecord::process`](super::CopyRecord).
pub const COPIES: &str = "COPIES";
/// Number of [`CopyRecord`](super::CopyRecord)s that found no room.
pub const LOST_COPIES: &str = "LOST_COPIES";
/// Calls that have not returned.
pub const PENDING: &str = "PENDING";
/// An [`AccessDescriptor`](super::AccessDescriptor) for each site of
/// [`Kind::Access`](super::Kind::Access), by its [`SiteId`](super::SiteId).
pub const ACCESS_DESCRIPTORS: &str = "ACCESS_DESCRIPTORS";
/// Cost of the hits of each group of access probes so far, for each CPU.
pub const COSTS: &str = "COSTS";
/// Words with sampling watchpoints, as addresses divided by 8, or 0: [`SAMPLES`](super::SAMPLES) of them.
pub const SAMPLED_WORDS: &str = "SAMPLED_WORDS";
/// Number of times that a probe may read the value of such a word from now on.
pub const SAMPLED_READS: &str = "SAMPLED_READS";
/// A `u32`: non-zero when recording starts only once [`GATE`] is open.
pub const GATED: &str = "GATED";
/// A `u64`: non-zero while events are recorded.
pub const GATE: &str = "GATE";
/// A `u32`: non-zero when memory instructions are probed.
pub const PROBES_ACCESSES: &str = "PROBES_ACCESSES";
/// A [`DelayPlace`](super::DelayPlace) for each place of a delay.
pub const DELAYS: &str = "DELAYS";
/// Numbers that all delays have in common: their share of the time in 2⁻³², the time from which on it is, by
/// `CLOCK_MONOTONIC` in nanoseconds, and the time in delays so far.
pub const DELAY_TOTALS: &str = "DELAY_TOTALS";
/// A `u32`: non-zero when accesses of a word's owner may be deferred.
pub const OWNERSHIP_ENABLED: &str = "OWNERSHIP_ENABLED";
