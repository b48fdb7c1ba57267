//! Running avtrace: building its binary once, its options, its report.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

pub use crate::capture::captures_inline;
use crate::capture::{back_end, captures_as_nobody, folder, options};
use crate::process::{Ended, Running, TIME_LIMIT};
use crate::programs::{Program, cargo, succeed};
use crate::report::Report;
use crate::{profile_dir, root, target_dir};

/// Options that only the kernel's back end has.
const NEED_KERNEL: [&str; 2] = ["--perf-probes", "--debug-bpf"];

/// Number of times that a run is tried which loses a few events.
const ATTEMPTS: usize = 3;

/// Most events that a run loses without being at fault: the kernel's back end waits for its own locks no longer than
/// it may, and counts the event as lost where the holder does not run, as on a machine that is short of processors.
const FEW: u64 = 3;

/// Runs the command that follows as a user without privileges.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A run of avtrace on a program.
#[derive(Clone, Debug)]
pub struct Avtrace {
    options: Vec<OsString>,
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    input: Option<Vec<u8>>,
    accesses: Option<String>,
    capture: Option<String>,
    is_chosen: bool,
    as_nobody: bool,
    same_addresses: bool,
    limit: Duration,
}

impl Avtrace {
    /// On a program that was built.
    #[must_use]
    pub fn on(program: &Program) -> Self {
        Self::on_path(&program.path)
    }

    /// On a program of the system or at a path.
    #[must_use]
    pub fn on_path(program: impl AsRef<OsStr>) -> Self {
        Self {
            options: Vec::new(),
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            input: None,
            accesses: Some(std::env::var("AVTRACE_ACCESSES").unwrap_or_else(|_| "sync".to_owned())),
            capture: back_end(),
            is_chosen: false,
            as_nobody: false,
            same_addresses: false,
            limit: TIME_LIMIT,
        }
    }

    /// Captures events in the traced process. The environment variable `AVTRACE_CAPTURE` chooses the back end of all
    /// other runs.
    #[must_use]
    pub fn inline(self) -> Self {
        self.capturing("inline")
    }

    /// Captures events by this back end, whatever the environment says.
    #[must_use]
    pub fn capturing(mut self, back_end: &str) -> Self {
        self.capture = Some(back_end.to_owned());
        self.is_chosen = true;
        self
    }

    /// Leaves the back end to the options, also where the environment variable chooses one.
    #[must_use]
    pub fn without_capture(mut self) -> Self {
        self.capture = None;
        self
    }

    /// Runs avtrace, and so the program, as a user without privileges.
    #[must_use]
    pub const fn as_nobody(mut self) -> Self {
        self.as_nobody = true;
        self
    }

    /// Has the kernel load the program to the same addresses each time, by `setarch`.
    #[must_use]
    pub const fn at_same_addresses(mut self) -> Self {
        self.same_addresses = true;
        self
    }

    /// Sees memory accesses as users do who do not say how, and counts what they count. Without this only accesses that
    /// are named are seen, so that what other suites expect does not depend on it (the environment variable
    /// `AVTRACE_ACCESSES` says otherwise), and possible defects count.
    #[must_use]
    pub fn seeing_memory(mut self) -> Self {
        self.accesses = None;
        self
    }

    /// Adds options for avtrace.
    #[must_use]
    pub fn options<S: AsRef<OsStr>>(mut self, options: impl IntoIterator<Item = S>) -> Self {
        self.options.extend(options.into_iter().map(|option| option.as_ref().to_owned()));
        self
    }

    /// Adds arguments for the program.
    #[must_use]
    pub fn arguments<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives the program standard input.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Gives the run this much time, instead of [`TIME_LIMIT`].
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it: `avtrace OPTIONS -- PROGRAM ARGUMENTS`.
    #[must_use]
    pub fn start(self) -> Running {
        let mut command = self.command();
        Running::start(&mut command, self.input, self.limit)
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Ended {
        self.start().wait()
    }

    /// Runs it to its end with a JSON report in a file, and reads that. A run with a few lost events is repeated.
    ///
    /// # Panics
    /// When there is no report, or it does not follow the schema.
    #[must_use]
    pub fn report(self) -> (Ended, Report) {
        for _ in 1..ATTEMPTS {
            let (ended, report) = self.clone().report_once();
            // Inline probes wait for room, and lose no event.
            let is_inline = self.capture.as_deref() == Some("inline");
            if is_inline || !(1..=FEW).contains(&report.counts.lost_events) {
                return (ended, report);
            }
            eprintln!("again, as events were lost: {:#}", report.not_seen["lost_events"]);
        }
        self.report_once()
    }

    fn report_once(self) -> (Ended, Report) {
        let folder = folder();
        let file = folder.path().join("report.json");
        let ended = self.options(["--format", "json", "-o"]).options([&file]).run();
        let document = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("no report ({error}): {ended:#?}"));
        (ended, Report::parse(&document))
    }

    /// Runs it to its end with JSON reports in a file, one a line unless there is only one, and reads those.
    ///
    /// # Panics
    /// When there is no report, or one does not follow the schema.
    #[must_use]
    pub fn reports(self) -> (Ended, Vec<Report>) {
        let folder = folder();
        let file = folder.path().join("reports.json");
        let ended = self.options(["--format", "json", "-o"]).options([&file]).run();
        let documents = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("no report ({error}): {ended:#?}"));
        let one_line = |document: &str| document.starts_with("{\"schema\"");
        let reports = if documents.lines().all(one_line) {
            documents.lines().map(Report::parse).collect()
        } else {
            vec![Report::parse(&documents)]
        };
        (ended, reports)
    }

    /// The command, for callers that run it themselves.
    #[must_use]
    pub fn command(&self) -> Command {
        let needs_kernel = |option: &OsString| {
            let option = option.as_encoded_bytes();
            NEED_KERNEL.iter().any(|name| option.starts_with(name.as_bytes()))
        };
        // Whatever the environment says, these runs can have one back end only.
        let is_free = self.is_chosen || !self.options.iter().any(needs_kernel);
        let capture = self.capture.as_ref().filter(|_| is_free);

        let mut wrapped: Vec<&OsStr> = Vec::new();
        let needs_nothing = capture.is_some_and(|capture| capture == "inline");
        if self.as_nobody || needs_nothing && captures_as_nobody() {
            wrapped.extend(AS_NOBODY.map(OsStr::new));
        }
        if self.same_addresses {
            wrapped.extend(["setarch", "-R"].map(OsStr::new));
        }
        wrapped.push(avtrace().as_os_str());
        let mut command = Command::new(wrapped[0]);
        command.args(&wrapped[1..]);
        command.args(&self.options);
        if let Some(capture) = capture {
            command.args(["--capture", capture]);
        }
        if let Some(accesses) = &self.accesses {
            command.args(["--accesses", accesses]);
        }
        command.arg("--").arg(&self.program).args(&self.arguments);
        prepare(&mut command);
        if self.accesses.is_none() {
            command.env_remove(FAIL_ON.0);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Runs avtrace with exactly these arguments.
#[must_use]
pub fn avtrace_with<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    avtrace_within(TIME_LIMIT, arguments)
}

/// Runs avtrace with exactly these arguments, and with a time limit of its own.
#[must_use]
pub fn avtrace_within<S: AsRef<OsStr>>(
    limit: Duration,
    arguments: impl IntoIterator<Item = S>,
) -> Ended {
    let mut command = Command::new(avtrace());
    command.args(arguments);
    prepare(&mut command);
    Running::start(&mut command, None, limit).wait()
}

/// Runs a program without avtrace.
#[must_use]
pub fn native<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
    input: Option<Vec<u8>>,
) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments);
    prepare(&mut command);
    Running::start(&mut command, input, TIME_LIMIT).wait()
}

/// Runs a program without avtrace, as the user as whom [`Avtrace`] traces it.
#[must_use]
pub fn native_as_traced<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Ended {
    let user = if captures_as_nobody() { &AS_NOBODY[..] } else { &["env"] };
    let command: Vec<&OsStr> = user.iter().copied().chain([program]).map(OsStr::new).collect();
    let arguments: Vec<S> = arguments.into_iter().collect();
    let rest = command[1..].iter().copied().chain(arguments.iter().map(AsRef::as_ref));
    native(command[0], rest, None)
}

/// Numbers of acquires and releases of the most used lock in a run, from the recorded trace: `acq 2000 rel 2000 `,
/// or with `racq` and `rrel` where it is shared.
///
/// # Panics
/// When the run, or the conversion of its trace, fails.
#[must_use]
pub fn lock_operations(program: &Program, arguments: &[&str]) -> String {
    let folder = folder();
    let (avt, std) = (folder.path().join("t.avt"), folder.path().join("t.std"));
    let succeeds = |arguments: &[&OsStr]| {
        let ended = avtrace_with(arguments);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    let capture = options();
    let mut record = vec!["record".as_ref(), "-o".as_ref(), avt.as_os_str()];
    record.extend(capture.iter().map(AsRef::<OsStr>::as_ref));
    record.push(program.path.as_os_str());
    record.extend(arguments.iter().map(AsRef::<OsStr>::as_ref));
    succeeds(&record);
    succeeds(&["convert".as_ref(), avt.as_os_str(), std.as_os_str()]);
    let text = std::fs::read_to_string(&std).expect("the trace");
    let mut found = String::new();
    for operation in ["acq", "rel", "racq", "rrel"] {
        let start = format!("|{operation}(");
        let mut objects: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(&start)?.1.split_once(')'))
            .map(|(object, _)| object)
            .collect();
        objects.sort_unstable();
        let most = objects.chunk_by(|one, other| one == other).map(<[&str]>::len).max();
        // Fewer are those of a standard library itself.
        if let Some(times) = most.filter(|&times| times > 100) {
            write!(found, "{operation} {times} ").expect("a string takes it");
        }
    }
    found
}

/// Variable by which possible defects count. Most suites are about what is seen, not about how likely it is a bug, and
/// without accesses to memory all is possible at most.
pub const FAIL_ON: (&str, &str) = ("AVTRACE_FAIL_ON", "possible");

/// Sets the environment of a run. The tests may run under sudo; what avtrace makes of that has a test of its own.
fn prepare(command: &mut Command) {
    command.env(FAIL_ON.0, FAIL_ON.1);
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "NO_COLOR"] {
        command.env_remove(variable);
    }
}

/// The path of avtrace's binary: what `AVTRACE` names, or else what cargo builds now, in the profile and the
/// target folder of the running test.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn avtrace() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("AVTRACE") {
            return path.into();
        }
        let profile = profile_dir();
        let profile = match profile.file_name().and_then(OsStr::to_str).expect("a profile") {
            "debug" => "dev",
            other => other,
        };
        let messages = succeed(
            Command::new(cargo())
                .current_dir(root())
                .args(["build", "--quiet", "--package", "avtrace", "--bin", "avtrace"])
                .args(["--message-format", "json-render-diagnostics", "--profile", profile])
                .arg("--target-dir")
                .arg(target_dir()),
        );
        built_binary(&messages).unwrap_or_else(|| panic!("cargo built no binary:\n{messages}"))
    })
}

/// Finds the executable in what cargo says about a build, one JSON document a line.
fn built_binary(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "avtrace")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_among_the_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"checker"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"avtrace"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"avtrace"},"executable":"/t/debug/avtrace"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(built_binary(messages), Some(PathBuf::from("/t/debug/avtrace")));
        assert_eq!(built_binary("{}"), None);
    }
}
