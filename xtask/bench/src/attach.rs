//! `cargo xtask bench attach`: memcached under the load of a few clients on the loopback device, and avtrace that
//! attaches to it and detaches, several times with each back end, inline without a bound on costs and with the default
//! one. Throughput and latency before, meanwhile and afterwards are of the same run, so that other work on the machine
//! weighs on all three.

mod load;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;

use super::capture::Scratch;
use crate::{
    kernels::left_behind,
    process::Privilege,
    setup::{self, apt::Apt},
};
use load::Load;

/// Throughput of memcached before, while and after avtrace is attached to it
#[derive(Parser)]
#[command(name = "cargo xtask bench attach", bin_name = "cargo xtask bench attach")]
struct Options {
    /// Seconds for which avtrace is attached
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seconds of load before and after that
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    around: u64,
    /// Times that avtrace attaches to the same server
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,
    /// Only this back end; `budget` is the inline one with the default `--budget`
    #[arg(long, value_name = "BACK_END", value_parser = ["kernel", "inline", "budget"])]
    capture: Option<String>,
    /// Level of memory accesses that avtrace records: its `--accesses`
    #[arg(long, value_name = "LEVEL", default_value = "auto")]
    accesses: String,
    /// The avtrace binary to measure, instead of building one here
    #[arg(long, value_name = "FILE")]
    avtrace: Option<PathBuf>,
    /// Options of avtrace besides
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Time for the server to answer, and beyond the time to be attached for avtrace to plan, to check what is left, and to
/// write its report.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs it.
///
/// # Errors
/// When something cannot be built or run, a client gets an error, the server ends, or it is not as before.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = match Options::try_parse_from(
        std::iter::once("attach").chain(arguments.iter().map(String::as_str)),
    ) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return Ok(error.print()?),
        Err(error) => bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    ensure!(
        Privilege::detect() == Privilege::Root,
        "the kernel's back end needs root: run it as root"
    );
    setup::run()?;
    if bpf_build::find_on_path("memcached").is_none() {
        Apt::detect().context("memcached not found; install it")?.install(&["memcached"])?;
    }
    let avtrace = super::avtrace(options.avtrace.as_deref())?;
    let scratch = Scratch::new()?;
    println!(
        "\n{:8}{:>6}{:>10}{:>9}{:>8}{:>6}{:>13}{:>8}{:>10}",
        "backend", "time", "before/s", "attached", "after", "p99", "events", "lost", "detached"
    );
    let paths = Paths { avtrace: &avtrace, scratch: &scratch.0 };
    for back_end in ["kernel", "inline", "budget"] {
        if options.capture.as_deref().is_some_and(|only| only != back_end) {
            continue;
        }
        let server = Server::start()?;
        let mut load = Load::start(server.port)?;
        for time in 1..=options.times {
            let row = attached(&options, back_end, &paths, &server, &mut load)?;
            println!("{back_end:8}{time:>6}{}", row.shown());
        }
        // An error of any client since its start.
        load.end()?;
        server.end()?;
    }
    println!(
        "\nattached and after: ratios to the throughput before. p99: ratio of the 99th percentile of latencies, \
         attached to before. detached: time from the end of the {} s to the server's own code.\nNo client had an \
         error, and the server went on.",
        options.seconds
    );
    Ok(())
}

/// Outcome of attaching once.
struct Row {
    /// Operations in a second, before.
    before: f64,
    /// Ratios to it, while avtrace is attached and afterwards.
    attached: f64,
    after: f64,
    /// Ratio of the 99th percentile of latencies to that before, while avtrace is attached.
    p99: f64,
    events: u64,
    lost: u64,
    detached: Duration,
}

impl Row {
    fn shown(&self) -> String {
        let Self { before, attached, after, p99, events, lost, detached } = self;
        let detached = format!("{:.1} s", detached.as_secs_f64());
        format!(
            "{before:>10.0}{attached:>9.2}{after:>8.2}{p99:>6.1}{events:>13}{lost:>8}{detached:>10}"
        )
    }
}

/// The executable that is measured, and a directory for its files.
struct Paths<'a> {
    avtrace: &'a Path,
    scratch: &'a Path,
}

/// Attaches once, and measures the throughput around that.
fn attached(
    options: &Options,
    back_end: &str,
    paths: &Paths<'_>,
    server: &Server,
    load: &mut Load,
) -> Result<Row> {
    let around = Duration::from_secs(options.around);
    let before = load.measure(|| thread::sleep(around))?;
    let report = paths.scratch.join("report.json");
    let pid = server.child.id();
    let mut command = Command::new(paths.avtrace);
    let capture: &[&str] = match back_end {
        "kernel" => &["--capture", "kernel"],
        "inline" => &["--capture", "inline", "--budget", "none"],
        _ => &[],
    };
    command.args(["attach", "--pid", &pid.to_string()]).args(capture);
    command.args(["--accesses", &options.accesses]);
    command.args(["--duration", &format!("{}s", options.seconds), "--format", "json", "-o"]);
    command.arg(&report).args(&options.rest).stdin(Stdio::null()).stdout(Stdio::null());
    let mut tracer =
        Ended(command.stderr(Stdio::piped()).spawn().context("failed to run avtrace")?);
    let mut errors = BufReader::new(tracer.0.stderr.take().context("avtrace has no errors")?);
    let mut said = String::new();
    while !said.contains("attached to process") {
        let length = errors.read_line(&mut said)?;
        ensure!(length > 0, "avtrace has not attached: {said}");
    }
    // It waits for nobody who reads that.
    let rest = thread::spawn(move || drop(errors.read_to_string(&mut String::new())));
    let seconds = Duration::from_secs(options.seconds);
    let attached = load.measure(|| thread::sleep(seconds))?;
    let end = Instant::now();
    left_behind::await_own_code(pid)?;
    let detached = end.elapsed();
    let status = tracer.within(PATIENCE)?;
    let _ = rest.join();
    ensure!(matches!(status, Some(0 | 66)), "avtrace has ended with {status:?}: {said}");
    let of_server = fs::read_to_string(format!("/proc/{pid}/status"))?;
    ensure!(of_server.contains("TracerPid:\t0\n"), "the server is still traced");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    ensure!(!maps.contains("avtrace"), "memory of avtrace is left in the server");
    let after = load.measure(|| thread::sleep(around))?;
    let text = fs::read_to_string(&report).context("avtrace has written no report")?;
    let document: Value = serde_json::from_str(&text).context("the report is no JSON")?;
    let count = |name: &str| document["counts"][name].as_u64().context("a count is missing");
    Ok(Row {
        before: before.throughput,
        attached: attached.throughput / before.throughput,
        after: after.throughput / before.throughput,
        p99: attached.p99.as_secs_f64() / before.p99.as_secs_f64(),
        events: count("events")?,
        lost: count("lost_events")?,
        detached,
    })
}

/// A process that is killed when this is dropped.
struct Ended(Child);

impl Ended {
    /// Waits for its end; returns its status.
    fn within(&mut self, limit: Duration) -> Result<Option<i32>> {
        let start = Instant::now();
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status.code()),
                None if start.elapsed() > limit => bail!("avtrace does not end"),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A memcached of Debian that listens on the loopback device, as an ordinary user.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Result<Self> {
        // Free a moment ago.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-u", "nobody"]);
        let child = command.stdin(Stdio::null()).spawn().context("failed to run memcached")?;
        let server = Self { child, port };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(start.elapsed() < PATIENCE, "memcached does not answer");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Ends it; it must have run until now.
    fn end(mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "memcached has ended");
        let mut there = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        there.write_all(b"version\r\n")?;
        let mut answer = String::new();
        BufReader::new(there).read_line(&mut answer)?;
        ensure!(answer.starts_with("VERSION "), "memcached has answered `{}`", answer.trim_end());
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
