//! Programs that take avtrace's place, and are not traced.

use std::{ffi::OsString, io, os::unix::process::CommandExt as _, process::Command};

use super::Failure;
use linux::user;

/// Executes a program in place of avtrace, as the user who called sudo if there is one, after a line with the reason
/// unless that is empty. Returns the failure to do so; does not return otherwise.
pub(super) fn execute(program: &[OsString], as_root: bool, reason: &str) -> Failure {
    if !reason.is_empty() {
        eprintln!("avtrace: {}", report::cut_message(&report::printable(reason)));
    }
    let Some((name, arguments)) = program.split_first() else {
        return Failure::usage("there is no program");
    };
    let mut command = Command::new(name);
    command.args(arguments);
    let user = if as_root { None } else { user::sudo_user() };
    let error = match user.map(|user| user.become_for(&mut command)) {
        Some(Err(error)) => error,
        _ => command.exec(),
    };
    let name = name.display();
    Failure {
        message: format!("cannot run `{name}`: {error}; check its path and permissions"),
        // As in a shell.
        status: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
    }
}
