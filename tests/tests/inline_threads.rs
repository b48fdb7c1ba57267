//! Threads with probes in the traced process: many short ones, those that the C library does not know, those that are
//! cancelled or whose signal handlers do not return. Output and status are those of the program alone, and no event is
//! lost. And what becomes of the program when avtrace is killed, at any moment.

use std::{
    fs,
    time::{Duration, Instant},
};

use tests::{Avtrace, Program, Report, c, cpp, machine, process::resident_kib, tracer::native};

/// Memory in KiB that avtrace may need for each thread that has ended: half of that is for its place in the report. A
/// ring has more.
const KIB_PER_THREAD: u64 = 1;

/// Runs a program alone and with probes. Returns the report of a run without losses.
fn same(name: &str, arguments: &[&str]) -> Report {
    same_program(&c(name, &["-g", "-O2"]), arguments)
}

fn same_program(program: &Program, arguments: &[&str]) -> Report {
    let alone = native(&program.path, arguments, None);
    let (ended, report) = Avtrace::on(program).inline().arguments(arguments).report();
    assert_eq!((ended.code, &ended.stdout), (alone.code, &alone.stdout), "{}", ended.stderr);
    check(&report);
    report
}

/// Runs unoptimised and optimised code whose handlers of signals depend on the place that they interrupt.
fn same_handlers(kind: &str, times: &str) {
    for optimisation in ["-O0", "-O2"] {
        let program = cpp("handlers", &["-g", optimisation, "-fnon-call-exceptions"]);
        let report = same_program(&program, &[kind, times]);
        assert!(report.counts.events > 0, "the code has no probes");
    }
}

/// Checks that no event was lost, all records were decoded, and the run has no findings.
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
fn a_process_ends_while_its_threads_create_others() {
    let program = c("ends_while_creating", &["-g", "-O2"]);
    for _ in 0..tests::runs(3) {
        assert_eq!(Avtrace::on(&program).inline().run().code, Some(6));
    }
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
fn asynchronous_cancellation_runs_destructors() {
    same_handlers("cancel", "100");
}

#[test]
fn exceptions_leave_handlers_of_faults() {
    same_handlers("throw", "200");
}

#[test]
fn handlers_of_faults_jump_out() {
    same_handlers("jump", "200");
}

#[test]
fn an_instruction_is_executed_again_after_its_fault_was_mended() {
    same_handlers("mend", "200");
    same_handlers("restart", "200");
}

#[test]
fn handlers_of_faults_return_behind_the_instruction() {
    same_handlers("skip", "200");
}

/// Compilers at run time rely on that, whose handlers turn faults of their code into exceptions.
#[test]
fn handlers_of_faults_decode_generated_code() {
    same_handlers("generated", "200");
}

/// The documented limit: such a handler reads a jump if a patch begins there, and probes are not kept out of the
/// program's own code.
#[test]
fn handlers_of_faults_decode_own_code_where_no_probes_are() {
    let program = cpp("handlers", &["-g", "-O2", "-fnon-call-exceptions"]);
    let alone = native(&program.path, ["decode", "200"], None).stdout;
    assert_eq!(alone, "decoded: 200, not the program's own: 0, sum 1000\n");
    let traced = |options: [&str; 2]| {
        let run = Avtrace::on(&program).inline().arguments(["decode", "200"]);
        run.options(options).run().stdout
    };
    assert_eq!(traced(["--own-code", "leave"]), alone);
    let patched = "decoded: 200, not the program's own: 200, sum 1000\n";
    assert_eq!(traced(["--atomic", "load_first"]), patched);
}

#[test]
fn backtraces_of_a_sampling_profiler_are_whole() {
    same_handlers("profile", "200");
}

#[test]
fn a_division_by_zero_is_at_its_own_address() {
    same_handlers("divide", "200");
}

#[test]
fn contexts_that_a_handler_switches_between_go_on() {
    same_handlers("switch", "100");
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
