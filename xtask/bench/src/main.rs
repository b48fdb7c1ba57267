//! `cargo xtask bench NAME`: the list of benchmarks. Each benchmark is a file here and one line in the list.

mod attach;
mod capture;
mod checker;
mod hunt;
mod lock_pairs;
mod matrix;
mod triage;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use xtask::{kernels, process, setup, workspace};

/// A benchmark.
pub struct Bench {
    /// Name on the command line.
    pub name: &'static str,
    /// Subject of the measurement, in one line.
    pub about: &'static str,
    /// Runs it with the arguments after its name, and installs the tools it needs. Prints the results, with units.
    pub run: fn(&[String]) -> Result<()>,
}

/// Every benchmark.
const BENCHES: &[Bench] = &[
    Bench {
        name: "attach",
        about: "throughput of memcached before, while and after avtrace is attached to it",
        run: attach::run,
    },
    Bench {
        name: "capture",
        about: "slowdown and findings of avtrace, Helgrind, DRD, ThreadSanitizer and bpftrace, side by side",
        run: capture::run,
    },
    Bench {
        name: "checker",
        about: "the cost of Davida, beside a pass that only touches the state of each event's object",
        run: checker::run,
    },
    Bench {
        name: "hunt",
        about: "runs until a bug shows that nothing forces: with `avtrace hunt`, plain, under load, with random sleeps",
        run: hunt::run,
    },
    Bench {
        name: "lock-pairs",
        about: "the cost of recording lock operations, beside bpftrace counting the same calls",
        run: lock_pairs::run,
    },
    Bench {
        name: "matrix",
        about: "generated programs and their correct twins: named first when they did harm, quiet when they are correct",
        run: matrix::run,
    },
    Bench {
        name: "triage",
        about: "known bugs that the default run finds, and its reports in correct programs",
        run: triage::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the benchmark that the first argument names, with the others, or lists all benchmarks.
///
/// # Errors
/// When no benchmark has that name, or when it fails.
fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [name, arguments @ ..] if name != "--help" && name != "-h" => {
            (find(BENCHES, name)?.run)(arguments)
        }
        _ => {
            print!("{}", list(BENCHES));
            Ok(())
        }
    }
}

/// The benchmark called `name`.
fn find<'a>(benches: &'a [Bench], name: &str) -> Result<&'a Bench> {
    match benches.iter().find(|bench| bench.name == name) {
        Some(bench) => Ok(bench),
        None => {
            let names: Vec<_> = benches.iter().map(|bench| bench.name).collect();
            bail!("no benchmark {name}; there are: {}", names.join(", "))
        }
    }
}

/// The list of benchmarks, one a line.
fn list(benches: &[Bench]) -> String {
    let width = benches.iter().map(|bench| bench.name.len()).max().unwrap_or(0);
    benches.iter().map(|bench| format!("{:width$}  {}\n", bench.name, bench.about)).collect()
}

/// Returns the executable to measure: `named`, or else the release build of this tree, which this function builds.
///
/// # Errors
/// When it cannot be built.
fn avtrace(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    process::run(workspace::cargo().args(["build", "--release", "--package", "avtrace"]))?;
    Ok(workspace::target_dir()?.join("release/avtrace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[Bench] = &[
        Bench { name: "short", about: "Says yes", run: |_| Ok(()) },
        Bench { name: "longer-name", about: "Says no", run: |_| bail!("no") },
    ];

    #[test]
    fn a_name_finds_its_benchmark() {
        assert!((find(SAMPLES, "short").unwrap().run)(&[]).is_ok());
        assert!((find(SAMPLES, "longer-name").unwrap().run)(&[]).is_err());
    }

    #[test]
    fn a_wrong_name_is_told_the_right_ones() {
        let error = find(SAMPLES, "shrot").err().unwrap().to_string();
        assert_eq!(error, "no benchmark shrot; there are: short, longer-name");
    }

    #[test]
    fn the_list_is_aligned() {
        assert_eq!(list(SAMPLES), "short        Says yes\nlonger-name  Says no\n");
    }
}
