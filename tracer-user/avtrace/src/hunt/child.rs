//! Runs, each a process of its own: `avtrace run` with a plan. One may crash or hang without the hunt, and several can
//! run side by side.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write as _},
    os::unix::{
        fs::{FileExt as _, OpenOptionsExt as _, fchown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::run::{RunResult, Verdict, failure};
use linux::{proc, user::Identity};

/// Interval at which the end of a run is looked for.
const POLL: Duration = Duration::from_millis(3);
/// Time that avtrace has for its report once the program was killed.
const GRACE: Duration = Duration::from_secs(20);
/// Limit of the output that is kept for `--fail-if`, in bytes.
const MOST_OUTPUT: u64 = 64 << 20;
/// Limit of the output of a failed run in the results, in bytes.
const KEPT_OUTPUT: u64 = 4096;
/// Start of the line with which avtrace says that it has failed.
const ERROR: &str = "avtrace: error: ";

/// Options that all runs of a hunt have in common.
#[derive(Debug)]
pub struct Launch {
    /// Executable of avtrace.
    pub avtrace: PathBuf,
    /// Options of capture.
    pub options: Vec<OsString>,
    /// The program, and its arguments.
    pub command: Vec<OsString>,
    /// Directory to run it in; `None` for the current one.
    pub directory: Option<PathBuf>,
    /// Set if that is the directory of a package, which Cargo names to its tests.
    pub is_package: bool,
    /// Standard input of each run; `None` for none.
    pub input: Option<PathBuf>,
    /// Shell command that decides whether a run failed.
    pub fail_if: Option<OsString>,
    /// User as whom that command runs, and who may read what the program prints; `None` for this process's.
    pub user: Option<Identity>,
    /// Directory for the files of runs.
    pub scratch: PathBuf,
    /// Directory for what programs print.
    pub outputs: PathBuf,
}

/// Request for one run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Number, which names its files.
    pub number: u64,
    /// Plan, as JSON.
    pub plan: &'a str,
    /// Time after which the program is killed.
    pub limit: Duration,
}

impl Launch {
    /// Runs the program once. Returns `None` when `is_stopped` says that the hunt ends: the program has been killed
    /// then.
    ///
    /// # Errors
    ///
    /// When avtrace cannot be started, or its files cannot be written.
    pub fn run(
        &self,
        request: Request<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<Option<RunResult>> {
        let Request { number, plan, limit } = request;
        let folder = self.scratch.join(format!("run-{number}"));
        fs::create_dir_all(&folder)?;
        let [plan_file, report_file] = ["plan.json", "report.json"].map(|name| folder.join(name));
        fs::write(&plan_file, plan)?;
        let output_file =
            OutputFile::create(self.outputs.join(format!("output-{number}")), self.user.as_ref())?;
        let begun = Instant::now();
        let (child, output) = self.start(&plan_file, &report_file, &output_file)?;
        let (ended, status) = await_end(child, begun + limit, is_stopped)?;
        let elapsed = begun.elapsed();
        // The program's children may keep the pipe open; what they print later is not waited for.
        output.finish();
        let result = match ended {
            Ended::Stopped => None,
            ended => {
                let timed_out = matches!(ended, Ended::TimedOut);
                let mut result = self.result(&report_file, &output_file, timed_out, limit)?;
                result.status = status.code().and_then(|code| u8::try_from(code).ok());
                result.elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
                (result.number, result.plan) = (number, plan.to_owned());
                Some(result)
            }
        };
        // A failure leaves them in a directory that is removed at the end.
        let _ = fs::remove_dir_all(&folder);
        let _ = fs::remove_file(&output_file.path);
        Ok(result)
    }

    /// Starts avtrace in a process group of its own, so that Ctrl-C asks the hunt alone.
    fn start(
        &self,
        plan: &Path,
        report: &Path,
        output: &OutputFile,
    ) -> io::Result<(Child, Output)> {
        let (reader, writer) = io::pipe()?;
        // Made before anything runs that an error would leave behind.
        let output = Output::keep(reader, output.file.try_clone()?)?;
        let input = match &self.input {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.avtrace);
        command
            .arg("run")
            .args(&self.options)
            .args(["--format", "json", "--no-host", "--error-exitcode", "0", "--perturb"])
            .arg(plan)
            .arg("--output")
            .arg(report)
            .arg("--")
            .args(&self.command)
            .stdin(input)
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
            if self.is_package {
                command.env("CARGO_MANIFEST_DIR", directory);
            }
        }
        let child = command.spawn()?;
        // It has the writing end of the pipe.
        drop(command);
        Ok((child, output))
    }

    /// Reads the report and the output of a run.
    fn result(
        &self,
        report: &Path,
        output: &OutputFile,
        timed_out: bool,
        limit: Duration,
    ) -> io::Result<RunResult> {
        let documents = fs::read(report).unwrap_or_default();
        let reports = match report::json::read_all(&documents) {
            Ok(reports) if !reports.is_empty() => reports,
            read => {
                let error = read.err().map(|error| error.to_string());
                let said = last_error(&tail(&output.file)?);
                let error =
                    said.or(error).unwrap_or_else(|| "avtrace ended without a report".to_owned());
                tracing::debug!(%error, "avtrace could not trace a run");
                return Ok(RunResult::of(Verdict::Untraced(error)));
            }
        };
        let verdict = match (timed_out, &self.fail_if) {
            (true, _) => Verdict::TimedOut,
            (false, None) => failure(&reports).map_or(Verdict::Passed, Verdict::Failed),
            (false, Some(condition)) => {
                let status = failure(&reports);
                match is_failure(
                    condition,
                    &output.path,
                    status.as_deref(),
                    limit,
                    self.user.as_ref(),
                )? {
                    true => {
                        Verdict::Failed(status.unwrap_or_else(|| "--fail-if says so".to_owned()))
                    }
                    false => Verdict::Passed,
                }
            }
        };
        let mut result = RunResult::of(verdict);
        if result.verdict.is_failure() {
            result.output = tail(&output.file)?;
        }
        result.add_reports(reports);
        Ok(result)
    }
}

/// Asks the user's command whether a run failed. The command has as much time as a run, so that it cannot stop the
/// hunt.
fn is_failure(
    condition: &OsString,
    output: &Path,
    status: Option<&str>,
    limit: Duration,
    user: Option<&Identity>,
) -> io::Result<bool> {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(condition)
        .env("AVTRACE_OUTPUT", output)
        .env("AVTRACE_FAILURE", status.unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    if let Some(user) = user {
        user.run(&mut command);
    }
    let mut child = command.spawn()?;
    let deadline = Instant::now() + limit;
    let asked = loop {
        if let Some(asked) = child.try_wait()? {
            break asked;
        }
        if Instant::now() >= deadline {
            // Processes that the shell has started as well; it may have ended meanwhile.
            let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
            child.wait()?;
            let (condition, seconds) = (condition.to_string_lossy(), limit.as_secs());
            return Err(io::Error::other(format!(
                "`{condition}` of --fail-if did not end within {seconds} seconds, the time that a run has"
            )));
        }
        thread::sleep(POLL);
    };
    match asked.code() {
        Some(0) => Ok(true),
        // The shell has not found the command, or could not run it.
        Some(126 | 127) | None => {
            let condition = condition.to_string_lossy();
            Err(io::Error::other(format!("`{condition}` of --fail-if: {asked}")))
        }
        Some(_) => Ok(false),
    }
}

/// End of the process of a run.
enum Ended {
    ByItself,
    TimedOut,
    Stopped,
}

/// Waits for the end of a run, and kills the program when its time is over.
fn await_end(
    mut child: Child,
    deadline: Instant,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<(Ended, ExitStatus)> {
    let mut killed: Option<(Ended, Instant)> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((killed.map_or(Ended::ByItself, |(ended, _)| ended), status));
        }
        match &killed {
            None if is_stopped() => killed = Some((Ended::Stopped, Instant::now() + GRACE)),
            None if Instant::now() >= deadline => {
                tracing::debug!(avtrace = child.id(), "a run is killed: its time is over");
                killed = Some((Ended::TimedOut, Instant::now() + GRACE));
            }
            // avtrace leaves nothing behind when it is killed.
            Some((_, latest)) if Instant::now() >= *latest => {
                let _ = child.kill();
            }
            _ => {}
        }
        if killed.is_some() {
            kill_programs(child.id());
        }
        thread::sleep(POLL);
    }
}

/// Kills the processes that avtrace has started. The caller repeats this, since a process may fork meanwhile.
fn kill_programs(avtrace: u32) {
    let executable = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = executable(avtrace);
    let mut processes = proc::children(avtrace);
    while let Some(pid) = processes.pop() {
        processes.extend(proc::children(pid));
        // Helpers of avtrace end by themselves, and have its executable.
        if executable(pid) != own {
            // It has ended meanwhile, or it is another user's and ends when it likes.
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
    }
}

/// File of what a run prints.
struct OutputFile {
    path: PathBuf,
    file: File,
}

impl OutputFile {
    /// Creates a file that avtrace and `user` may read. It stays open, so that avtrace reads it even after `user` has
    /// removed it or put a pipe in its place.
    fn create(path: PathBuf, user: Option<&Identity>) -> io::Result<Self> {
        // A run that ended with an error may have left the file.
        let _ = fs::remove_file(&path);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        if let Some((user, group)) = user.map(Identity::ids) {
            fchown(&file, Some(user), Some(group))?;
        }
        Ok(Self { path, file })
    }
}

/// Copies the output of a run in a thread.
struct Output(JoinHandle<()>);

impl Output {
    /// Copies a pipe to a file until its end. Output beyond the limit is read and dropped, so that the program is not
    /// blocked.
    fn keep(mut pipe: io::PipeReader, mut file: File) -> io::Result<Self> {
        let thread = thread::Builder::new().name("avtrace-output".to_owned());
        let copy = move || {
            let mut room = MOST_OUTPUT;
            let mut bytes = vec![0; 64 << 10];
            while let Ok(read) = pipe.read(&mut bytes) {
                if read == 0 {
                    return;
                }
                let kept = read.min(usize::try_from(room).unwrap_or(usize::MAX));
                room -= kept as u64;
                // A full disk must not stop the program.
                let _ = file.write_all(&bytes[..kept]);
            }
        };
        Ok(Self(thread.spawn(copy)?))
    }

    /// Waits shortly for the rest of it.
    fn finish(self) {
        let deadline = Instant::now() + Duration::from_millis(200);
        while !self.0.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the end of a file as text.
fn tail(file: &File) -> io::Result<String> {
    let size = file.metadata()?.len();
    let mut bytes = vec![0; size.min(KEPT_OUTPUT) as usize];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], size.saturating_sub(KEPT_OUTPUT) + read as u64) {
            // It has been cut meanwhile.
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

/// Returns the error that avtrace has printed last.
fn last_error(output: &str) -> Option<String> {
    output.lines().rev().find_map(|line| line.strip_prefix(ERROR)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_does_not_end_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let ask = |condition: &str, limit| {
            is_failure(&condition.into(), &output, Some("exit status 1"), limit, None)
        };
        let error = ask("sleep 100000 & wait", Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("did not end within"), "{error}");
        let long = Duration::from_secs(600);
        assert!(ask("test \"$AVTRACE_FAILURE\" = \"exit status 1\"", long).unwrap());
        assert!(!ask("false", long).unwrap());
        assert!(ask("no-such-command-of-avtrace", long).is_err());
    }

    #[test]
    fn the_last_error_is_found_among_what_the_program_printed() {
        let output = "hello\navtrace: error: first\navtrace: error: cannot read `x`\nbye";
        assert_eq!(last_error(output).as_deref(), Some("cannot read `x`"));
        assert_eq!(last_error("avtrace: warning"), None);
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        fs::write(&path, format!("{}end", "x".repeat(10_000))).unwrap();
        let kept = tail(&File::open(&path).unwrap()).unwrap();
        assert_eq!(kept.len() as u64, KEPT_OUTPUT);
        assert!(kept.ends_with("xend"));
    }

    #[test]
    fn too_much_output_is_dropped_and_read_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        let (reader, mut writer) = io::pipe().unwrap();
        let output = Output::keep(reader, File::create(&path).unwrap()).unwrap();
        let block = vec![b'x'; 1 << 20];
        for _ in 0..66 {
            writer.write_all(&block).unwrap();
        }
        drop(writer);
        output.0.join().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), MOST_OUTPUT);
    }
}
