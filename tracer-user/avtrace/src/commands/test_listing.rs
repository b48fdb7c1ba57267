//! Programs that are asked to list their tests and run none: runners of tests do so first, with the wrapper that is
//! meant for the tests. They are executed in place of avtrace, so that a listing costs nothing and its output stays.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{IsTerminal as _, stderr},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use memchr::memmem;
use symbolize::bytes::Bytes;

use super::{Failure, untraced};

/// A framework of test programs.
struct Framework {
    /// Options by which its programs list their tests.
    options: &'static [&'static str],
    /// Text in each of its programs, also without symbols: in names of types, or in that of the library.
    marks: &'static [&'static str],
}

/// Frameworks, by their options. Rust's `--list` is not among them: by itself it is an option of many programs.
const FRAMEWORKS: [Framework; 4] = [
    Framework { options: &["--gtest_list_tests"], marks: &["gtest"] },
    Framework {
        options: &["--list-tests", "--list-test-names-only", "--list-reporters"],
        marks: &["N5Catch", "libCatch2"],
    },
    Framework { options: &["--list-test-cases"], marks: &["N7doctest", "doctest"] },
    Framework { options: &["--list_content"], marks: &["boost9unit_test", "boost_unit_test"] },
];

/// Variable by which cargo-nextest names its phase.
const NEXTEST_PHASE: &str = "NEXTEST_TEST_PHASE";

/// Returns the failure to start a program that only lists its tests; does not return where it starts. `None` for other
/// programs.
pub(super) fn execute(program: &[OsString], as_root: bool) -> Option<Failure> {
    let contains = |marks: &[&str]| program.first().is_some_and(|name| file_has(name, marks));
    let option = listing_option(program, env::var_os(NEXTEST_PHASE).as_deref(), &contains)?;
    let reason = stderr()
        .is_terminal()
        .then(|| format!("not traced: with `{option}` the program lists its tests and runs none"));
    Some(untraced::execute(program, as_root, reason.as_deref().unwrap_or_default()))
}

/// Returns whether the file of a program has one of some texts in it. One that cannot be read has none: starting it
/// says why.
fn file_has(name: &OsStr, marks: &[&str]) -> bool {
    let path = Path::new(name);
    let path = if name.as_bytes().contains(&b'/') {
        Some(path.to_owned())
    } else {
        let folders = env::var_os("PATH").unwrap_or_default();
        let mut paths = env::split_paths(&folders).map(|folder| folder.join(path));
        paths.find(|path| path.is_file())
    };
    let bytes = path.and_then(|path| Bytes::read_path(&path).ok());
    bytes.is_some_and(|bytes| {
        marks.iter().any(|mark| memmem::find(&bytes, mark.as_bytes()).is_some())
    })
}

/// Returns the option by which a program lists its tests. `contains` says if the program has one of some texts in it.
fn listing_option(
    program: &[OsString],
    phase: Option<&OsStr>,
    contains: &dyn Fn(&[&str]) -> bool,
) -> Option<String> {
    let arguments: Vec<&str> = program.iter().skip(1).filter_map(|word| word.to_str()).collect();
    // Arguments behind `--` are for the program that is tested.
    let of_runner = arguments.split(|&word| word == "--").next().unwrap_or_default();
    let has = |word: &str| of_runner.contains(&word);
    let is_terse =
        has("--format=terse") || of_runner.windows(2).any(|pair| pair == ["--format", "terse"]);
    if has("--list") && (is_terse || phase == Some(OsStr::new("list"))) {
        return Some("--list".to_owned());
    }
    // Other programs may have options of these names.
    FRAMEWORKS.iter().find_map(|Framework { options, marks }| {
        let option = options.iter().find(|option| has(option))?;
        contains(marks).then(|| (*option).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str], phase: Option<&str>) -> Option<String> {
        let framework = match arguments.first() {
            Some(&"--gtest_list_tests") => "gtest",
            _ => "N5Catch",
        };
        of_program(arguments, phase, framework)
    }

    fn of_program(arguments: &[&str], phase: Option<&str>, framework: &str) -> Option<String> {
        let program = [&["./tests"], arguments].concat();
        let program: Vec<OsString> = program.into_iter().map(OsString::from).collect();
        listing_option(&program, phase.map(OsStr::new), &|marks| marks.contains(&framework))
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
        assert_eq!(of_program(&["--list-tests"], None, "gtest"), None, "another framework's");
        assert_eq!(of_program(&["--gtest_list_tests"], None, ""), None);
    }

    #[test]
    fn programs_are_looked_at_where_they_are_found() {
        let own = env::current_exe().expect("a path");
        assert!(file_has(own.as_os_str(), &["no such text?", "listing_option"]));
        assert!(!file_has(OsStr::new("sh"), &["N5Catch", "libCatch2"]));
        assert!(!file_has(OsStr::new("/no/such/program"), &[""]));
    }
}
