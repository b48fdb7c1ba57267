//! Reasons for the back end of capture.

/// Reason for a back end. [`Display`](std::fmt::Display) is a clause, [`kind`](Self::kind) its identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CaptureReason {
    /// `--capture` names it.
    #[error("`--capture` asks for it")]
    Requested,
    /// Both are possible.
    #[error("`--capture auto` prefers it")]
    Preferred,
    /// This process may not load BPF programs.
    #[error("avtrace has no privileges for programs in the kernel")]
    NoPrivileges,
    /// An option needs it.
    #[error("`{option}` needs it")]
    Option { option: &'static str },
    /// The program can have no probes in it.
    #[error("{refusal}")]
    Refused {
        /// Reason why, as a clause.
        refusal: String,
    },
}

impl CaptureReason {
    /// Returns the identifier of its kind, in snake case. Reports in JSON have it, and it does not change.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}
