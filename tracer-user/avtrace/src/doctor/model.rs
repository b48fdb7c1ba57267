//! The diagnosis as data: the JSON document `avtrace-doctor/1` (`docs/doctor.schema.json`).

use serde::{Deserialize, Serialize};

use report::{CaptureBackend, Tool};

/// Name and version of the format.
pub const SCHEMA: &str = "avtrace-doctor/1";

/// State of this machine, as far as avtrace depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// Name and version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: String,
    /// The program that wrote the diagnosis.
    pub tool: Tool,
    /// Back ends of capture.
    pub capture: Verdicts,
    /// Single checks, in the order in which they are shown.
    pub checks: Vec<Check>,
}

/// Verdicts on the back ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdicts {
    /// `--capture kernel`.
    pub kernel: Verdict,
    /// `--capture inline`.
    pub inline: Verdict,
    /// `--capture auto`.
    pub auto: Auto,
}

/// Verdict on a back end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "schema",
    schemars(extend(
        "if" = {"properties": {"works": {"const": true}}},
        "then" = {"properties": {"reason": false, "commands": {"maxItems": 0}}},
        "else" = {"required": ["reason"]},
    ))
)]
pub struct Verdict {
    /// Set if the back end works here, for this user.
    pub works: bool,
    /// Reason why it does not work; absent where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub reason: Option<String>,
    /// Commands of which each makes the back end work; empty where it works, or where no command helps.
    #[cfg_attr(feature = "schema", schemars(inner(length(min = 1))))]
    pub commands: Vec<String>,
}

/// Choice of `--capture auto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Auto {
    /// The back end, which may not work either.
    pub backend: CaptureBackend,
    /// Reason for the choice, as a clause.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub reason: String,
    /// Kind of the reason, such as `no_privileges`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["preferred", "no_privileges", "refused"])))]
    pub reason_kind: String,
}

/// Single check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Subject of the check.
    pub id: CheckId,
    /// Result of the check.
    pub status: CheckStatus,
    /// Back ends that depend on the subject; empty for a hint.
    #[cfg_attr(feature = "schema", schemars(extend("uniqueItems" = true)))]
    pub used_by: Vec<CaptureBackend>,
    /// Finding, as a clause.
    pub found: String,
    /// Command that repairs it; absent where no repair is needed, or no command helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub command: Option<String>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// It works.
    Works,
    /// It works in part.
    Limited,
    /// It does not work.
    Fails,
    /// It could not be tried.
    Untested,
    /// It is not used.
    Unused,
}

/// Subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckId {
    /// Version of the kernel.
    Kernel,
    /// Configuration of the kernel.
    Config,
    /// Type information of the kernel.
    Btf,
    /// Loading of the BPF programs.
    BpfPrograms,
    /// Ring buffer of records.
    RingBuffer,
    /// Tracepoints of threads.
    Tracepoints,
    /// Uprobes.
    Uprobes,
    /// Links of many uprobes.
    UprobeMulti,
    /// Hardware breakpoints through perf.
    PerfBreakpoints,
    /// Hardware breakpoints through ptrace.
    PtraceBreakpoints,
    /// Capabilities of this process.
    Capabilities,
    /// Limit of locked memory.
    Memlock,
    /// `kernel.perf_event_paranoid`.
    PerfEventParanoid,
    /// Kernel lockdown.
    Lockdown,
    /// Containers and namespaces.
    Container,
    /// `/proc`, and the PID namespace.
    Proc,
    /// `kernel.yama.ptrace_scope`.
    PtraceScope,
    /// ptrace of an own child.
    Ptrace,
    /// Memory and code of probes in an own child.
    InlineProbes,
    /// Order of the records of inline probes.
    Order,
    /// Debug files of the system's libraries.
    DebugFiles,
    /// Debug files from servers.
    Debuginfod,
}

impl CheckId {
    /// Returns its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "Linux",
            Self::Config => "configuration",
            Self::Btf => "BTF",
            Self::BpfPrograms => "BPF programs",
            Self::RingBuffer => "ring buffer",
            Self::Tracepoints => "tracepoints",
            Self::Uprobes => "uprobes",
            Self::UprobeMulti => "uprobe_multi",
            Self::PerfBreakpoints => "breakpoints (perf)",
            Self::PtraceBreakpoints => "breakpoints (ptrace)",
            Self::Capabilities => "capabilities",
            Self::Memlock => "locked memory",
            Self::PerfEventParanoid => "perf_event_paranoid",
            Self::Lockdown => "lockdown",
            Self::Container => "container",
            Self::Proc => "/proc",
            Self::PtraceScope => "yama.ptrace_scope",
            Self::Ptrace => "ptrace",
            Self::InlineProbes => "inline probes",
            Self::Order => "order of events",
            Self::DebugFiles => "debug files",
            Self::Debuginfod => "debuginfod",
        }
    }
}

impl Check {
    /// Creates a check that no back end depends on.
    #[must_use]
    pub fn new(id: CheckId, status: CheckStatus, found: impl Into<String>) -> Self {
        Self { id, status, used_by: Vec::new(), found: found.into(), command: None }
    }

    /// Adds the back ends that use it.
    #[must_use]
    pub fn used_by(mut self, backends: &[CaptureBackend]) -> Self {
        self.used_by = backends.to_vec();
        self
    }

    /// Adds the command that changes it.
    #[must_use]
    pub fn with_command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}
