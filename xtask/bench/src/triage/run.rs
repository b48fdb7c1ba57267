//! Runs of one program: by itself, under avtrace with the default options, and with the work that servers need.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read as _,
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    load::Load,
    manifest::Manifest,
    outcome::{Outcome, Report},
};
use crate::{
    capture::measure::{signal, wait_within},
    process::{self, Privilege},
};

/// A program that is ready to run.
pub struct Case {
    /// Name of its report.
    pub name: String,
    /// Program and arguments.
    pub words: Vec<OsString>,
    /// Source of its work.
    pub load: Load,
    /// Set if it does not end well.
    pub dies: bool,
}

/// Paths in use, and the way to become root.
pub struct Runner {
    privilege: Privilege,
    avtrace: PathBuf,
    /// Directory of the reports, which stay there for a look at them.
    reports: PathBuf,
    limit: Duration,
    /// Back end of capture, as `--capture` names it.
    capture: String,
}

/// Result of a run.
struct Ran {
    seconds: f64,
    /// Set if the bad interleaving has happened.
    is_interleaved: bool,
}

impl Runner {
    /// # Errors
    /// When the executable is not there.
    pub fn new(
        privilege: Privilege,
        avtrace: PathBuf,
        reports: PathBuf,
        limit: u64,
        capture: String,
    ) -> Result<Self> {
        let avtrace = fs::canonicalize(&avtrace)
            .with_context(|| format!("there is no {}", avtrace.display()))?;
        Ok(Self { privilege, avtrace, reports, limit: Duration::from_secs(limit), capture })
    }

    /// Runs a program by itself and then under avtrace.
    ///
    /// # Errors
    /// When it fails, or is not done in time.
    pub fn sample(&self, case: &Case, manifest: Option<&Manifest>) -> Result<Outcome> {
        let mut native = Command::new(&case.words[0]);
        native.args(&case.words[1..]);
        let native = self.run(native, case).context("by itself")?;
        let report = self.reports.join(&case.name).with_extension("json");
        let mut traced = self.as_root();
        // A status of 0 also when something was found, so that any other is the program's.
        traced.args(["run", "--error-exitcode", "0", "--capture", &self.capture]);
        traced.args(["--format", "json", "-o"]).arg(&report);
        traced.arg("--").args(&case.words);
        let traced = self.run(traced, case).context("under avtrace")?;
        let json = fs::read_to_string(&report)
            .with_context(|| format!("failed to read {}", report.display()))?;
        let mut as_text = Command::new(&self.avtrace);
        as_text.args(["report", "--error-exitcode", "0"]).arg(&report);
        let text = process::answer(&mut as_text).context("the report cannot be shown as text")?;
        Ok(Outcome {
            seconds: (native.seconds, traced.seconds),
            is_interleaved: traced.is_interleaved,
            report: Report::parse(&json, manifest)?,
            lines: text.lines().count(),
        })
    }

    fn as_root(&self) -> Command {
        self.privilege.command(&self.avtrace).unwrap_or_else(|| Command::new(&self.avtrace))
    }

    /// Runs a command and does the work of its program.
    fn run(&self, mut command: Command, case: &Case) -> Result<Ran> {
        let path = |end: &str| self.reports.join(format!("{}.{end}", case.name));
        let (output, errors) = (path("stdout"), path("stderr"));
        let file = |path: &PathBuf| {
            File::create(path).with_context(|| format!("failed to create {}", path.display()))
        };
        command.stdin(Stdio::null()).stdout(file(&output)?).stderr(file(&errors)?).process_group(0);
        let what = process::display(&command);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("failed to run `{what}`"))?;
        let (seconds, status, mut is_interleaved) = match case.load.socket() {
            None => {
                let status = wait_within(child, self.limit, self.privilege)?;
                (started.elapsed().as_secs_f64(), status, false)
            }
            Some(socket) => self.serve(child, socket, case)?,
        };
        match status {
            None => bail!("not done after {} s", self.limit.as_secs()),
            Some(false) if !case.dies => {
                let said = fs::read_to_string(&errors).unwrap_or_default();
                let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
                bail!("it failed, and said last: {last}");
            }
            Some(_) => {}
        }
        // Output of a compressor may be large, and is no text.
        let mut head = Vec::new();
        File::open(&output)?.take(4096).read_to_end(&mut head)?;
        is_interleaved |= String::from_utf8_lossy(&head).contains("interleaved: yes");
        Ok(Ran { seconds, is_interleaved })
    }

    /// Has a server work; returns the seconds that it took, the way in which the server ended, and whether the bad
    /// interleaving has happened.
    fn serve(
        &self,
        mut child: Child,
        socket: &Path,
        case: &Case,
    ) -> Result<(f64, Option<bool>, bool)> {
        let group = child.id();
        let began = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if child.try_wait()?.is_some() {
                return Ok((0.0, Some(false), false));
            }
            if began.elapsed() > self.limit {
                signal(self.privilege, "-KILL", group);
                child.wait()?;
                bail!("the server was not there after {} s", self.limit.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let (limit, privilege) = (self.limit, self.privilege);
        let waiting = thread::spawn(move || wait_within(child, limit, privilege));
        let started = Instant::now();
        let server = &case.words[0];
        let worked = case.load.work(server);
        let seconds = started.elapsed().as_secs_f64();
        if worked.is_err() || case.load.shut_down(server).is_err() {
            signal(self.privilege, "-TERM", group);
        }
        let status =
            waiting.join().unwrap_or_else(|_| bail!("the thread that waits has panicked"))?;
        let _gone = fs::remove_file(socket);
        Ok((seconds, status, worked?))
    }
}
