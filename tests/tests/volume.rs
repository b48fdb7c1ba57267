//! Many events without a loss, and memory that does not grow with them.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use tests::process::{child_of, resident_kib};
use tests::tracer::captures_inline;
use tests::{Avtrace, Report, c, require_bpf};

/// These runs take the machine for themselves.
static ALONE: Mutex<()> = Mutex::new(());

/// Room for all events of a run: losses must not depend on how fast this machine reads.
const ROOM: [&str; 2] = ["--buffer", "512"];

#[test]
fn a_million_lock_operations_lose_no_event() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let pairs_each = 250_000;
    let arguments = ["2", &pairs_each.to_string()];
    let (ended, report) = Avtrace::on(&program).options(ROOM).arguments(arguments).report();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{:#}", report.not_seen);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let regions = 2 * pairs_each;
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, regions);
    assert!(
        report.counts.events >= 4 * regions,
        "begin, acquire, release, end: {:?}",
        report.counts
    );
}

/// Each thread takes over the lock, and data, from another one, so that cycles lead through hundreds of them.
#[test]
fn cycles_through_hundreds_of_threads_come_to_an_end() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("crowd", &["-g", "-O0", "-static"]);
    let run = Avtrace::on(&program).limit(Duration::from_mins(10)).arguments(["400"]);
    let (ended, report) = run.report();
    assert_eq!(ended.stdout, "10000\n", "{}", ended.stderr);
    assert!([Some(0), Some(66)].contains(&ended.code), "{}", ended.stderr);
    assert_eq!(report.counts.threads, 401);
    let edges: usize = report.violations.iter().map(|violation| violation.edges.len()).sum();
    assert!(edges <= 16 * 10_000, "{edges}");
}

#[test]
fn operations_outside_regions_are_counted_too() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let (ended, report) =
        Avtrace::on(&program).options(ROOM).arguments(["2", "50000", "bare"]).report();
    assert_eq!((ended.code, report.counts.lost_events), (Some(0), 0), "{}", ended.stderr);
    assert!(report.counts.events >= 200_000, "{:?}", report.counts);
    assert_eq!(report.counts.transactions, report.counts.unary_transactions);
}

#[test]
fn the_busiest_function_is_named_with_the_remedy() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let options = [&ROOM[..], &["--atomic", "bare"]].concat();
    let ended = Avtrace::on(&program).options(options).arguments(["1", "550000", "bare"]).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let busy = |line: &str| line.starts_with("note: region `bare` makes 99 % of all events");
    assert!(ended.stderr.lines().any(busy), "{}", ended.stderr);
    assert!(ended.stderr.contains("`--not-atomic 'bare'`"), "{}", ended.stderr);
}

#[test]
fn what_is_lost_is_counted_and_makes_nothing_up() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let arguments = ["2", "200000"];
    let (ended, whole) = Avtrace::on(&program).options(ROOM).arguments(arguments).report();
    assert_eq!((ended.code, whole.counts.lost_events), (Some(0), 0), "{}", ended.stderr);

    // With a small buffer, and nobody who reads it until the program has ended.
    let folder = tests::folder();
    let file = folder.path().join("report.json");
    let loses = if captures_inline() { &["--drop"][..] } else { &["--buffer", "1"] };
    let mut running = Avtrace::on(&program)
        .options(loses)
        .options(["--format", "json", "-o"])
        .options([&file])
        .arguments(arguments)
        .start();
    let status = |pid| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let program_is = |parent, state: &str| {
        child_of(parent, &program.path).is_some_and(|pid| status(pid).contains(state))
    };
    running.await_that("the program runs", |pid| program_is(pid, "Threads:\t3"));
    let tracee = child_of(running.pid(), &program.path).expect("the program");
    running.signal("STOP");
    if captures_inline() {
        // The ends of threads wait for their tracer.
        let is_held = |task: &fs::DirEntry| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            status.contains("State:\tt")
        };
        running.await_that("both threads are done", |_| {
            let tasks = fs::read_dir(format!("/proc/{tracee}/task")).into_iter().flatten();
            tasks.flatten().filter(|task| is_held(task)).count() == 2
        });
    } else {
        running.await_that("the program has ended", |_| status(tracee).contains("State:\tZ"));
    }
    running.signal("CONT");
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.counts.lost_events > 0, "{:?}", report.counts);
    // A few records, of threads, are not events one to one.
    let accounted_for = report.counts.events + report.counts.lost_events;
    assert!(
        accounted_for.abs_diff(whole.counts.events) < 50,
        "{:?}, {:?}",
        report.counts,
        whole.counts
    );
}

#[test]
fn memory_stays_flat() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let peak = |pairs: u64| {
        let mut running = Avtrace::on(&program).arguments(["2", &pairs.to_string()]).start();
        let mut peak = 0;
        let status = running.await_end(|pid| peak = peak.max(resident_kib(pid).unwrap_or(0)));
        assert_eq!(status.code(), Some(0), "{}", running.stderr());
        assert!(peak > 0, "its memory was seen");
        peak
    };
    let (few, many) = (peak(25_000), peak(500_000));
    eprintln!("peak resident memory: {few} KiB with few records, {many} KiB with many");
    // How much of what was read is not checked yet depends on how the threads of avtrace take turns: up to 46 MB.
    // Without a bound it would be hundreds here, where the checker is slower than the reader.
    let in_flight = 64 * 1024;
    assert!(many < few + few / 4 + in_flight, "{few} KiB, then {many} KiB");
}
