//! Choice of the back end of capture: by what the user asks for, what each back end cannot do, and what this process
//! may do.

use super::{
    attach_error::AttachError,
    capture_reason::CaptureReason,
    options::{CaptureBackend, RunOptions, WhenFull},
};
use capture::{in_process::InProcessError, kernel::privileges::setcap_command};
use plan::memory::options::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Probes in the process, and not programs in the kernel.
    pub is_inline: bool,
    pub reason: CaptureReason,
    /// Set if the other back end may do instead, should this one find that it is not possible.
    pub has_alternative: bool,
}

/// Reason why there is no back end for what is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// An option that only the kernel side can do, and probes in the process are wanted.
    #[error("`{option}` is not possible with `--capture inline`: use `--capture kernel`, as root")]
    KernelOnly { option: &'static str },
    /// An option that only the kernel side can do, and no permission for it.
    #[error(
        "`{option}` needs programs in the kernel: run avtrace as root (`sudo avtrace …`), or with the capabilities \
         CAP_BPF and CAP_PERFMON (`{}`), or leave the option out; `avtrace doctor` says more",
        setcap_command()
    )]
    Unprivileged { option: &'static str },
    /// An option that only probes in the process can do, and the kernel side is wanted.
    #[error(
        "`{option}` is not possible with {other}: use `--capture inline`, or leave one of them out"
    )]
    InlineOnly {
        option: &'static str,
        /// Another option, as the user writes it.
        other: String,
    },
}

impl ChoiceError {
    /// Returns the exit status: bad usage, or missing privileges.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::KernelOnly { .. } | Self::InlineOnly { .. } => 2,
            Self::Unprivileged { .. } => 1,
        }
    }
}

/// Options that a back end cannot do: what the user writes, and whether it is set.
type Needs = (&'static str, fn(&RunOptions) -> bool);

/// Options that probes in the process cannot do.
const NEED_KERNEL: [Needs; 3] = [
    ("--accesses watch", |options| options.accesses.level == Level::Watch),
    ("--perf-probes", |options| options.perf_probes),
    ("--debug-bpf", |options| options.debug_bpf),
];

/// Options that the kernel side cannot do.
const NEED_INLINE: [Needs; 2] = [
    ("--lossless", |options| options.when_full == Some(WhenFull::Wait)),
    ("--budget", |options| options.budget.is_some_and(|budget| budget.is_asked)),
];

/// Chooses the back end. `may_load` says that this process may load BPF programs.
///
/// # Errors
///
/// When no back end can do all that is asked for.
pub fn choose(options: &RunOptions, may_load: bool) -> Result<Choice, ChoiceError> {
    let first = |table: &[Needs]| {
        table.iter().find(|(_, is_set)| is_set(options)).map(|(option, _)| *option)
    };
    let (needs_kernel, needs_inline) = (first(&NEED_KERNEL), first(&NEED_INLINE));
    let other = |option: &str| format!("`{option}`");
    let (is_inline, reason, has_alternative) = match (options.capture, needs_kernel, needs_inline) {
        (CaptureBackend::Inline, Some(option), _) => {
            return Err(ChoiceError::KernelOnly { option });
        }
        (CaptureBackend::Inline, ..) => (true, CaptureReason::Requested, false),
        (CaptureBackend::Kernel, _, Some(option)) => {
            let other = other("--capture kernel");
            return Err(ChoiceError::InlineOnly { option, other });
        }
        (CaptureBackend::Kernel, ..) => (false, CaptureReason::Requested, false),
        (CaptureBackend::Auto, Some(kernel), Some(option)) => {
            return Err(ChoiceError::InlineOnly { option, other: other(kernel) });
        }
        (CaptureBackend::Auto, Some(option), None) if may_load => {
            (false, CaptureReason::Option { option }, false)
        }
        (CaptureBackend::Auto, Some(option), None) => {
            return Err(ChoiceError::Unprivileged { option });
        }
        (CaptureBackend::Auto, None, Some(option)) => {
            (true, CaptureReason::Option { option }, false)
        }
        (CaptureBackend::Auto, None, None) => return Ok(without_needs(may_load)),
    };
    Ok(Choice { is_inline, reason, has_alternative })
}

/// Returns what `auto` chooses where no option needs either back end: probes in the process, which cost a tenth.
#[must_use]
pub const fn without_needs(may_load: bool) -> Choice {
    let reason = if may_load { CaptureReason::Preferred } else { CaptureReason::NoPrivileges };
    Choice { is_inline: true, reason, has_alternative: may_load }
}

impl Choice {
    /// Returns the options of a run with this back end.
    #[must_use]
    pub fn apply(&self, options: &RunOptions) -> RunOptions {
        let capture = if self.is_inline { CaptureBackend::Inline } else { CaptureBackend::Kernel };
        RunOptions { capture, capture_reason: self.reason.clone(), ..options.clone() }
    }

    pub(super) fn log(&self) {
        let back_end = if self.is_inline { "inline" } else { "kernel" };
        tracing::info!(back_end, reason = %self.reason, "capture is chosen");
    }

    /// Returns the choice that remains where the program refuses probes in it: it has not started, or has its own code
    /// again.
    #[must_use]
    pub fn without_inline(&self, error: &InProcessError) -> Option<Self> {
        self.instead(error.refusal()?)
    }

    /// Returns the choice that remains where a process that runs already refuses probes in it, or cannot be traced by
    /// ptrace.
    #[must_use]
    pub fn without_attaching(&self, error: &AttachError) -> Option<Self> {
        match error {
            AttachError::Refused { error, .. } => self.without_inline(error),
            AttachError::Untraceable { reason, .. } => {
                self.instead(format!("it cannot be traced with ptrace: {reason}"))
            }
            _ => None,
        }
    }

    fn instead(&self, refusal: String) -> Option<Self> {
        let reason = CaptureReason::Refused { refusal };
        self.has_alternative.then_some(Self { is_inline: false, reason, has_alternative: false })
    }
}

#[cfg(test)]
mod tests;
