//! `cargo xtask test`: every test in stages, the first failing one ends it. Which tests need root,
//! and what a skipped one says, is known to the test suites alone.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::{self, Privilege};
use crate::{setup, tidy, workspace};

/// The package whose tests trace real programs and therefore need root.
const PRIVILEGED: &str = "tests";

/// Sets up, checks tidiness, builds avtrace, and runs `cargo test` with `arguments`.
///
/// Without packages among the arguments that is the whole workspace. When we are not root, the
/// suite that needs it runs under sudo where sudo asks for nothing; else its tests skip themselves
/// and say why. With `long`, the tests marked as ignored run as well, and the programs that these trace are installed.
///
/// # Errors
/// At the first stage that fails.
pub fn run(long: bool, mut arguments: Vec<String>) -> Result<()> {
    setup::run()?;
    if long {
        setup::traced_programs()?;
        include_ignored(&mut arguments);
    }
    tidy::run(tidy::Language::Check)?;
    // The end-to-end tests run the command itself, which `cargo test` alone does not build.
    process::run(workspace::cargo().args(["build", "--package", "avtrace"]))?;
    let avtrace = workspace::target_dir()?.join("debug/avtrace");
    for mut command in commands(&arguments, Privilege::detect(), &avtrace) {
        process::run(&mut command)?;
    }
    Ok(())
}

/// The test runs, in order.
fn commands(arguments: &[String], privilege: Privilege, avtrace: &Path) -> Vec<Command> {
    let test = |words: &[&str]| {
        let mut command = workspace::cargo();
        command.arg("test").args(words).args(arguments);
        command
    };
    if names_packages(arguments) {
        return vec![test(&[])];
    }
    if privilege != Privilege::Sudo {
        return vec![test(&["--workspace"])];
    }
    let mut privileged = test(&["--package", PRIVILEGED]);
    // sudo puts a PATH of its own in place, on which the tests would find another toolchain or none.
    let path = env::var("PATH").unwrap_or_default();
    privileged.env(runner_variable(), format!("sudo -n -E env PATH={path}"));
    // Built by root, it would leave files behind that we cannot replace.
    privileged.env("AVTRACE", avtrace);
    vec![test(&["--workspace", "--exclude", PRIVILEGED]), privileged]
}

/// Makes `cargo test` with these arguments run ignored tests as well.
fn include_ignored(arguments: &mut Vec<String>) {
    if !arguments.iter().any(|argument| argument == "--") {
        arguments.push("--".to_owned());
    }
    arguments.push("--include-ignored".to_owned());
}

/// Returns whether arguments of `cargo test` choose packages.
fn names_packages(arguments: &[String]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| {
        matches!(argument.as_str(), "--workspace" | "--all")
            || argument.starts_with("--package")
            || (argument.starts_with("-p") && !argument.starts_with("--"))
    })
}

/// The variable that names what cargo runs test programs with on this machine.
fn runner_variable() -> String {
    let (arch, os) = (env::consts::ARCH, env::consts::OS);
    format!("CARGO_TARGET_{arch}_UNKNOWN_{os}_GNU_RUNNER").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arguments: &[&str], privilege: Privilege) -> Vec<String> {
        let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
        let words = |command: &Command| {
            let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
            words.join(" ")
        };
        commands(&arguments, privilege, Path::new("/avtrace")).iter().map(words).collect()
    }

    #[test]
    fn root_and_nobody_run_everything_at_once() {
        assert_eq!(shown(&[], Privilege::Root), ["test --workspace"]);
        assert_eq!(shown(&["--release"], Privilege::None), ["test --workspace --release"]);
        assert_eq!(shown(&[], Privilege::SudoAsks), ["test --workspace"]);
    }

    #[test]
    fn sudo_is_for_the_privileged_suite_alone() {
        let commands = commands(&[], Privilege::Sudo, Path::new("/avtrace"));
        assert_eq!(
            shown(&[], Privilege::Sudo),
            ["test --workspace --exclude tests", "test --package tests"]
        );
        assert_eq!(commands[0].get_envs().count(), 0);
        let shown = process::display(&commands[1]);
        assert!(shown.contains("AVTRACE=/avtrace"), "{shown}");
        assert!(shown.contains("RUNNER='sudo -n -E env PATH="), "{shown}");
    }

    #[test]
    fn long_tests_are_asked_for_behind_the_arguments_for_cargo() {
        let with = |arguments: &[&str]| {
            let mut arguments = arguments.iter().map(|&word| word.to_owned()).collect();
            include_ignored(&mut arguments);
            arguments.join(" ")
        };
        assert_eq!(with(&[]), "-- --include-ignored");
        assert_eq!(with(&["-p", "tests"]), "-p tests -- --include-ignored");
        assert_eq!(with(&["--", "--nocapture"]), "-- --nocapture --include-ignored");
    }

    #[test]
    fn named_packages_replace_the_workspace() {
        assert_eq!(shown(&["-p", "checker"], Privilege::Root), ["test -p checker"]);
        assert_eq!(shown(&["-pchecker"], Privilege::Sudo), ["test -pchecker"]);
        assert_eq!(shown(&["--package=checker"], Privilege::Root), ["test --package=checker"]);
        assert_eq!(shown(&["--", "-p"], Privilege::Root), ["test --workspace -- -p"]);
    }
}
