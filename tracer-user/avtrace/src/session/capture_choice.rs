//! Choice of the back end of capture: by what the user asks for, what each back end cannot do, and what this process
//! may do.

use super::{
    capture_reason::CaptureReason,
    options::{CaptureBackend, RunOptions, WhenFull},
};
use capture::{
    in_process::InProcessError,
    kernel::{KernelError, privileges::setcap_command},
};
use plan::memory::options::Level;

/// Work for which a back end is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A program is started, or would be.
    Start,
    /// A process that runs is attached to.
    Attach,
}

impl Purpose {
    /// Returns whether `auto` takes probes in the process where both back ends are possible: they cost a tenth. A
    /// process that somebody depends on is left as it is, if that costs only time.
    const fn prefers_inline(self) -> bool {
        matches!(self, Self::Start)
    }
}

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
const NEED_INLINE: [Needs; 1] =
    [("--lossless", |options| options.when_full == Some(WhenFull::Wait))];

/// Chooses the back end for a purpose. `may_load` says that this process may load BPF programs.
///
/// # Errors
///
/// When no back end can do all that is asked for.
pub fn choose(
    purpose: Purpose,
    options: &RunOptions,
    may_load: bool,
) -> Result<Choice, ChoiceError> {
    choose_preferring(purpose.prefers_inline(), options, may_load)
}

fn choose_preferring(
    prefers_inline: bool,
    options: &RunOptions,
    may_load: bool,
) -> Result<Choice, ChoiceError> {
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
        (CaptureBackend::Auto, None, None) => return Ok(automatic(prefers_inline, may_load)),
    };
    Ok(Choice { is_inline, reason, has_alternative })
}

/// Returns what `auto` chooses for a purpose where no option needs either back end.
#[must_use]
pub fn without_needs(purpose: Purpose, may_load: bool) -> Choice {
    automatic(purpose.prefers_inline(), may_load)
}

const fn automatic(prefers_inline: bool, may_load: bool) -> Choice {
    if may_load {
        let reason = CaptureReason::Preferred;
        return Choice { is_inline: prefers_inline, reason, has_alternative: true };
    }
    Choice { is_inline: true, reason: CaptureReason::NoPrivileges, has_alternative: false }
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

    /// Returns the choice that remains where the kernel side has failed before the program started.
    #[must_use]
    pub fn without_kernel(&self, error: &KernelError) -> Option<Self> {
        let is_general = matches!(
            error,
            KernelError::NotPermitted | KernelError::Btf(_) | KernelError::Refused(_)
        );
        let reason = CaptureReason::NoKernel { error: error.to_string() };
        (self.has_alternative && !self.is_inline && is_general).then_some(Self {
            is_inline: true,
            reason,
            has_alternative: false,
        })
    }

    /// Returns the choice that remains where the program has refused probes in it before it started.
    #[must_use]
    pub fn without_inline(&self, error: &InProcessError) -> Option<Self> {
        let refusal = error.refusal()?;
        let reason = CaptureReason::Refused { refusal };
        (self.has_alternative && self.is_inline).then_some(Self {
            is_inline: false,
            reason,
            has_alternative: false,
        })
    }
}

#[cfg(test)]
mod tests;
