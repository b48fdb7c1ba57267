//! `cargo xtask demo`: traces the bundled bank program, which is not atomic where it says so, and
//! its repaired version, and checks that avtrace distinguishes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{process, setup, workspace};

/// The exit status of avtrace when it has found a violation.
const FINDINGS: i32 = 66;

/// A program, and the outcome that is expected.
struct Program {
    name: &'static str,
    about: &'static str,
    exit_status: i32,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "bank",
        about: "`transfer` releases the account's lock half-way, and `audit` gets in between",
        exit_status: FINDINGS,
    },
    Program {
        name: "bank_fixed",
        about: "the same program, with the lock held throughout",
        exit_status: 0,
    },
];

/// Builds and traces both programs.
///
/// # Errors
/// When a program cannot be built, or an outcome is unexpected.
pub fn run() -> Result<()> {
    setup::run()?;
    // Without optimisation, as the tests use it: the programs are small, and it takes a third of the time to build.
    process::run(workspace::cargo().args(["build", "--package", "avtrace"]))?;
    let target_dir = workspace::target_dir()?;
    let avtrace = target_dir.join("debug/avtrace");
    let out_dir = target_dir.join("demo");
    fs::create_dir_all(&out_dir)
        .with_context(|| format!("failed to create {}", out_dir.display()))?;

    let mut wrong = Vec::new();
    for program in &PROGRAMS {
        println!("\n== {}: {}", program.name, program.about);
        let executable = out_dir.join(program.name);
        process::run(&mut compile(program.name, &executable))?;
        let mut command = Command::new(&avtrace);
        let status = process::status(command.current_dir(workspace::root()).arg(&executable))?;
        let as_expected = status.code() == Some(program.exit_status);
        println!("== {}: {}", program.name, outcome(status.code()));
        if !as_expected {
            wrong.push(format!("{} ended with {status}", program.name));
        }
    }
    if !wrong.is_empty() {
        let expected: Vec<_> =
            PROGRAMS.iter().map(|p| format!("{} {}", p.name, p.exit_status)).collect();
        bail!("{}; expected exit status: {}", wrong.join(", "), expected.join(", "));
    }
    println!("\nBoth outcomes are as they should be.");
    Ok(())
}

/// The command that compiles a bundled C program.
fn compile(name: &str, executable: &Path) -> Command {
    let mut command = Command::new("cc");
    command
        .current_dir(workspace::root())
        .args(["-g", "-O1", "-pthread", "-I", "markers/include", "-o"])
        .arg(executable)
        .arg(format!("tests/programs/c/{name}.c"));
    command
}

/// Outcome for an exit status of avtrace: both programs themselves end with 0.
fn outcome(code: Option<i32>) -> String {
    match code {
        Some(0) => "exit status 0, no violation".to_owned(),
        Some(FINDINGS) => format!("exit status {FINDINGS}, atomicity violated"),
        Some(other) => format!("exit status {other}, which is neither outcome"),
        None => "killed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_compiled_with_markers_and_lines() {
        let shown = process::display(&compile("bank", Path::new("/out/bank")));
        assert_eq!(
            shown,
            "cc -g -O1 -pthread -I markers/include -o /out/bank tests/programs/c/bank.c"
        );
    }

    #[test]
    fn outcomes_are_told_apart() {
        assert!(outcome(Some(66)).contains("violated"));
        assert!(outcome(Some(0)).contains("no violation"));
        assert!(outcome(Some(1)).contains("neither"));
        assert_eq!(outcome(None), "killed");
    }
}
