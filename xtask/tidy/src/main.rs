//! `cargo xtask tidy`: the conventions that no compiler checks, and measures of the tree. This file has the command
//! line only.

mod conventions;
mod measure;
mod syntax;
mod text;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Check the conventions that no compiler checks
#[derive(Parser)]
#[command(name = "cargo xtask tidy", bin_name = "cargo xtask tidy")]
struct Cli {
    /// Print the measures of the tree, or of another one whose root is given
    #[arg(long, value_name = "ROOT", num_args = 0..=1, conflicts_with = "update")]
    measure: Option<Option<PathBuf>>,
    /// Lower the lists in `xtask/tidy/src/conventions/` to the present numbers; refuses to raise an entry
    #[arg(long, alias = "update-language")]
    update: bool,
    /// Write `language.txt` anew, higher entries included
    #[arg(long, requires = "update")]
    force: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match (cli.measure, cli.update, cli.force) {
        (Some(root), ..) => measure::run(root.as_deref().unwrap_or(workspace::root())),
        (None, false, _) => conventions::run(conventions::Lists::Check),
        (None, true, false) => conventions::run(conventions::Lists::Update),
        (None, true, true) => conventions::run(conventions::Lists::Replace),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
