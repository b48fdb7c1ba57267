//! Coverage in a report: the limitations of a run, its costs, the accesses to memory that were seen, and a death by
//! `SIGTRAP`.

use serde::{Deserialize, Serialize};

use super::hex_address;
use crate::limitation::{self, Limitation};

/// Limitations of a run. If all is empty or zero, avtrace knows of no missed event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotSeen {
    /// Events lost, by class.
    pub lost_events: Vec<LostEvents>,
    /// Gaps in the stream, at each of which all active regions were abandoned.
    pub gaps: u64,
    /// Probes that were wanted and not placed.
    pub skipped_probes: Vec<SkippedProbes>,
    /// Code locations of the findings that have no function name.
    pub unresolved_locations: u64,
    /// Files or symbols without usable symbols or debug information.
    pub unresolved_symbols: Vec<Missing>,
    /// Child processes that were not traced.
    pub unfollowed_processes: Vec<Process>,
    /// Watchpoint hits whose accessing instruction could not be decoded.
    pub undecoded_accesses: u64,
    /// Reasons with their numbers of accesses, the most frequent first.
    pub undecoded_reasons: Vec<UndecodedReason>,
    /// Code that regions call and whose accesses no probe saw; null where accesses were not to be seen by probes.
    pub unprobed_calls: Option<UnprobedCalls>,
    /// Anything else. The document has it twice: as sentences in `notes`, with kinds and data in `limitations`.
    #[serde(flatten, with = "limitation::json")]
    #[cfg_attr(feature = "schema", schemars(with = "limitation::json::Written<'static>"))]
    pub limitations: Vec<Limitation>,
}

/// Class of lost events whose class is not known.
pub const UNKNOWN_CLASS: &str = "unknown";

/// Events of one class that were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostEvents {
    /// The class, such as `lock`, `access`, `region`; [`UNKNOWN_CLASS`] if it is not known.
    pub class: String,
    /// Number of lost events.
    pub count: u64,
}

/// Code that regions call and whose accesses no probe saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnprobedCalls {
    /// Depth of calls to which functions were probed (`--probe-depth`).
    pub depth: u32,
    /// Functions that are called one call deeper.
    pub deeper_functions: u64,
    /// The first three of them.
    pub deeper_names: Vec<String>,
    /// Calls through pointers.
    pub pointer_calls: u64,
    /// Libraries with functions that are called, the C library aside.
    pub libraries: Vec<String>,
    /// Functions of the C library that are called and access memory of their callers.
    pub c_functions: Vec<String>,
}

/// Watchpoint hits whose accessing instruction could not be decoded for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UndecodedReason {
    /// Reason for which the instruction could not be decoded.
    pub reason: String,
    /// Number of hits.
    pub count: u64,
}

/// Probes that were wanted and not placed, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkippedProbes {
    /// Events that they would have shown, such as `pthread_mutex_clocklock in libc.so.6`.
    pub what: String,
    /// Reason for which they were not placed.
    pub reason: String,
    /// Number of probes.
    pub count: u64,
    /// Kind of the events, where known.
    pub kind: Option<String>,
    /// Kind of the reason, where known.
    pub reason_kind: Option<String>,
}

/// Something that could not be found, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missing {
    /// The symbol or file.
    pub what: String,
    /// Reason for which it was not found.
    pub reason: String,
}

/// A process that was seen and not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Process id, in the PID namespace of avtrace.
    pub pid: u32,
    /// Name of the process, where known.
    pub name: Option<String>,
}

/// Costs of a run. `None` where a value does not apply, as for a recorded trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Wall-clock time in nanoseconds.
    pub elapsed_ns: Option<u64>,
    /// Probes on instructions that the kernel emulates.
    pub probes_emulated: Option<u64>,
    /// Probes on instructions that the kernel single-steps.
    pub probes_single_stepped: Option<u64>,
    /// Hardware watchpoints, as address ranges.
    pub watchpoints: Option<u64>,
    /// Number of allocations and mappings, where memory accesses are seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<u64>,
    /// Number of frees and unmappings of memory that was seen allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees: Option<u64>,
    /// The function that is a region and makes more than half of all events, where these are very many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest: Option<Busiest>,
}

/// A region that makes the most events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Busiest {
    /// Name of the region.
    pub region: String,
    /// Number of its begins and ends, and of the events in the region but in no region inside it.
    pub events: u64,
}

/// Coverage of memory accesses that nobody has named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemorySeen {
    /// Functions whose instructions were probed.
    pub functions: u64,
    /// Their instructions' accesses that are seen by probes on instructions that the kernel emulates.
    pub emulated: u64,
    /// Accesses that are seen by probes on other instructions.
    pub single_stepped: u64,
    /// Accesses that are not seen, by the reason.
    pub left_out: Vec<LeftOut>,
    /// Accesses to the stack and to variables of one thread, which are not shared.
    pub private: u64,
    /// Addresses that watchpoints were on by turns, the longest first.
    pub watched: Vec<WatchedShare>,
}

/// Accesses that are not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Reason for which the accesses are not seen.
    pub reason: String,
    /// Number of instructions with this reason.
    pub count: u64,
}

/// Memory that was watched for a part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedShare {
    /// Name, where known.
    pub name: Option<String>,
    /// Process address of the memory in hexadecimal, `0x…`, where known.
    #[serde(with = "hex_address")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<String>", regex(pattern = "^0x[0-9a-f]{1,16}$"))
    )]
    pub address: Option<u64>,
    /// Length in bytes.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub length: u64,
    /// Part of the run in which the memory was watched, in percent.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub percent: f64,
    /// Number of accesses that were seen.
    pub hits: u64,
}

impl MemorySeen {
    /// Returns the number of accesses that may be shared, in the functions that were probed.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        let left_out: u64 = self.left_out.iter().map(|left_out| left_out.count).sum();
        self.emulated + self.single_stepped + left_out
    }
}

/// Death by `SIGTRAP`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrapDeath {
    /// Cause of the signal.
    pub cause: TrapCause,
    /// The address of the breakpoint instruction, or for a debug exception of the next instruction; `None` when it is
    /// not known.
    #[serde(with = "hex_address")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<String>", regex(pattern = "^0x[0-9a-f]{1,16}$"))
    )]
    pub address: Option<u64>,
    /// Description of that place; `None` outside of all files.
    pub location: Option<String>,
    /// The cause in words.
    pub message: String,
    /// Remedy, where there is one.
    pub help: Option<String>,
}

/// Cause of a `SIGTRAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrapCause {
    /// A breakpoint of avtrace in code that the program has copied elsewhere.
    CopiedCode,
    /// A breakpoint of avtrace at its place, where the program has mapped other memory since.
    RemappedCode,
    /// A breakpoint instruction that the program has made, or an altered copy of code with a breakpoint of avtrace.
    Breakpoint,
    /// A debug exception that the processor raised without naming its cause.
    DebugException,
    /// The program itself, or another process that has sent the signal.
    Program,
    /// The cause is not known.
    Unknown,
}

impl TrapCause {
    /// Returns whether avtrace has caused it: the program alone would not have received the signal.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::CopiedCode | Self::RemappedCode | Self::DebugException)
    }

    /// The cause in a few words.
    #[must_use]
    pub const fn in_short(self) -> &'static str {
        match self {
            Self::CopiedCode => "a breakpoint of avtrace in code that it had copied",
            Self::RemappedCode => "a breakpoint of avtrace in code that it had mapped anew",
            Self::Breakpoint => "a breakpoint instruction outside of its files",
            Self::DebugException => "a debug exception without a cause",
            Self::Program => "its own doing",
            Self::Unknown => "the cause is not known",
        }
    }
}
