//! The `avtrace` command: parses the command line, does what it says, exits.

use std::process::ExitCode;

use avtrace::{
    cli::Cli,
    commands::{self, End},
    verbosity,
};
use linux::{
    memory::{self, Allocator},
    own_end,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    memory::adapt_to_limit();
    let cli = Cli::parse_in_order();
    verbosity::start(cli.verbose, cli.log_format);
    let end = commands::run(cli).unwrap_or_else(|failure| {
        commands::complain(&failure.message);
        End::Status(failure.status)
    });
    match end {
        End::Status(status) => ExitCode::from(status),
        End::Killed(signal) => own_end::die_by(signal),
    }
}
