//! The `avtrace` command: parses the command line, does what it says, exits.

use std::process::ExitCode;

use avtrace::{cli::Cli, commands, verbosity};
use linux::memory::{self, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    memory::adapt_to_limit();
    let cli = Cli::parse_in_order();
    verbosity::start(cli.verbose, cli.log_format);
    let status = commands::run(cli).unwrap_or_else(|failure| {
        commands::complain(&failure.message);
        failure.status
    });
    ExitCode::from(status)
}
