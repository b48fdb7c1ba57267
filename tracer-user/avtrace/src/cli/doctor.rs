//! The command line of `doctor`.

use std::path::PathBuf;

use clap::Args;

use super::{ColorArg, PlainFormat};

const EXAMPLES: &str = "\
Examples:
  avtrace doctor                          what works for this user
  sudo avtrace doctor                     and for root
  avtrace doctor --format json | jq .capture

All is tried and nothing is left: BPF programs are loaded and fire on avtrace itself, a child is started under ptrace and \
killed before it runs. Lines are `ok`, `limited` (works in part), `no`, `untried` (could not be tried) or `unused` (not \
asked for). JSON \
is one document, `avtrace-doctor/1`.

Exit status: 0 when `--capture kernel` or `--capture inline` works, 1 when neither does or avtrace failed, 2 for bad usage.";

/// Options of `doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// The form of the diagnosis.
    #[arg(long, value_enum, default_value_t = PlainFormat::Text)]
    pub format: PlainFormat,

    /// Write the diagnosis to FILE, and not to standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Colour the diagnosis.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
}
