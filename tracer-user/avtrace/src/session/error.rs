//! Reasons for which a run fails.

use std::{io, path::PathBuf};

use super::{
    attach_error::AttachError, capture_choice::ChoiceError, environment::EnvironmentError,
    memory::watchpoints::WatchError, program::ProgramError, record::RecordError,
    system_error::SystemError,
};
use capture::{
    backend::BackendError,
    in_process::InProcessError,
    kernel::{KernelError, privileges::remedy_to_gain},
};
use plan::{SelectError, focus::FocusError};

/// Reason for which a run failed. No process or probe is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error(transparent)]
    Select(#[from] SelectError),
    #[error(transparent)]
    Focus(#[from] FocusError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(transparent)]
    InProcess(#[from] InProcessError),
    /// The program would lose the privileges that its file gives.
    #[error(
        "the program's file is set-user-ID, set-group-ID or has capabilities, which it loses where a tracer is not root \
         with CAP_SYS_PTRACE: {}",
        remedy_to_gain()
    )]
    Privileged,
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("cannot start `{program}`: {error}{hint}")]
    Start { program: PathBuf, error: io::Error, hint: String },
    /// The program's memory map or files could not be read.
    #[error("cannot read the memory map of the program: {0}")]
    Symbols(#[from] symbolize::Error),
    /// A system call failed that always works.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl From<BackendError> for RunError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Kernel(error) => error.into(),
            BackendError::InProcess(error) => error.into(),
        }
    }
}

impl RunError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| SystemError { what, error }.into()
    }

    /// Returns the exit status of avtrace (`docs/semantics.md#exit-status`).
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Attach(AttachError::Panicked { .. }) => 1,
            Self::Program(error) => error.exit_status(),
            Self::Attach(_) | Self::Focus(_) => 3,
            Self::Watch(error) => error.exit_status(),
            Self::Select(_) => 2,
            Self::Choice(error) => error.exit_status(),
            _ => 1,
        }
    }
}
