//! Programs that are asked to list their tests and run none: runners of tests do so first, with the wrapper that is
//! meant for the tests. They are executed in place of avtrace, so that a listing costs nothing and its output stays.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{IsTerminal as _, stderr},
    os::unix::process::CommandExt as _,
    process::Command,
};

use super::Failure;
use crate::sys::user;

/// Options by which test programs list their tests: of GoogleTest, of Catch2 (three), of doctest, of Boost.Test. Rust's
/// `--list` is not among them: by itself it is an option of many programs.
const LISTING: [&str; 6] = [
    "--gtest_list_tests",
    "--list-tests",
    "--list-test-names-only",
    "--list-reporters",
    "--list-test-cases",
    "--list_content",
];

/// Variable by which cargo-nextest names its phase.
const NEXTEST_PHASE: &str = "NEXTEST_TEST_PHASE";

/// Returns the failure to start a program that only lists its tests; does not return where it starts. `None` for other
/// programs.
pub(super) fn execute(program: &[OsString], as_root: bool) -> Option<Failure> {
    let option = listing_option(program, env::var_os(NEXTEST_PHASE).as_deref())?;
    if stderr().is_terminal() {
        eprintln!("avtrace: not traced: with `{option}` the program lists its tests and runs none");
    }
    let (name, arguments) = program.split_first()?;
    let mut command = Command::new(name);
    command.args(arguments);
    let user = if as_root { None } else { user::sudo_user() };
    let error = match user.map(|user| user.become_for(&mut command)) {
        Some(Err(error)) => error,
        _ => command.exec(),
    };
    let name = name.display();
    Some(Failure::input(format!("cannot run `{name}`: {error}; check its path and permissions")))
}

/// Returns the option by which a program lists its tests.
fn listing_option(program: &[OsString], phase: Option<&OsStr>) -> Option<String> {
    let arguments: Vec<&str> = program.iter().skip(1).filter_map(|word| word.to_str()).collect();
    // Arguments behind `--` are for the program that is tested.
    let of_runner = arguments.split(|&word| word == "--").next().unwrap_or_default();
    let has = |word: &str| of_runner.contains(&word);
    let is_terse =
        has("--format=terse") || of_runner.windows(2).any(|pair| pair == ["--format", "terse"]);
    if has("--list") && (is_terse || phase == Some(OsStr::new("list"))) {
        return Some("--list".to_owned());
    }
    LISTING.into_iter().find(|option| has(option)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str], phase: Option<&str>) -> Option<String> {
        let program = [&["./tests"], arguments].concat();
        let program: Vec<OsString> = program.into_iter().map(OsString::from).collect();
        listing_option(&program, phase.map(OsStr::new))
    }

    #[test]
    fn listings_are_known_by_their_options() {
        assert_eq!(of(&["--list", "--format", "terse"], None).as_deref(), Some("--list"));
        assert_eq!(of(&["--list", "--format=terse", "--ignored"], None).as_deref(), Some("--list"));
        assert_eq!(of(&["--list"], Some("list")).as_deref(), Some("--list"));
        let google = of(&["--gtest_list_tests", "--gtest_filter=*"], None);
        assert_eq!(google.as_deref(), Some("--gtest_list_tests"));
        assert!(of(&["--list-test-names-only"], None).is_some());
        assert!(of(&["--list-tests", "--reporter", "json"], None).is_some());
    }

    #[test]
    fn other_programs_are_traced() {
        assert_eq!(of(&["--list"], None), None, "many programs have such an option");
        assert_eq!(of(&["--list", "--format", "json"], None), None);
        assert_eq!(of(&["--exact", "transfer"], Some("run")), None);
        assert_eq!(of(&["--", "--gtest_list_tests"], None), None);
        assert_eq!(of(&[], Some("list")), None);
    }
}
