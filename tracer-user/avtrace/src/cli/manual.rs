//! The command line of `man` and `completions`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

const MAN: &str = "\
Examples:
  avtrace man | man -l -                  read the manual page
  avtrace man hunt | man -l -             that of a command
  avtrace man --dir /usr/local/share/man/man1

Exit status: 0, 1 when avtrace failed, 2 for bad usage.";

/// Options of `man`.
#[derive(Args, Debug)]
#[command(after_help = MAN)]
pub struct ManArgs {
    /// Command that the page is about; by default avtrace as a whole.
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,

    /// Write all pages to this folder, which is made if it is missing. SOURCE_DATE_EPOCH is their date, or else today.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

const COMPLETIONS: &str = "\
Examples:
  avtrace completions bash > ~/.local/share/bash-completion/completions/avtrace
  avtrace completions zsh > ~/.zfunc/_avtrace
  avtrace completions fish > ~/.config/fish/completions/avtrace.fish

Exit status: 0, 1 when avtrace failed, 2 for bad usage.";

/// Options of `completions`.
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS)]
pub struct CompletionsArgs {
    /// Shell to write them for: each reads another form.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}
