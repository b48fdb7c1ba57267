//! Runs with a clock and a limit.

use std::{
    ffi::OsString,
    fs::File,
    io::Write as _,
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    memcached,
    programs::{Load, Program},
    tools::{Found, Place, Tool},
};
use crate::process::{self, Privilege};

/// Time limit for a server's start, and for its end.
const SERVER: Duration = Duration::from_secs(120);

/// Time from the request to end until the kill.
const GRACE: Duration = Duration::from_secs(5);

/// A run under a clock.
#[derive(Debug, Clone)]
pub struct Run {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Seconds of a processor, of the program and the tool from start to end.
    pub processor: f64,
    /// The tool's report; `None` when the run took longer than it may, and was ended.
    pub found: Option<Found>,
}

/// Runs a program under a tool, for at most `limit`.
///
/// # Errors
/// When it fails; the message has the last lines of its output.
pub fn run(
    tool: Tool,
    place: &Place,
    program: &Program,
    words: &[OsString],
    limit: Duration,
) -> Result<Run> {
    let c_library = crate::lock_pairs::c_library(Path::new(&words[0]))?;
    let mut command = tool.command(place, words, &c_library)?;
    let errors = place.scratch.join("stderr");
    let stderr = File::create(&errors).context("failed to create a file for error messages")?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0);
    let what = process::display(&command);
    let before = processor_time()?;
    let started = Instant::now();
    let child = command.spawn().with_context(|| format!("failed to run `{what}`"))?;
    let (elapsed, status) = match &program.load {
        Load::Itself => {
            let status = wait_within(child, limit, place.privilege)?;
            (started.elapsed(), status)
        }
        Load::Requests { socket, operations } => {
            serve(child, socket, *operations, limit, place.privilege)?
        }
    };
    let (seconds, processor) = (elapsed.as_secs_f64(), processor_time()? - before);
    match status {
        None => Ok(Run { seconds, processor, found: None }),
        Some(true) => Ok(Run { seconds, processor, found: Some(tool.found(place)?) }),
        Some(false) => {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            bail!("failed; it said last: {last}");
        }
    }
}

/// Seconds of a processor that all children which have ended took, and what these have waited for.
fn processor_time() -> Result<f64> {
    /// The kernel's unit in files, on all architectures in use (`USER_HZ`).
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").context("failed to read times")?;
    let ticks = children_ticks(&text).context("/proc/self/stat has no times of children")?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Time in and out of the kernel, fields `cutime` and `cstime` of a `stat` file.
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let mut fields = behind_name.split_whitespace().skip(13);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Waits for the end; returns whether it was a success, or `None` when it was not in time.
pub fn wait_within(
    mut child: Child,
    limit: Duration,
    privilege: Privilege,
) -> Result<Option<bool>> {
    let group = child.id();
    let (ended, end) = mpsc::channel::<()>();
    let guard = thread::spawn(move || {
        let is_late = |limit| end.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if !is_late(limit) {
            return false;
        }
        signal(privilege, "-TERM", group);
        if is_late(GRACE) {
            signal(privilege, "-KILL", group);
        }
        true
    });
    let status = child.wait();
    drop(ended);
    let was_late = guard.join().unwrap_or(false);
    let status = status.context("failed to wait for a run")?;
    Ok((!was_late).then(|| status.success()))
}

/// Sends a signal to a group of processes. Processes that have ended by then are no error.
pub fn signal(privilege: Privilege, signal: &str, group: u32) {
    let mut kill = privilege.command("kill").unwrap_or_else(|| Command::new("kill"));
    let _ended = kill.args([signal, "--", &format!("-{group}")]).stderr(Stdio::null()).status();
}

/// Has a running server work; returns the time that the operations took, and the way in which it ended.
fn serve(
    mut child: Child,
    socket: &Path,
    operations: u64,
    limit: Duration,
    privilege: Privilege,
) -> Result<(Duration, Option<bool>)> {
    let group = child.id();
    let began = Instant::now();
    while UnixStream::connect(socket).and_then(|mut there| there.write_all(b"quit\r\n")).is_err() {
        if child.try_wait()?.is_some() {
            return Ok((Duration::ZERO, Some(false)));
        }
        if began.elapsed() > SERVER {
            signal(privilege, "-KILL", group);
            child.wait()?;
            return Ok((began.elapsed(), Some(false)));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let started = Instant::now();
    let waiting = thread::spawn(move || wait_within(child, limit + SERVER, privilege));
    let (done, doing) = mpsc::channel();
    let path = socket.to_owned();
    thread::spawn(move || done.send(memcached::exercise(&path, operations)));
    let result = doing.recv_timeout(limit);
    let elapsed = started.elapsed();
    match &result {
        Ok(_) => memcached::shut_down(socket).context("memcached is gone")?,
        Err(_) => signal(privilege, "-TERM", group),
    }
    let status = waiting.join().unwrap_or_else(|_| bail!("the thread that waits has panicked"))?;
    let _gone = std::fs::remove_file(socket);
    match result {
        Ok(result) => {
            result.context("memcached's client has failed")?;
            Ok((elapsed, status))
        }
        Err(_) => Ok((elapsed, None)),
    }
}

/// The middle value, or the mean of the two middle values; 0 for an empty slice.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (0, 0) => 0.0,
        (middle, 0) => f64::midpoint(values[middle - 1], values[middle]),
        (middle, _) => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_past_its_limit_is_ended() {
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let ended = wait_within(child, Duration::from_millis(1), Privilege::Root).unwrap();
        assert_eq!(ended, None);
        let child = Command::new("false").process_group(0).spawn().unwrap();
        let ended = wait_within(child, Duration::from_secs(600), Privilege::Root).unwrap();
        assert_eq!(ended, Some(false));
    }

    #[test]
    fn times_of_children_are_behind_the_name() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 98 0 0 0 5 6 30 4 20 0 1 0";
        assert_eq!(children_ticks(stat), Some(34));
        assert!(processor_time().unwrap() >= 0.0);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }
}
