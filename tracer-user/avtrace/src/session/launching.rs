//! Start of the program of a run.

use std::{io, path::Path};

use abi::PlanNumber;

use super::{error::RunError, options::RunOptions, program_id::ProgramId};
use linux::{
    ids::NsPid,
    tracee::{self, Launch, Start},
    user,
};

/// Returns the user that the program runs as, if that is not root.
pub(super) fn user(options: &RunOptions) -> Option<user::Identity> {
    if options.as_root { None } else { user::sudo_user() }
}

/// Returns how the program is started.
pub(super) fn launch(options: &RunOptions, program: &Path) -> Launch {
    Launch {
        program: program.to_owned(),
        arg0: options.command.first().cloned().unwrap_or_default(),
        arguments: options.command.get(1..).unwrap_or_default().to_vec(),
        user: user(options),
        streams: None,
    }
}

/// Starts the program and holds it at its entry point.
pub(super) fn hold(options: &RunOptions, program: &Path) -> io::Result<Start> {
    tracee::launch(launch(options, program))
}

pub(super) fn start_error(options: &RunOptions, program: &Path, error: io::Error) -> RunError {
    let hint = match user(options) {
        Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!(" for user {}, id called sudo (`--as-root` runs it as root)", user.name())
        }
        _ => String::new(),
    };
    RunError::Start { program: program.to_owned(), error, hint }
}

/// Returns the identity of the program that is started first.
pub(super) fn first_program(options: &RunOptions, pid: u32, ns_pid: NsPid) -> ProgramId {
    let argv = options.command.iter().map(|argument| argument.to_string_lossy().into_owned());
    ProgramId {
        pid,
        ns_pid,
        parent: None,
        exec_generation: 1,
        argv: argv.collect(),
        plan: PlanNumber(0),
    }
}
