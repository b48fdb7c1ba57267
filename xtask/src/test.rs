//! `cargo xtask test`: all tests in stages, up to the first failure. The suites themselves know which tests need root,
//! and print why they skip a test.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::{self, Privilege};
use crate::{setup, workspace};

/// The package whose tests trace real programs and therefore need root.
const PRIVILEGED: &str = "tests";

/// Sets up, checks tidiness, builds avtrace, and runs `cargo test` with `arguments`.
///
/// Without packages among the arguments that is the whole workspace. When we are not root, the
/// suite that needs it runs under sudo where sudo asks no password; else its tests skip themselves
/// and say why. With `long`, the tests marked as ignored run as well, and the programs that these trace are installed;
/// then the end-to-end tests run twice more, with inline probes: as root, and traced by an ordinary user.
///
/// Random tests have the cases of `seed`: without one the same each time, and with `long` others in each run, ten times
/// as many.
///
/// # Errors
/// At the first stage that fails.
pub fn run(long: bool, seed: Option<u64>, mut arguments: Vec<String>) -> Result<()> {
    let random = Random::new(long, seed);
    setup::run()?;
    setup::examples::tools()?;
    let once = arguments.clone();
    if long {
        setup::traced_programs()?;
        setup::examples::large_tools()?;
        include_ignored(&mut arguments);
    }
    process::run_package("avtrace-tidy", &[])?;
    let avtrace = workspace::target_dir()?.join("debug/avtrace");
    if names_packages(&arguments) {
        // The end-to-end tests run the command itself, which cargo builds for tests of its own package alone.
        process::run(workspace::cargo().args(["build", "--package", "avtrace"]))?;
    }
    let privilege = Privilege::detect();
    for mut command in commands(&arguments, privilege, &avtrace) {
        if long && env::var_os(RUNS).is_none() {
            command.env(RUNS, LONG_RUNS);
        }
        random.apply(&mut command);
        process::run(&mut command)?;
    }
    if long && !names_packages(&arguments) {
        for mut command in inline_commands(&once, privilege, &avtrace) {
            process::run(&mut command)?;
        }
    }
    Ok(())
}

/// Variable that says how often tests run programs that must have the same outcome each time, at least.
const RUNS: &str = "AVTRACE_RUNS";
const LONG_RUNS: &str = "3";

/// Features that are no default and have tests: sending to a collector, and the comparison of the schemas in `docs/`
/// with the types. The end-to-end tests run the same build, since another choice of features compiles most of the
/// workspace again.
const FEATURES: [&str; 2] = ["--features", "avtrace/otel,avtrace/schema"];

/// Seed of random tests in `.cargo/config.toml`, for `cargo test` too.
const SEED: u64 = 1;

/// Number of cases of a random test, proptest's default. Tests that state a number derive it from this one.
const CASES: u32 = 256;

/// Cases of random tests.
struct Random {
    seed: u64,
    cases: u32,
}

impl Random {
    fn new(long: bool, seed: Option<u64>) -> Self {
        let by_default = if long { RandomState::new().build_hasher().finish() } else { SEED };
        let cases = if long { 10 * CASES } else { CASES };
        Self { seed: seed.unwrap_or(by_default), cases }
    }

    /// Sets the variables that proptest reads. They are shown with the command.
    fn apply(&self, command: &mut Command) {
        command.env("PROPTEST_RNG_SEED", self.seed.to_string());
        command.env("PROPTEST_CASES", self.cases.to_string());
    }
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
        let mut everything = test(&[&["--workspace"], &FEATURES[..]].concat());
        if !names_profile(arguments) {
            everything.env("AVTRACE", avtrace);
        }
        return vec![everything];
    }
    let unprivileged = ["--workspace", "--exclude", PRIVILEGED];
    vec![test(&[&unprivileged, &FEATURES[..]].concat()), privileged(arguments, privilege, avtrace)]
}

/// Returns the test runs of the suites that trace programs, with inline probes: by root, and by an ordinary user.
fn inline_commands(arguments: &[String], privilege: Privilege, avtrace: &Path) -> Vec<Command> {
    let mut as_root = privileged(arguments, privilege, avtrace);
    as_root.env("AVTRACE_CAPTURE", "inline");
    let mut as_user = privileged(arguments, privilege, avtrace);
    as_user.env("AVTRACE_CAPTURE", "inline").env("AVTRACE_AS_NOBODY", "1");
    vec![as_root, as_user]
}

/// Returns the test run of the package that needs root.
fn privileged(arguments: &[String], privilege: Privilege, avtrace: &Path) -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--package", PRIVILEGED]).args(arguments);
    if privilege == Privilege::Sudo {
        // sudo replaces PATH, and the tests would find another toolchain or fail to find one.
        let path = env::var("PATH").unwrap_or_default();
        command.env(runner_variable(), format!("sudo -n -E env PATH={path}"));
        // Built by root, it would leave files behind that we cannot replace.
        command.env("AVTRACE", avtrace);
    }
    command
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

/// Returns whether arguments of `cargo test` choose a profile, for which the tests build avtrace themselves.
fn names_profile(arguments: &[String]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| {
        matches!(argument.as_str(), "--release" | "-r") || argument.starts_with("--profile")
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
        let everything = "test --workspace --features avtrace/otel,avtrace/schema";
        assert_eq!(shown(&[], Privilege::Root), [everything]);
        assert_eq!(shown(&["--release"], Privilege::None), [format!("{everything} --release")]);
        assert_eq!(shown(&[], Privilege::SudoAsks), [everything]);
    }

    #[test]
    fn tests_run_the_avtrace_that_was_built_with_them() {
        let shown = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
            process::display(&commands(&arguments, Privilege::Root, Path::new("/avtrace"))[0])
        };
        assert!(shown(&[]).starts_with("AVTRACE=/avtrace "), "{}", shown(&[]));
        assert!(shown(&["--", "--release"]).starts_with("AVTRACE=/avtrace "));
        for others in [&["--release"][..], &["--profile=release"], &["-p", "tests"]] {
            assert!(!shown(others).contains("AVTRACE="), "{}", shown(others));
        }
    }

    #[test]
    fn sudo_is_for_the_privileged_suite_alone() {
        let commands = commands(&[], Privilege::Sudo, Path::new("/avtrace"));
        assert_eq!(
            shown(&[], Privilege::Sudo),
            [
                "test --workspace --exclude tests --features avtrace/otel,avtrace/schema",
                "test --package tests"
            ]
        );
        assert_eq!(commands[0].get_envs().count(), 0);
        let shown = process::display(&commands[1]);
        assert!(shown.contains("AVTRACE=/avtrace"), "{shown}");
        assert!(shown.contains("RUNNER='sudo -n -E env PATH="), "{shown}");
    }

    #[test]
    fn inline_suites_run_as_root_and_as_an_ordinary_user() {
        let arguments = ["--release".to_owned()];
        let commands = inline_commands(&arguments, Privilege::Root, Path::new("/avtrace"));
        let [as_root, as_user] = &commands.iter().map(process::display).collect::<Vec<_>>()[..]
        else {
            panic!("two runs");
        };
        assert!(as_root.contains("AVTRACE_CAPTURE=inline "), "{as_root}");
        assert!(!as_root.contains("AVTRACE_AS_NOBODY"), "{as_root}");
        assert!(as_user.contains("AVTRACE_AS_NOBODY=1 "), "{as_user}");
        assert!(as_user.ends_with("test --package tests --release"), "{as_user}");
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
    fn random_tests_have_the_same_cases_unless_others_are_asked_for() {
        let shown = |long, seed| {
            let mut command = Command::new("cargo");
            Random::new(long, seed).apply(&mut command);
            process::display(&command)
        };
        assert_eq!(shown(false, None), "PROPTEST_CASES=256 PROPTEST_RNG_SEED=1 cargo");
        assert_eq!(shown(false, Some(7)), "PROPTEST_CASES=256 PROPTEST_RNG_SEED=7 cargo");
        assert_eq!(shown(true, Some(7)), "PROPTEST_CASES=2560 PROPTEST_RNG_SEED=7 cargo");
        assert_ne!(shown(true, None), shown(true, None));
        let config = include_str!("../../.cargo/config.toml");
        assert!(config.contains(&format!("PROPTEST_RNG_SEED = \"{SEED}\"")));
    }

    #[test]
    fn named_packages_replace_the_workspace() {
        assert_eq!(shown(&["-p", "checker"], Privilege::Root), ["test -p checker"]);
        assert_eq!(shown(&["-pchecker"], Privilege::Sudo), ["test -pchecker"]);
        assert_eq!(shown(&["--package=checker"], Privilege::Root), ["test --package=checker"]);
        let [everything] = &shown(&["--", "-p"], Privilege::Root)[..] else { panic!("one run") };
        assert!(everything.starts_with("test --workspace ") && everything.ends_with(" -- -p"));
    }
}
