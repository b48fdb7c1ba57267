//! The back end by which runs capture events that do not choose one, and as whom, as the environment says.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use crate::machine;

/// Returns whether runs that do not choose a back end capture events in the process: `AVTRACE_CAPTURE` is `inline`.
/// Some places have no room for an inline probe then.
#[must_use]
pub fn captures_inline() -> bool {
    back_end().is_some_and(|capture| capture == "inline")
}

/// Returns whether runs that capture events in the process, and so need no privileges, are those of an ordinary user:
/// `AVTRACE_AS_NOBODY` is set. The test itself runs as root, and all files on the way are readable for anybody.
#[must_use]
pub fn captures_as_nobody() -> bool {
    captures_inline() && std::env::var_os("AVTRACE_AS_NOBODY").is_some()
}

/// Options by which commands that are no [`Avtrace`](crate::Avtrace) capture events as runs do that do not choose.
#[must_use]
pub fn options() -> Vec<String> {
    back_end().into_iter().flat_map(|capture| ["--capture".to_owned(), capture]).collect()
}

/// Returns the back end of runs that do not choose: the kernel's where that is permitted, unless `AVTRACE_CAPTURE` says
/// otherwise, so that a suite tests one of them whatever avtrace prefers.
pub(crate) fn back_end() -> Option<String> {
    let default = || machine::can_trace().ok().map(|()| "kernel".to_owned());
    std::env::var("AVTRACE_CAPTURE").ok().or_else(default)
}

/// A temporary folder, which traced programs can write to, as whomever they run.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    if captures_as_nobody() {
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("its mode");
    }
    folder
}
