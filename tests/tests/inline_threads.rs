//! Threads with probes in the traced process: many short ones, those that the C library does not know, those that are
//! cancelled or whose signal handlers do not return. Output and status are those of the program alone, and no event is
//! lost. And what becomes of the program when avtrace is killed, at any moment.

use std::{
    fs,
    time::{Duration, Instant},
};

use tests::{Avtrace, Report, c, machine, process::resident_kib, tracer::native};

/// Memory in KiB that avtrace may need for each thread that has ended: half of that is for its place in the report. A
/// ring has more.
const KIB_PER_THREAD: u64 = 1;

/// Runs a program alone and with probes. Returns the report of a run that has lost nothing.
fn same(name: &str, arguments: &[&str]) -> Report {
    let program = c(name, &["-g", "-O2"]);
    let alone = native(&program.path, arguments, None);
    let (ended, report) = Avtrace::on(&program).inline().arguments(arguments).report();
    assert_eq!((ended.code, &ended.stdout), (alone.code, &alone.stdout), "{}", ended.stderr);
    check(&report);
    report
}

/// Checks that no event was lost, all records were decoded, and nothing was found.
fn check(report: &Report) {
    let notes = report.not_seen["notes"].to_string();
    assert_eq!(report.counts.lost_events, 0, "{notes}");
    assert!(!notes.contains("could not be decoded"), "{notes}");
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

#[test]
fn short_threads() {
    assert!(same("many_threads", &["2000"]).counts.transactions >= 2000);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn a_hundred_thousand_short_threads() {
    let program = c("many_threads", &["-g", "-O2"]);
    let folder = tests::folder();
    let file = folder.path().join("report.json");
    let peak = |threads: u64| {
        let run = Avtrace::on(&program).inline().arguments([threads.to_string()]);
        let run = run.options(["--format", "json", "-o"]).options([&file]);
        let mut running = run.limit(Duration::from_mins(30)).start();
        let mut peak = 0;
        let status = running.await_end(|pid| peak = peak.max(resident_kib(pid).unwrap_or(0)));
        assert_eq!(status.code(), Some(0), "{}", running.stderr());
        assert_eq!(running.await_closed_stdout(), format!("count: {threads}\n"));
        let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
        check(&report);
        assert!(report.counts.transactions >= threads);
        peak
    };
    let (few, many) = (2000, 100_000);
    let bound = (many - few) * KIB_PER_THREAD;
    let (few, many) = (peak(few), peak(many));
    eprintln!("peak resident memory: {few} KiB with few threads, {many} KiB with many");
    assert!(many < few + bound, "{few} KiB, then {many} KiB");
}

#[test]
fn threads_without_the_c_library() {
    assert!(same("bare_threads", &["300"]).counts.transactions >= 300);
}

#[test]
fn threads_that_are_cancelled_in_regions() {
    same("cancelled_regions", &["100"]);
}

#[test]
fn handlers_that_jump_out_of_probes() {
    same("signals_out", &["1000"]);
}

/// Kills avtrace at moments of a run, one in each part of it, from before the program's start until after its end. The
/// program has not started, or does all that it does alone.
fn kill(moments: u32) {
    if !machine::have("sh") {
        return machine::skip("no sh");
    }
    let program = c("outlives_tracer", &["-g", "-O2"]);
    let folder = tests::capture::folder();
    let [started, done] = ["started", "done"].map(|name| folder.path().join(name));
    let script = format!(
        "echo started; rm -f {started} {done}; {} {started} {done}; echo $?; cat {done}",
        program.path.display(),
        started = started.display(),
        done = done.display(),
    );
    let arguments = ["-c", &script];
    let start = || {
        let run = Avtrace::on_path("/bin/sh").inline().options(["--follow-forks"]);
        run.arguments(arguments).start()
    };
    let alone = native("/bin/sh", arguments, None);
    let began = Instant::now();
    let mut whole = start();
    assert_eq!(whole.await_closed_stdout(), alone.stdout, "{}", whole.stderr());
    whole.await_end(|_| {});
    let part = began.elapsed() / moments;
    let mut survivors = 0;
    for moment in 0..moments {
        // Anywhere in its part, the same in each run: steps of the golden ratio spread evenly.
        let after = part * moment + part * (moment * 618 % 1000) / 1000;
        let mut running = start();
        std::thread::sleep(after);
        running.signal("KILL");
        let output = running.await_closed_stdout();
        running.await_end(|_| {});
        let has_started = !output.is_empty();
        assert!(!has_started || output == alone.stdout, "after {after:?}: {output:?}");
        survivors += u32::from(has_started);
    }
    assert!(survivors > 0);
}

#[test]
fn the_program_goes_on_when_avtrace_is_killed() {
    kill(3);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn the_program_goes_on_whenever_avtrace_is_killed() {
    kill(50);
}
