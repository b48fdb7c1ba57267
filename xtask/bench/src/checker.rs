//! `cargo xtask bench checker`: the cost of Davida, beside that of a pass over the same events that only
//! loads the state of each event's object. The measuring itself is in `checker/benches/speed`.

use anyhow::Result;

use crate::{process, workspace};

/// Runs it: under ten minutes, or half a minute with `--quick`.
///
/// # Errors
/// When it cannot be built or run, or when an argument is unknown.
pub fn run(arguments: &[String]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["bench", "--quiet", "--package", "avtrace-checker", "--bench", "speed", "--"]);
    process::run(command.args(arguments))
}
