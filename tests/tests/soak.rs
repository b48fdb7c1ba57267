//! A long time attached to a program that only locks and unlocks: memory that does not grow, no loss, and a
//! program that has its own code afterwards. `AVTRACE_SOAK_SECONDS` says how long, by default half an hour.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use tests::{Report, c, process::Running, tracer::avtrace};

/// Time after which memory must not grow any more, if the run is longer than twice that.
const FIRST: u64 = 60;

/// Returns the resident memory of a process in KiB; `None` when it has ended.
fn resident_now(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[test]
#[ignore = "takes half an hour: run with --long"]
fn memory_stays_flat_for_as_long_as_avtrace_is_attached() {
    let wanted = std::env::var("AVTRACE_SOAK_SECONDS").ok();
    let seconds: u64 = wanted.map_or(1800, |wanted| wanted.parse().expect("a number"));
    let limit = Duration::from_secs(2 * seconds + 600);
    // A build would count as time of the program.
    let _ = avtrace();
    // Probes that somebody else has meanwhile in all processes, as `--perf-probes` has, are in the shared C library.
    let program = c("long_run", &["-g", "-O2", "-static"]).path;
    let mut command = Command::new(&program);
    // It is still at work when avtrace detaches, also where that takes its time.
    let mut running = Running::start(command.arg((seconds + 60).to_string()), None, limit);
    running.await_stdout("ready\n");
    let pid = running.pid();
    let folder = tests::folder();
    let file = folder.path().join("report.json");
    let mut command = Command::new(avtrace());
    command.args(["attach", "--capture", "inline", "--budget", "none"]);
    command.args(["--lossless", "--accesses", "sync"]);
    command.args(["--pid", &pid.to_string(), "--duration", &format!("{seconds}s")]);
    let mut attached =
        Running::start(command.args(["--format", "json", "-o"]).arg(&file), None, limit);
    attached.await_stderr("attached to process");
    let began = Instant::now();
    let first = Duration::from_secs(FIRST.min(seconds / 2));
    let (mut early, mut late) = (0, 0);
    let status = attached.await_end(|avtrace| {
        let resident = resident_now(avtrace).unwrap_or(0);
        let peak = if began.elapsed() < first { &mut early } else { &mut late };
        *peak = resident.max(*peak);
    });
    eprintln!("resident memory: at most {early} KiB in the first {first:?}, {late} KiB later");
    assert_eq!(status.code(), Some(0), "{}", attached.stderr());
    let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
    assert_eq!(report.counts.lost_events, 0, "{:#}", report.not_seen);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let regions = report.counts.transactions - report.counts.unary_transactions;
    assert!(regions > seconds, "{:?}", report.counts);
    eprintln!("{:?}", report.counts);
    // Batches in flight vary by some MiB.
    assert!(late < early + early / 10 + 8 * 1024, "{early} KiB, then {late} KiB");
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("it is at work").flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
    }
    let ended = running.wait();
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
}
