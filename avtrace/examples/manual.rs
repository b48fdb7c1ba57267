//! Writes the manual pages and the shell completions of `avtrace` to a directory: `man1/` and `completions/`. `cargo
//! xtask man` and `cargo xtask dist` run it; the command itself needs neither.

use std::{env, error::Error, fs, path::PathBuf};

use avtrace::cli::Cli;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};

/// Shells that get a file.
const SHELLS: [Shell; 4] = [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish];

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::args_os().nth(1).ok_or("usage: manual DIRECTORY")?;
    let directory = PathBuf::from(directory);
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &pages)?;
    for shell in SHELLS {
        generate_to(shell, &mut Cli::command(), "avtrace", &completions)?;
    }
    Ok(())
}
