//! Programs that one command stands for: the test executables of Cargo, and test cases by themselves.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::{OsStr, OsString},
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use symbolize::open_regular;

use linux::user::Identity;

/// A program that gets a separate hunt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name for people; empty where the command is the program.
    pub name: String,
    pub command: Vec<OsString>,
    /// Directory to run it in; `None` for the current one.
    pub directory: Option<PathBuf>,
}

/// Reason for which there is no program to hunt.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("cannot run `{command}`, which lists the tests: {error}")]
    Start { command: String, error: io::Error },
    #[error("`{command}`, which lists the tests, failed ({status}){output}")]
    Failed {
        command: String,
        status: String,
        /// The last line that it printed as an error.
        output: String,
    },
    #[error(
        "`{0}` lists no tests in the form of Rust's test harness or of GoogleTest: leave out --per-test, or name a \
         command that runs one test"
    )]
    NoTests(String),
    #[error("`{0}` has no test executable: name a package or a test that has one")]
    NoExecutables(String),
}

/// Message of Cargo about an executable that it has built.
#[derive(Deserialize)]
struct Artifact {
    #[serde(default)]
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    profile: Option<Profile>,
    target: Option<Named>,
}

#[derive(Deserialize)]
struct Profile {
    #[serde(default)]
    test: bool,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Tests as cargo-nextest lists them.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct NextestList {
    rust_suites: BTreeMap<String, Suite>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Suite {
    binary_path: PathBuf,
    cwd: PathBuf,
    #[serde(default)]
    testcases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Case {
    #[serde(default)]
    ignored: bool,
    filter_match: Option<Filter>,
}

#[derive(Deserialize)]
struct Filter {
    status: String,
}

/// Returns the programs of a command: the test executables of `cargo test` and `cargo nextest run`, else the program
/// itself; with `per_test` each test case. Commands that list them run as `user`.
///
/// # Errors
///
/// When tests cannot be listed, or no test is found.
pub fn targets(
    command: &[OsString],
    per_test: bool,
    user: Option<&Identity>,
) -> Result<Vec<Target>, TargetError> {
    let executables = match cargo_command(command) {
        None => {
            let target = Target { name: String::new(), command: command.to_vec(), directory: None };
            vec![target]
        }
        Some(Cargo::Test) => executables_of_cargo(command, user)?,
        Some(Cargo::Nextest) => return tests_of_nextest(command, user),
    };
    if !per_test {
        return Ok(executables);
    }
    let mut tests = Vec::new();
    for executable in &executables {
        tests.extend(tests_of(executable, user)?);
    }
    match tests.is_empty() {
        true => Err(TargetError::NoTests(in_words(command))),
        false => Ok(tests),
    }
}

/// Commands of Cargo that run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cargo {
    Test,
    Nextest,
}

/// Returns which of them a command is.
fn cargo_command(command: &[OsString]) -> Option<Cargo> {
    let (program, arguments) = command.split_first()?;
    if Path::new(program).file_name() != Some(OsStr::new("cargo")) {
        return None;
    }
    // A toolchain may come first.
    let word = arguments.iter().find(|word| !word.as_encoded_bytes().starts_with(b"+"))?;
    match word.to_str()? {
        "test" | "t" => Some(Cargo::Test),
        "nextest" => Some(Cargo::Nextest),
        _ => None,
    }
}

/// Has Cargo build the tests, and returns the executables, each with the arguments for it.
fn executables_of_cargo(
    command: &[OsString],
    user: Option<&Identity>,
) -> Result<Vec<Target>, TargetError> {
    let split = command.iter().position(|word| word == "--").unwrap_or(command.len());
    let (of_cargo, of_tests) = command.split_at(split);
    let mut build = of_cargo.to_vec();
    build.extend(["--no-run", "--message-format=json-render-diagnostics"].map(OsString::from));
    let output = output(&build, None, user)?;
    let executables: Vec<Target> = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.reason == "compiler-artifact")
        .filter(|artifact| artifact.profile.as_ref().is_some_and(|profile| profile.test))
        .filter_map(|artifact| {
            let mut command = vec![artifact.executable?.into_os_string()];
            command.extend(of_tests.iter().skip(1).cloned());
            // As Cargo runs them.
            let directory = artifact.manifest_path.and_then(|path| Some(path.parent()?.to_owned()));
            Some(Target { name: artifact.target?.name, command, directory })
        })
        .collect();
    match executables.is_empty() {
        true => Err(TargetError::NoExecutables(in_words(command))),
        false => Ok(executables),
    }
}

/// Returns the tests that cargo-nextest would run: it runs each by itself.
fn tests_of_nextest(
    command: &[OsString],
    user: Option<&Identity>,
) -> Result<Vec<Target>, TargetError> {
    let mut list: Vec<OsString> = command
        .iter()
        .take_while(|word| *word != "--")
        .filter(|word| *word != "run")
        .cloned()
        .collect();
    let nextest = list.iter().position(|word| word == "nextest").map_or(1, |place| place + 1);
    list.insert(nextest, "list".into());
    list.extend(["--message-format", "json"].map(OsString::from));
    let text = output(&list, None, user)?;
    let tests = serde_json::from_str::<NextestList>(&text).map(tests_of_list).unwrap_or_default();
    match tests.is_empty() {
        true => Err(TargetError::NoExecutables(in_words(command))),
        false => Ok(tests),
    }
}

fn tests_of_list(list: NextestList) -> Vec<Target> {
    let mut tests = Vec::new();
    for (name, suite) in list.rust_suites {
        for (test, case) in suite.testcases {
            let matches = case.filter_match.is_none_or(|filter| filter.status == "matches");
            if case.ignored || !matches {
                continue;
            }
            let command = vec![
                suite.binary_path.clone().into_os_string(),
                test.clone().into(),
                "--exact".into(),
                "--nocapture".into(),
            ];
            let directory = Some(suite.cwd.clone());
            tests.push(Target { name: format!("{name} {test}"), command, directory });
        }
    }
    tests
}

/// Lists the test cases of an executable.
fn tests_of(executable: &Target, user: Option<&Identity>) -> Result<Vec<Target>, TargetError> {
    let directory = executable.directory.as_deref();
    let case = |test: String, options: Vec<OsString>| {
        let mut command = executable.command.clone();
        command.extend(options);
        let name = match executable.name.as_str() {
            "" => test,
            of => format!("{of} {test}"),
        };
        Target { name, command, directory: executable.directory.clone() }
    };
    let with = |options: &[&str]| -> Vec<OsString> {
        executable.command.iter().cloned().chain(options.iter().map(OsString::from)).collect()
    };
    // Each says by its exit status that it does not know the other's option, or ignores it and runs: so the one that
    // such a program lists in a form of its own is asked first.
    let listed = output(&with(&["--gtest_list_tests"]), directory, user).map(|text| gtests(&text));
    if let Ok(tests) = listed
        && !tests.is_empty()
    {
        let of = |test: String| {
            let option = format!("--gtest_filter={test}").into();
            case(test, vec![option])
        };
        return Ok(tests.into_iter().map(of).collect());
    }
    let list = ["--list", "--format", "terse"];
    let text = output(&with(&list), directory, user)?;
    let ignored = output(&with(&[&list[..], &["--ignored"]].concat()), directory, user)?;
    let ignored: HashSet<String> = rust_tests(&ignored).into_iter().collect();
    let of = |test: String| {
        let options = vec![test.clone().into(), "--exact".into()];
        case(test, options)
    };
    Ok(rust_tests(&text).into_iter().filter(|test| !ignored.contains(test)).map(of).collect())
}

/// Returns the tests in a list of GoogleTest: names of suites end in a dot, names of tests are indented.
fn gtests(text: &str) -> Vec<String> {
    let (mut suite, mut tests) = (None, Vec::new());
    for line in text.lines() {
        // A comment after `#` has the value of a parameter.
        let name = line.split('#').next().unwrap_or_default().trim_end();
        match (name.strip_prefix("  "), suite) {
            (Some(test), Some(suite)) if !test.contains(' ') => {
                let full = format!("{suite}{test}");
                if !full.contains("DISABLED_") {
                    tests.push(full);
                }
            }
            (None, _) if name.ends_with('.') && !name.contains(' ') => suite = Some(name),
            _ => {}
        }
    }
    tests
}

/// Returns the tests in a list of Rust's test harness.
fn rust_tests(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Returns a hash of the file of a program, which differs for another build; `None` if it cannot be read.
#[must_use]
pub fn build_of(command: &[OsString], directory: Option<&Path>) -> Option<String> {
    let program = Path::new(command.first()?);
    let in_directory = || directory.map(|directory| directory.join(program));
    let has_path = program.components().count() > 1;
    let found = match has_path {
        true => in_directory().unwrap_or_else(|| program.to_owned()),
        false => {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path)
                .map(|folder| folder.join(program))
                .find(|file| file.is_file())?
        }
    };
    let mut hash = crc32fast::Hasher::new();
    let mut file = open_regular(&found).ok()?;
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(format!("{:08x}", hash.finalize())),
            read => hash.update(&bytes[..read]),
        }
    }
}

/// Returns the output of a command, which runs as `user` if this process has more rights than that user.
fn output(
    command: &[OsString],
    directory: Option<&Path>,
    user: Option<&Identity>,
) -> Result<String, TargetError> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| TargetError::NoTests(String::new()))?;
    let mut run = Command::new(program);
    run.args(arguments).stdin(Stdio::null());
    if let Some(directory) = directory {
        run.current_dir(directory);
    }
    if let Some(user) = user {
        user.run(&mut run);
    }
    let output =
        run.output().map_err(|error| TargetError::Start { command: in_words(command), error })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        return Err(TargetError::Failed {
            command: in_words(command),
            status: output.status.to_string(),
            output: last.map(|line| format!(": {}", line.trim())).unwrap_or_default(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn in_words(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn lists_of_google_test_are_read() {
        let text = "Running main() from gtest_main.cc\nQueue.\n  Push\n  DISABLED_Pop\nParams/Sum.  # TypeParam = int\n  \
                    Is/0  # GetParam() = (1, 2)\n";
        assert_eq!(gtests(text), ["Queue.Push", "Params/Sum.Is/0"]);
        assert_eq!(gtests("queue::push: test\n"), [""; 0]);
    }

    #[test]
    fn lists_of_rusts_harness_are_read() {
        let text = "queue::push: test\nqueue::time: benchmark\nsrc/lib.rs - (line 3): test\n";
        assert_eq!(rust_tests(text), ["queue::push", "src/lib.rs - (line 3)"]);
    }

    #[test]
    fn lists_of_nextest_are_read() {
        let text = r#"{"rust-build-meta": {}, "test-count": 3, "rust-suites": {"bank": {"binary-path": "/t/bank-1", "cwd":
            "/bank", "testcases": {"moves": {"ignored": false, "filter-match": {"status": "matches"}}, "slow": {"ignored":
            true, "filter-match": {"status": "mismatch"}}, "other": {"ignored": false, "filter-match": {"status":
            "mismatch", "reason": "string"}}}}}}"#;
        let tests = tests_of_list(serde_json::from_str(text).unwrap());
        let [test] = &tests[..] else { panic!("{tests:?}") };
        assert_eq!(test.name, "bank moves");
        assert_eq!(test.command, words("/t/bank-1 moves --exact --nocapture"));
        assert_eq!(test.directory.as_deref(), Some(Path::new("/bank")));
    }

    #[test]
    fn commands_of_cargo_are_known() {
        for (command, of) in [
            ("cargo test -p bank", Some(Cargo::Test)),
            ("/usr/bin/cargo +nightly t", Some(Cargo::Test)),
            ("cargo nextest run", Some(Cargo::Nextest)),
            ("cargo run", None),
            ("./cargo-test test", None),
            ("cargo", None),
        ] {
            assert_eq!(cargo_command(&words(command)), of, "{command}");
        }
    }
}
