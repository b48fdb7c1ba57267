//! `cargo xtask bench checker`: what Davida costs, beside a pass over the same events that only
//! touches the state of each event's object. The measuring itself is in `checker/benches/speed`.

use anyhow::Result;

use crate::{process, workspace};

/// Runs it; an argument is the number of rounds.
///
/// # Errors
/// When it cannot be built or run, or the argument is no number.
pub fn run(arguments: &[String]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["bench", "--quiet", "--package", "checker", "--bench", "speed", "--"]);
    process::run(command.args(arguments))
}
