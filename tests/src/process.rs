//! Running a process with a time limit, in its own process group, its output collected. No knowledge of
//! avtrace.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Default limit of the duration of a run. A run takes a second or two; a slow machine may need more, and a busy one
/// has more.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

const POLL: Duration = Duration::from_millis(5);

/// End and output of a process.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// Output of the process and its children to standard output.
    pub stdout: String,
    /// Output of the process and its children to standard error.
    pub stderr: String,
}

/// A process that was started. It is killed, with its group, when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    described: String,
    deadline: Instant,
    stdout: Stream,
    stderr: Stream,
    ended: bool,
}

impl Running {
    /// Starts a command as the leader of a new process group, with `input` as its standard input. The limit is for
    /// a machine without other work.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command, input: Option<Vec<u8>>, limit: Duration) -> Self {
        // They are for the tests; to avtrace they would be options.
        for variable in ["AVTRACE_CAPTURE", "AVTRACE_ACCESSES"] {
            if !command.get_envs().any(|(name, _)| name == variable) {
                command.env_remove(variable);
            }
        }
        let described = format!("{command:?}");
        command
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot run {described}: {error}"));
        if let Some(input) = input {
            let mut stdin = child.stdin.take().expect("a pipe");
            // The process may end without reading all of it.
            thread::spawn(move || stdin.write_all(&input));
        }
        let stdout = Stream::collect(child.stdout.take().expect("a pipe"));
        let stderr = Stream::collect(child.stderr.take().expect("a pipe"));
        let deadline = Instant::now() + limit.mul_f64(busyness());
        Self { child, described, deadline, stdout, stderr, ended: false }
    }

    /// The id of the process and of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process or a child of it has written `text` to standard output.
    ///
    /// # Panics
    /// When standard output is closed before, or the time is over.
    pub fn await_stdout(&mut self, text: &str) {
        if !self
            .stdout
            .wait(self.deadline, |written, closed| closed || contains(written, text.as_bytes()))
        {
            self.give_up(&format!("did not write {text:?}"));
        }
        if !contains(&self.stdout.so_far(), text.as_bytes()) {
            self.give_up(&format!("closed its output and did not write {text:?}"));
        }
    }

    /// Waits until the process or a child of it has written `text` to standard error.
    ///
    /// # Panics
    /// When standard error is closed before, or the time is over.
    pub fn await_stderr(&mut self, text: &str) {
        let is_there = |written: &[u8], _| contains(written, text.as_bytes());
        let may_come = |written: &[u8], closed| closed || is_there(written, closed);
        if !self.stderr.wait(self.deadline, may_come) || !is_there(&self.stderr.so_far(), true) {
            self.give_up(&format!("did not write {text:?} to standard error"));
        }
    }

    /// Waits until nobody has standard output open any more, and returns all that was written to it. Children
    /// that outlive the process keep it open.
    ///
    /// # Panics
    /// When the time is over.
    pub fn await_closed_stdout(&mut self) -> String {
        if !self.stdout.wait(self.deadline, |_, closed| closed) {
            self.give_up("kept its output open");
        }
        text(&self.stdout.so_far())
    }

    /// Waits until `condition` holds of the process's id.
    ///
    /// # Panics
    /// When the time is over.
    pub fn await_that(&mut self, what: &str, mut condition: impl FnMut(u32) -> bool) {
        while !condition(self.pid()) {
            if Instant::now() > self.deadline {
                self.give_up(&format!("gave up waiting until {what}"));
            }
            thread::sleep(POLL);
        }
    }

    /// Waits for the process's end, but not for children that outlive it, and calls `meanwhile` now and then.
    ///
    /// # Panics
    /// When the time is over.
    pub fn await_end(&mut self, mut meanwhile: impl FnMut(u32)) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                self.ended = true;
                return status;
            }
            if Instant::now() > self.deadline {
                self.give_up("did not end in time");
            }
            meanwhile(self.pid());
            thread::sleep(POLL);
        }
    }

    /// Waits for the end of the process and of its output.
    ///
    /// # Panics
    /// When the time is over.
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let status = self.await_end(|_| {});
        let stdout = self.await_closed_stdout();
        if !self.stderr.wait(self.deadline, |_, closed| closed) {
            self.give_up("kept its standard error open");
        }
        Ended { code: status.code(), signal: status.signal(), stdout, stderr: self.stderr() }
    }

    /// Output to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        text(&self.stderr.so_far())
    }

    /// Sends a signal, named as in `kill -s`, to the process alone.
    pub fn signal(&self, signal: &str) {
        kill(signal, &self.pid().to_string());
    }

    /// Sends a signal, named as in `kill -s`, to its process group, as a terminal does.
    pub fn signal_group(&self, signal: &str) {
        kill(signal, &format!("-{}", self.pid()));
    }

    fn give_up(&mut self, reason: &str) -> ! {
        self.signal_group("KILL");
        panic!(
            "{} {reason}\nstandard output:\n{}\nstandard error:\n{}",
            self.described,
            text(&self.stdout.so_far()),
            self.stderr()
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that outlives the process is of its group and has its output open.
        if !self.ended || !self.stdout.is_closed() {
            self.signal_group("KILL");
        }
        if !self.ended {
            // It was killed; a failure of even that cannot be reported.
            let _ = self.child.wait();
        }
    }
}

/// Returns the number of threads that want a processor, for each processor, and at least 1: a run gets no larger share.
fn busyness() -> f64 {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = averages.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(1.0);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    f64::max(1.0, load / processors as f64)
}

/// Runs a command to its end.
#[must_use]
pub fn run(command: &mut Command) -> Ended {
    Running::start(command, None, TIME_LIMIT).wait()
}

/// The child of a process that runs this program.
///
/// # Panics
/// When there is no `/proc`.
#[must_use]
pub fn child_of(parent: u32, program: &Path) -> Option<u32> {
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
        entry.ok().and_then(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
    });
    processes.into_iter().find(|pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
            && fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
    })
}

/// The highest resident memory of a process so far, in KiB; `None` when it has ended.
#[must_use]
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// The shell has `kill` built in, with process groups, where no package provides the program.
fn kill(signal: &str, target: &str) {
    let status = Command::new("sh")
        .args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", signal, target])
        .stderr(Stdio::null())
        .status();
    // The process may be gone already.
    status.expect("the shell runs");
}

/// Output that a separate thread reads from a pipe, so that the writer never blocks.
#[derive(Clone, Debug)]
struct Stream(Arc<(Mutex<Collected>, Condvar)>);

#[derive(Debug, Default)]
struct Collected {
    written: Vec<u8>,
    closed: bool,
}

impl Stream {
    fn collect(mut pipe: impl Read + Send + 'static) -> Self {
        let stream = Self(Arc::default());
        let reader = stream.clone();
        thread::spawn(move || {
            let mut buffer = [0; 65536];
            loop {
                let length = pipe.read(&mut buffer).unwrap_or(0);
                let (state, changed) = &*reader.0;
                let mut state = state.lock().expect("no reader panics");
                state.written.extend_from_slice(&buffer[..length]);
                state.closed = length == 0;
                changed.notify_all();
                if state.closed {
                    return;
                }
            }
        });
        stream
    }

    /// Returns whether the condition holds before the deadline. Its arguments are the output and whether it is
    /// complete.
    fn wait(&self, deadline: Instant, condition: impl Fn(&[u8], bool) -> bool) -> bool {
        let (state, changed) = &*self.0;
        let state = state.lock().expect("no reader panics");
        let left = deadline.saturating_duration_since(Instant::now());
        let waiting = |state: &mut Collected| !condition(&state.written, state.closed);
        let (_state, timeout) =
            changed.wait_timeout_while(state, left, waiting).expect("no reader panics");
        !timeout.timed_out()
    }

    fn is_closed(&self) -> bool {
        self.0.0.lock().is_ok_and(|state| state.closed)
    }

    fn so_far(&self) -> Vec<u8> {
        self.0.0.lock().expect("no reader panics").written.clone()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_collected() {
        let ended = run(&mut shell("echo out; echo err >&2; exit 7"));
        assert_eq!((ended.code, ended.signal), (Some(7), None));
        assert_eq!((&*ended.stdout, &*ended.stderr), ("out\n", "err\n"));
    }

    #[test]
    fn a_signal_is_told_from_a_status() {
        let ended = run(&mut shell("kill -s TERM $$"));
        assert_eq!((ended.code, ended.signal), (None, Some(15)));
    }

    #[test]
    fn input_reaches_the_process() {
        let input = b"b\na\n".repeat(50_000);
        let running = Running::start(&mut Command::new("sort"), Some(input), TIME_LIMIT);
        assert_eq!(running.wait().stdout, "a\n".repeat(50_000) + &"b\n".repeat(50_000));
    }

    #[test]
    fn a_group_gets_a_signal() {
        let mut command = shell("sleep 1000 & echo ready; wait");
        let mut running = Running::start(&mut command, None, TIME_LIMIT);
        running.await_stdout("ready");
        running.signal_group("TERM");
        assert_eq!(running.wait().signal, Some(15), "and `sleep` no longer holds the pipes");
    }

    #[test]
    #[should_panic = "did not end in time"]
    fn a_hang_is_killed_with_its_group() {
        let mut command = shell("sleep 1000 & wait");
        let _ = Running::start(&mut command, None, Duration::from_millis(50)).wait();
    }
}
