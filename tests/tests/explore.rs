//! `avtrace explore`: small tests in all interleavings of their threads. Results are the same everywhere: one thread
//! runs at a time, and the order is chosen.

use std::{fs, process::Command, time::Duration};

use serde_json::Value;
use tests::{
    Ended, Program, c, cpp,
    process::Running,
    rust,
    schema::{assert_follows, validator},
    tracer::{avtrace, avtrace_with, avtrace_within},
};

/// Time after which an exploration that was interrupted has surely hung.
const LIMIT: Duration = Duration::from_secs(120);

/// Reads the document of a result, which must follow the schema.
fn document(ended: &Ended) -> Value {
    let result = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:#?}"));
    assert_follows(&result, &validator("docs/explore.schema.json"));
    result
}

/// Explores a program, and returns the document of the result.
fn explore(options: &[&str], program: &Program, arguments: &[&str]) -> (Ended, Value) {
    let path = program.path.to_str().expect("a path in UTF-8");
    let words = [&["explore", "--format", "json"], options, &["--", path], arguments].concat();
    // Hundreds of executions, each of which switches between threads by ptrace. Some machines are slow at that.
    let ended = avtrace_within(LIMIT * 5, words);
    let result = document(&ended);
    (ended, result)
}

fn queue() -> Program {
    c("explore_queue", &["-g", "-O1"])
}

fn snapshot() -> Program {
    c("explore_snapshot", &["-g", "-O1"])
}

const SNAPSHOT: [&str; 4] = ["--atomic", "write_half", "--atomic", "read_pair"];

/// Threads and lines of the steps of a fault.
fn steps(result: &Value) -> Vec<(u64, u64)> {
    let steps = result["fault"]["steps"].as_array().expect("steps");
    let number = |step: &Value, key| step[key].as_u64().expect("a number");
    steps.iter().map(|step| (number(step, "thread"), number(step, "line"))).collect()
}

/// The first row of the paper's table that is about a snapshot, natively.
#[test]
fn a_snapshot_is_decided_by_six_races() {
    let program = snapshot();
    let (ended, result) = explore(&SNAPSHOT, &program, &[]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["schema"], "avtrace-explore/1");
    assert_eq!(result["search"]["all"], true, "{result:#}");
    assert_eq!(result["search"]["faults"], 1, "{result:#}");
    assert_eq!(result["search"]["label"], "Wg", "{result:#}");
    assert_eq!(result["serial"]["orders"], 5, "{result:#}");
    assert_eq!(result["fault"]["kind"], "not-linearizable");
    assert_eq!(result["fault"]["output"], "1 2\n");
    let sequences = result["sequences"].as_array().expect("sequences");
    assert_eq!(sequences.len(), 1, "{result:#}");
    assert_eq!(sequences[0]["pattern"], "Wg{5}G");
    assert_eq!(sequences[0]["races"].as_array().map(Vec::len), Some(6));
    let [write, first, second, again] =
        ["write", "first", "second", "again"].map(|mark| u64::from(program.line(mark)));
    let (one, two) = ((1, write), (1, write));
    assert_eq!(steps(&result), [(2, first), one, two, (2, second), one, two, (2, again)]);
    let variable = |race: usize| sequences[0]["races"][race]["winner"]["variable"].clone();
    assert_eq!([variable(0), variable(3), variable(5)], ["d[0]", "d[1]", "d[0]"]);

    // Its schedule shows it again, and the one of the other order of the last two accesses does not.
    let schedule = result["fault"]["schedule"].as_str().expect("a schedule");
    let options = [&SNAPSHOT[..], &["--replay", schedule]].concat();
    let (again, replayed) = explore(&options, &program, &[]);
    assert_eq!(again.code, Some(66), "{replayed:#}");
    assert_eq!(replayed["fault"]["output"], "1 2\n");
    assert_eq!(replayed["fault"]["schedule"], schedule);
    let options = [&SNAPSHOT[..], &["--replay", "1x4,2x5"]].concat();
    let (good, replayed) = explore(&options, &program, &[]);
    assert_eq!(good.code, Some(0), "{replayed:#}");
    assert_eq!(replayed["fault"], Value::Null);
}

/// Two preemptions are too few for the fault, and three suffice.
#[test]
fn the_fault_of_the_snapshot_needs_three_preemptions() {
    let program = snapshot();
    let at_most = |bound| {
        let options = [&SNAPSHOT[..], &["--preemptions", bound]].concat();
        let (ended, result) = explore(&options, &program, &[]);
        assert_eq!(result["search"]["within_bound"], true, "{result:#}");
        assert_eq!(result["search"]["all"], false, "{result:#}");
        ended.code
    };
    assert_eq!(at_most("2"), Some(0));
    assert_eq!(at_most("3"), Some(66));
}

#[test]
fn a_queue_gives_one_item_to_two_threads() {
    let program = queue();
    let (ended, result) = explore(&["--atomic", "poll_broken"], &program, &[]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["search"]["all"], true, "{result:#}");
    assert_eq!(result["sequences"][0]["pattern"], "G", "{result:#}");
    assert_eq!(result["fault"]["output"], "7 7\n");
    let (read, moved) = (u64::from(program.line("read")), u64::from(program.line("move")));
    assert_eq!(steps(&result), [(1, read), (2, read), (2, moved), (1, moved)]);
    let (ended, result) = explore(&["--atomic", "poll_locked"], &program, &["locked"]);
    assert_eq!(ended.code, Some(0), "{result:#}");
    assert_eq!(result["search"]["all"], true, "{result:#}");
    assert!(result["search"]["interleavings"].as_u64() > Some(1), "{result:#}");
}

#[test]
fn marked_regions_are_operations() {
    let program = c("explore_queue", &["-g", "-O1", "-DMARKED"]);
    let (ended, result) = explore(&[], &program, &[]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["operations"], serde_json::json!(["poll"]));
    assert_eq!(result["fault"]["kind"], "not-linearizable", "{result:#}");
    assert_eq!(result["serial"]["orders"], 2, "{result:#}");
}

/// Without a serial order, a result cannot be compared.
#[test]
fn operations_that_wait_for_one_another_are_not_judged_by_what_they_print() {
    let program = queue();
    let options = ["--atomic", "poll_waiting", "--atomic", "poll_locked"];
    let (ended, result) = explore(&options, &program, &["turns"]);
    assert_eq!(ended.code, Some(0), "{result:#}");
    assert_eq!(result["serial"]["orders"], 0, "{result:#}");
    let path = program.path.to_str().expect("a path in UTF-8");
    let ended = avtrace_with([&["explore"], &options[..], &["--", path, "turns"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.stdout.contains("note: the operations never ran one after the other"),
        "{ended:#?}"
    );
}

#[test]
fn a_correct_stack_has_no_fault() {
    let program = c("explore_stack", &["-g", "-O1"]);
    let (ended, result) = explore(&["--atomic", "push", "--atomic", "pop"], &program, &[]);
    assert_eq!(ended.code, Some(0), "{result:#}");
    assert_eq!(result["search"]["all"], true, "{result:#}");
    assert_eq!(result["serial"]["orders"], 6, "{result:#}");
    assert!(result["search"]["interleavings"].as_u64() > Some(20), "{result:#}");
}

#[test]
fn random_interleavings_are_those_of_the_seed() {
    let program = queue();
    let options = ["--atomic", "poll_broken", "--random", "--seed", "3", "--runs", "20"];
    let run = || {
        let (ended, result) = explore(&options, &program, &[]);
        assert_eq!(ended.code, Some(66), "{result:#}");
        (result["search"].clone(), result["fault"]["schedule"].clone())
    };
    let (search, schedule) = run();
    assert_eq!(search["interleavings"], 20, "{search:#}");
    assert_eq!(run(), (search, schedule.clone()));
    let schedule = schedule.as_str().expect("a schedule");
    let replay = ["--atomic", "poll_broken", "--replay", schedule];
    let (ended, _) = explore(&replay, &program, &[]);
    assert_eq!(ended.code, Some(66));
}

#[test]
fn the_programs_own_assertion_decides_without_operations() {
    let program = queue();
    let (ended, result) = explore(&[], &program, &["asserts"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["fault"]["kind"], "failure");
    assert_eq!(result["fault"]["status"], 4);
    assert_eq!(result["serial"], Value::Null);
    // A program that fails in any case is not to blame for its interleavings.
    let (ended, result) = explore(&[], &program, &["fails"]);
    assert_eq!(ended.code, Some(3), "{result:#}");
    assert_eq!(result["fault"]["without_preemption"], true);
}

#[test]
fn deadlocks_are_found_and_shown_again() {
    let program = queue();
    let (ended, result) = explore(&[], &program, &["deadlock"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["fault"]["kind"], "deadlock");
    assert_eq!(result["search"]["faults"], result["search"]["deadlocks"], "{result:#}");
    let schedule = result["fault"]["schedule"].as_str().expect("a schedule");
    let (ended, result) = explore(&["--replay", schedule], &program, &["deadlock"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["search"]["deadlocks"], 1, "{result:#}");
}

/// The terminal's signal goes to the whole process group, and must not end the program that is being run.
#[test]
fn a_search_that_is_interrupted_reports_what_it_has_run() {
    let program = queue();
    for (mode, status) in [("broken", 66), ("locked", 0)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let runs = directory.path().join("runs");
        let mut command = Command::new(avtrace());
        command.args(["explore", "--format", "json", "--random", "--runs", "1000000"]);
        command.args(["--atomic", "poll_broken", "--"]).arg(&program.path).arg(mode).arg(&runs);
        let mut running = Running::start(&mut command, None, LIMIT);
        // Of the first runs several are a fault, with this seed.
        running.await_that("60 runs", |_| fs::metadata(&runs).is_ok_and(|file| file.len() > 60));
        running.signal_group("INT");
        let ended = running.wait();
        assert_eq!(ended.code, Some(status), "{mode}: {ended:#?}");
        let result = document(&ended);
        assert_eq!(result["search"]["interrupted"], true, "{mode}: {result:#}");
        let count = result["search"]["interleavings"].as_u64().expect("a number");
        assert!((20..1_000_000).contains(&count), "{mode}: {result:#}");
        assert_ne!(result["fault"]["kind"], "failure", "{mode}: {result:#}");
    }
}

/// Threads that wait in loops, sleep, are woken and add without atomicity.
#[test]
fn threads_that_wait_in_any_way_are_followed() {
    let program = cpp("explore_waits", &["-g", "-O1"]);
    for mode in ["spins", "sleeps", "condition"] {
        let (ended, result) = explore(&[], &program, &[mode]);
        assert_eq!(ended.code, Some(0), "{mode}: {result:#}");
        assert_eq!(result["search"]["all"], true, "{mode}: {result:#}");
    }
    let (ended, result) = explore(&[], &program, &["lost-wakeup"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["fault"]["kind"], "deadlock", "{result:#}");
    // One instruction, which reads and writes.
    let (ended, result) = explore(&[], &program, &["adds"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["sequences"][0]["pattern"], "G", "{result:#}");
}

/// Locks of Rust's library are one step each, whatever they do inside; places are in the program.
#[test]
fn locks_and_atomics_of_rust_are_followed() {
    for release in [false, true] {
        let program = rust("explore_takes", release);
        let take = |mode: &'static str| {
            let (ended, result) =
                explore(&["--atomic", "explore_takes::take_*"], &program, &[mode]);
            assert_eq!(result["search"]["all"], true, "{mode}: {result:#}");
            let status = if result["fault"].is_null() { 0 } else { 66 };
            assert_eq!(ended.code, Some(status), "{mode}: {result:#}");
            result
        };
        let result = take("broken");
        assert_eq!(result["fault"]["kind"], "not-linearizable", "{result:#}");
        assert_eq!(result["fault"]["output"], "1 1\n", "{result:#}");
        let lines = ["read", "write"].map(|mark| u64::from(program.line(mark)));
        let of_steps = steps(&result);
        assert!(of_steps.iter().all(|(_, line)| lines.contains(line)), "{result:#}");
        let first = &result["fault"]["steps"][0];
        assert_eq!(first["what"], "locks", "{result:#}");
        assert_eq!(first["variable"], "explore_takes::NEXT", "{result:#}");
        assert_eq!(first["function"], "explore_takes::take_broken", "{result:#}");
        assert!(result["search"]["interleavings"].as_u64() < Some(50), "{result:#}");

        let result = take("split");
        let (load, store) = (u64::from(program.line("load")), u64::from(program.line("store")));
        assert_eq!(steps(&result), [(1, load), (2, load), (2, store), (1, store)], "{result:#}");
        assert_eq!(take("readers")["fault"]["output"], "1 1\n");
        for mode in ["locked", "atomic", "spins"] {
            assert_eq!(take(mode)["fault"], Value::Null, "{mode}");
        }
    }
}

/// Without optimisation, the code of templates is a separate function: its caller is meant.
#[test]
fn places_in_templates_are_those_of_their_callers() {
    let program = cpp("explore_waits", &["-g", "-O0"]);
    let (ended, result) = explore(&[], &program, &["lost-wakeup"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    let steps = result["fault"]["steps"].as_array().expect("steps");
    let in_program =
        |step: &Value| step["file"].as_str().is_some_and(|of| of.ends_with("waits.cpp"));
    assert!(!steps.is_empty() && steps.iter().all(in_program), "{result:#}");
}

#[test]
fn static_programs_are_explored() {
    let program = c("explore_queue", &["-g", "-O1", "-static"]);
    let (ended, result) = explore(&["--atomic", "poll_broken"], &program, &[]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["fault"]["output"], "7 7\n");
    let (ended, result) = explore(&[], &program, &["deadlock"]);
    assert_eq!(ended.code, Some(66), "{result:#}");
    assert_eq!(result["fault"]["kind"], "deadlock");
}

#[test]
fn the_report_names_the_races_and_the_command_that_repeats_them() {
    let program = snapshot();
    let path = program.path.to_str().expect("a path in UTF-8");
    let ended = avtrace_with([&["explore"], &SNAPSHOT[..], &["--", path]].concat());
    assert_eq!(ended.code, Some(66), "{ended:#?}");
    let has = |text: &str| assert!(ended.stdout.contains(text), "{text}:\n{}", ended.stdout);
    has("1 fault in ");
    has(", all there are (");
    has("NOT LINEARIZABLE: no order of the operations");
    has("decided by Wg{5}G, a critical sequence of 6 races:");
    has("  6. G  thread 1 writes d[0] in write_half (explore_snapshot.c:");
    has("again: avtrace explore --replay 2,1x2,2,1x2,2");
    has(" --atomic write_half --atomic read_pair -- ");
}

#[test]
fn what_cannot_be_explored_is_refused() {
    let program = queue();
    let path = program.path.to_str().expect("a path in UTF-8");
    let refused = |words: &[&str], status, message: &str| {
        let ended = avtrace_with([&["explore"], words].concat());
        assert_eq!(ended.code, Some(status), "{ended:#?}");
        assert!(ended.stderr.contains(message), "{message}: {}", ended.stderr);
    };
    refused(
        &["--replay", "9", path],
        2,
        "the schedule does not fit the program: at place 1 thread 9",
    );
    refused(&["--replay", "1x", path], 2, "`1x` is no schedule");
    refused(&["--seed", "3", path], 2, "--random");
    refused(&["./no-such-program"], 127, "there is no program `./no-such-program`");
    refused(&["--atomic", "no_such_function", path], 2, "no_such_function");
}
