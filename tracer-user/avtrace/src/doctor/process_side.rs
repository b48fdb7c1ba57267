//! Checks of tracing a process: a program is started as either back end starts it, held at its entry point, and killed
//! there.

use std::path::PathBuf;

use inline::{clock::ClockChoice, layout::Mode};

use super::model::{
    Check, CheckId,
    CheckStatus::{Fails, Limited, Untested, Works},
};
use crate::session::program;
use capture::in_process::{
    Followed, InProcessError, StartError, Tracer, ring_surroundings::choose_clock,
};
use linux::{
    tracee::{self, Launch, Start},
    user,
};
use report::CaptureBackend::{Inline, Kernel};

/// Reason why a program cannot be traced in one of both ways.
#[derive(Debug)]
pub(super) enum ChildError {
    /// It cannot be started and held.
    Ptrace(String),
    /// It cannot have probes in it.
    Probes(InProcessError),
}

impl ChildError {
    pub(super) fn message(&self) -> String {
        match self {
            Self::Ptrace(message) => message.clone(),
            Self::Probes(error) => error.to_string(),
        }
    }
}

/// Failure of a program that has ended too early.
const ENDED: &str = "the program ended before its entry point";

/// Returns the start of a program that need not run: `true`, or this executable.
fn launch() -> Result<Launch, ChildError> {
    let found = program::find("true".as_ref()).ok();
    let program = found.map_or_else(std::env::current_exe, Ok::<PathBuf, _>);
    let program = program.map_err(|error| ChildError::Ptrace(error.to_string()))?;
    let arg0 = program.clone().into_os_string();
    Ok(Launch {
        program,
        arg0,
        arguments: vec!["--version".into()],
        user: user::sudo_user(),
        streams: None,
    })
}

/// Holds a program as the kernel's back end does.
pub(super) fn hold() -> Result<(), ChildError> {
    let failed = |error: std::io::Error| ChildError::Ptrace(error.to_string());
    match tracee::launch(launch()?).map_err(failed)? {
        Start::Held(_) => Ok(()),
        Start::Ended { .. } => Err(ChildError::Ptrace(ENDED.to_owned())),
    }
}

/// Holds a program as inline probes do, and shares memory with it.
pub(super) fn share() -> Result<(), ChildError> {
    let followed =
        Tracer::start(launch()?, Mode::Lossless, false, true).map_err(|error| match error {
            StartError::Start(error) => ChildError::Ptrace(error.to_string()),
            StartError::InProcess(error) => ChildError::Probes(error),
        })?;
    match followed {
        Followed::Held { mut tracer, .. } => {
            let shared = tracer.share();
            tracer.abandon();
            shared.map_err(ChildError::Probes)
        }
        Followed::Ended { .. } => Err(ChildError::Ptrace(ENDED.to_owned())),
    }
}

/// Checks ptrace, by how both back ends have held a program.
pub(super) fn ptrace(held: &Result<(), ChildError>, shared: &Result<(), ChildError>) -> Check {
    let error = [held, shared].into_iter().find_map(|result| match result {
        Err(ChildError::Ptrace(message)) => Some(message.clone()),
        _ => None,
    });
    let check = match error {
        Some(error) => Check::new(CheckId::Ptrace, Fails, error),
        None => Check::new(CheckId::Ptrace, Works, "a child was held at its entry point"),
    };
    check.used_by(&[Kernel, Inline])
}

/// Checks the memory of inline probes.
pub(super) fn inline_probes(shared: &Result<(), ChildError>) -> Check {
    let check = match shared {
        Ok(()) => Check::new(CheckId::InlineProbes, Works, "a child has mapped their memory"),
        Err(ChildError::Probes(error)) => {
            Check::new(CheckId::InlineProbes, Fails, error.to_string())
        }
        Err(ChildError::Ptrace(_)) => untested(CheckId::InlineProbes, "ptrace does not work"),
    };
    check.used_by(&[Inline])
}

/// Returns a check that could not be made.
pub(super) fn untested(id: CheckId, reason: &str) -> Check {
    Check::new(id, Untested, reason)
}

/// Checks the clock that orders the records of inline probes.
pub(super) fn order() -> Check {
    judge_order(&choose_clock()).used_by(&[Inline])
}

fn judge_order(choice: &ClockChoice) -> Check {
    let status = if choice.doubt().is_none() { Works } else { Limited };
    Check::new(CheckId::Order, status, choice.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_doubt_about_the_clock_is_a_limit() {
        assert_eq!(judge_order(&ClockChoice::TimeStampCounter).status, Works);
        let check = judge_order(&ClockChoice::OtherSource { name: "hpet".to_owned() });
        assert_eq!(check.status, Limited);
        assert!(check.found.contains("clock source is hpet"), "{check:?}");
    }

    #[test]
    fn failures_are_those_of_ptrace_or_of_probes() {
        let refused = || Err(ChildError::Ptrace("it cannot be traced".to_owned()));
        let no_memory = || Err(ChildError::Probes(InProcessError::NoMemory));
        let of = |held, shared| (ptrace(&held, &shared).status, inline_probes(&shared).status);
        assert_eq!(of(Ok(()), Ok(())), (Works, Works));
        assert_eq!(of(Ok(()), no_memory()), (Works, Fails));

        assert_eq!(of(refused(), refused()), (Fails, Untested));
        assert_eq!(of(refused(), Ok(())), (Fails, Works));
    }
}
