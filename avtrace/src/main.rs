//! The `avtrace` command: parses the command line, does what it says, exits.

use std::process::ExitCode;

use avtrace::{
    cli::Cli,
    commands,
    sys::memory::{self, Allocator},
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    memory::adapt_to_limit();
    let status = commands::run(Cli::parse_in_order()).unwrap_or_else(|failure| {
        commands::complain(&failure.message);
        failure.status
    });
    ExitCode::from(status)
}
