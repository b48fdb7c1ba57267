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
    #[arg(long, value_name = "ROOT", num_args = 0..=1, conflicts_with = "update_language")]
    measure: Option<Option<PathBuf>>,
    /// Lower the entries of `xtask/tidy/src/conventions/language.txt` to what is there; refuses to raise any
    #[arg(long)]
    update_language: bool,
    /// Write that list anew, higher entries included
    #[arg(long, requires = "update_language")]
    force: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match (cli.measure, cli.update_language, cli.force) {
        (Some(root), ..) => measure::run(root.as_deref().unwrap_or(workspace::root())),
        (None, false, _) => conventions::run(conventions::Language::Check),
        (None, true, false) => conventions::run(conventions::Language::Update),
        (None, true, true) => conventions::run(conventions::Language::Replace),
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
