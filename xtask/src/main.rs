//! The project's tasks as `cargo xtask TASK`: the command line only, each task has a file of its
//! own.

mod bpf;
mod demo;
mod dist;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{kernels, process, setup, workspace};

/// avtrace's project tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find or install the BPF toolchain and the C and C++ compilers for the test programs
    Setup,
    /// Trace the bundled bank program and its repaired version, and show both outcomes
    Demo,
    /// Set up, check tidiness, build avtrace and run every test, the privileged ones as root
    Test {
        /// Also run the tests that take long or need programs that are installed for them, and ten times as many cases
        /// of random tests
        #[arg(long)]
        long: bool,
        /// Seed of the random tests [default: always the same, with --long another one each time]
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Arguments for `cargo test`, as in `-p avtrace-checker` or `-- --nocapture`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        arguments: Vec<String>,
    },
    /// Make an archive and a Debian package with a static executable, below target/dist
    Dist {
        /// Try both in a fresh Debian system from debootstrap; takes minutes, as root
        #[arg(long)]
        check: bool,
    },
    /// Compile the BPF programs for machines that have no toolchain for them, into the sources of capture
    Bpf {
        /// Compare the existing object with a new one instead of writing it
        #[arg(long)]
        check: bool,
    },
    /// Write the manual pages and the shell completions to target/manual
    Man,
    /// Run a benchmark; without a name, list them
    #[command(disable_help_flag = true)]
    Bench {
        /// Name of the benchmark, and arguments for it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        arguments: Vec<String>,
    },
    /// Boot Debian's kernels in QEMU, try avtrace in each, and print a table
    Kernels {
        /// Kernel to try instead: a package (`.deb`) or an image; repeatable
        #[arg(long, value_name = "FILE")]
        kernel: Vec<PathBuf>,
        /// Emulate the processor, also where KVM works
        #[arg(long)]
        emulate: bool,
        /// Run only checks with this word in their names; repeatable
        #[arg(long, value_name = "WORD")]
        only: Vec<String>,
    },
    /// Run the suite of `kernels`, as the first process of a machine
    #[command(name = kernels::machine::GUEST_TASK, hide = true)]
    KernelsGuest {
        /// Words of the checks to run
        only: Vec<String>,
    },
    /// Check the conventions that no compiler checks, or measure the tree; `--help` lists the options
    #[command(disable_help_flag = true)]
    Tidy {
        /// Arguments of the program that does it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup => setup::run().and_then(|_| setup::examples::tools()),
        Task::Demo => demo::run(),
        Task::Test { long, seed, arguments } => test::run(long, seed, arguments),
        Task::Dist { check } => dist::run(check),
        Task::Bpf { check } => bpf::run(check),
        Task::Man => dist::manual().map(drop),
        Task::Bench { arguments } => process::run_package("avtrace-bench", &arguments),
        Task::Kernels { kernel, emulate, only } => kernels::run(&kernel, emulate, &only),
        Task::KernelsGuest { only } => kernels::guest::run(&only),
        Task::Tidy { arguments } => process::run_package("avtrace-tidy", &arguments),
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

    #[test]
    fn arguments_after_test_are_passed_on() {
        let cli = Cli::try_parse_from(["xtask", "test", "-p", "checker", "--", "--nocapture"]);
        let Task::Test { long, arguments, .. } = cli.ok().unwrap().task else {
            panic!("another task")
        };
        assert_eq!(arguments, ["-p", "checker", "--", "--nocapture"]);
        assert!(!long);
        let cli = Cli::try_parse_from(["xtask", "test", "--long", "--seed", "3", "-p", "tests"]);
        let Task::Test { long, seed, arguments } = cli.ok().unwrap().task else {
            panic!("another task")
        };
        assert_eq!((long, seed), (true, Some(3)));
        assert_eq!(arguments, ["-p", "tests"]);
    }
}
