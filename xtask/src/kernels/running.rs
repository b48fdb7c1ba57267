//! Processes of the suite: their output in files, and a limit to their time.

use std::{
    fmt,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Time for one process, in an emulated machine.
const LIMIT: Duration = Duration::from_secs(900);
/// User and group of those who are not root.
const ORDINARY: u32 = 1000;

/// The folder of avtrace and the programs to trace.
const FOLDER: &str = "/suite";

/// Path of a program of the suite.
pub fn program(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// User of a process.
#[derive(Clone, Copy, Debug)]
pub enum User {
    /// Root.
    Root,
    /// User without any capability.
    Ordinary,
}

/// A running process; dropping it kills it.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    start: Instant,
}

/// Result of a process.
pub struct Ended {
    /// Exit status; `None` when a signal has ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    stderr: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code =
            self.code.map_or_else(|| "killed".to_owned(), |code| format!("exit status {code}"));
        write!(formatter, "{code}: {}", self.stderr.trim())
    }
}

impl Running {
    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub fn start(program: &str, arguments: &[&str], user: User) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let [stdout, stderr] =
            ["out", "err"].map(|kind| PathBuf::from(format!("/tmp/{number}.{kind}")));
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", "/tmp")
            .env("PATH", FOLDER)
            .current_dir("/tmp")
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        if matches!(user, User::Ordinary) {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        let child = command.spawn().with_context(|| format!("failed to run {program}"))?;
        Ok(Self { child, stdout, stderr, start: Instant::now() })
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its standard output has this text.
    ///
    /// # Errors
    /// When it ends before, or does not print it in time.
    pub fn await_stdout(&mut self, text: &str) -> Result<()> {
        self.await_text(self.stdout.clone(), text)
    }

    /// Waits until its standard error has this text.
    ///
    /// # Errors
    /// As for [`await_stdout`](Self::await_stdout).
    pub fn await_stderr(&mut self, text: &str) -> Result<()> {
        self.await_text(self.stderr.clone(), text)
    }

    fn await_text(&mut self, file: PathBuf, text: &str) -> Result<()> {
        loop {
            let has_ended = self.child.try_wait()?.is_some();
            let printed = fs::read_to_string(&file)?;
            if printed.contains(text) {
                return Ok(());
            }
            if has_ended || self.start.elapsed() > LIMIT {
                let errors = fs::read_to_string(&self.stderr)?;
                bail!("`{text}` was not printed, but: {printed} {errors}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends it `SIGINT`.
    ///
    /// # Errors
    /// When it has ended.
    pub fn interrupt(&self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.pid())?), Signal::SIGINT)?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn wait(mut self) -> Result<Ended> {
        loop {
            let status = self.child.try_wait()?;
            let [stdout, stderr] =
                [&self.stdout, &self.stderr].map(|file| fs::read(file).unwrap_or_default());
            let [stdout, stderr] =
                [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            if let Some(status) = status {
                return Ok(Ended { code: status.code(), stdout, stderr });
            }
            if self.start.elapsed() > LIMIT {
                bail!("not done after {} s: {stderr}", LIMIT.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
