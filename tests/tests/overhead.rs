//! `--overhead` with inline probes: places that cost too much are given up for a time, those that are seldom executed
//! are not, and the report says so.

use serde_json::Value;
use tests::{Avtrace, Report, c};

/// Options under which all is recorded that is planned.
const ALL: [&[&str]; 2] =
    [&["--accesses", "probe"], &["--accesses", "auto", "--overhead", "1000000"]];

/// Counts in a table, and then loses an update: see `tally.c`.
fn tally(options: &[&str], rounds: u64) -> Report {
    let program = c("tally", &["-g", "-O1"]);
    let run = Avtrace::on(&program).seeing_memory().capturing("inline").options(options);
    let (ended, report) = run.arguments([rounds.to_string()]).report();
    let balances = format!("900 {}\n", 2 * rounds);
    assert_eq!((ended.code, &*ended.stdout), (Some(66), &*balances), "{}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0);
    report
}

/// Functions of which the report says that they were not seen all the time.
fn given_up(report: &Report) -> Vec<String> {
    let limitations = report.not_seen["limitations"].as_array().expect("a list");
    let is_it = |one: &&Value| one["kind"] == "over_budget";
    let functions = limitations.iter().find(is_it).map(|one| one["functions"].clone());
    let functions = functions.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |one: &Value| {
        assert!(one["unseen_percent"].as_u64().is_some_and(|percent| percent <= 100), "{one:#}");
        one["function"].as_str().expect("a name").to_owned()
    };
    functions.iter().map(name).collect()
}

/// The loop around it, which reads a variable in each round, may cost too much as well, and nothing else may.
fn gives_up_tally(report: &Report) {
    let given_up = given_up(report);
    assert!(given_up.iter().any(|function| function == "tally"), "{given_up:?}");
    assert!(
        given_up.iter().all(|function| function == "tally" || function == "work"),
        "{given_up:?}"
    );
}

/// Rounds of which most come after the first decision, on a fast machine as well.
const ROUNDS: u64 = 40_000;

/// Each round alone has 64 reads and writes in each of two threads.
fn leaves_half_out(report: &Report) {
    assert!(report.counts.events < 64 * 2 * ROUNDS, "{:?}", report.counts);
}

fn finds_the_lost_update(report: &Report) {
    let is_it = |cycle: &[&str]| cycle == ["transfer", "audit", "transfer"];
    let violations = report.violations.iter().filter(|violation| is_it(&violation.cycle()));
    let names: Vec<&str> =
        violations.flat_map(|violation| &violation.edges).map(tests::Edge::name).collect();
    assert!(names.contains(&"balance"), "{:#?}", report.violations);
}

#[test]
fn a_place_that_costs_too_much_is_given_up_and_others_are_not() {
    let report = tally(&[], ROUNDS);
    gives_up_tally(&report);
    finds_the_lost_update(&report);
    let notes = report.not_seen["notes"].to_string();
    assert!(notes.contains("--overhead") && notes.contains("`tally`"), "{notes}");
    leaves_half_out(&report);
}

/// The first process no longer decides, and its child has the same switches.
#[test]
fn a_child_keeps_within_the_bound_when_its_parent_has_ended() {
    let program = c("tally", &["-g", "-O1"]);
    let run = Avtrace::on(&program).seeing_memory().capturing("inline").options(["--follow-forks"]);
    let (ended, reports) = run.arguments([&*ROUNDS.to_string(), "child"]).reports();
    let balances = format!("900 {}\n", 2 * ROUNDS);
    assert_eq!((ended.code, &*ended.stdout), (Some(66), &*balances), "{}", ended.stderr);
    let child = reports.iter().max_by_key(|report| report.counts.events);
    let child = child.expect("reports");
    gives_up_tally(child);
    finds_the_lost_update(child);
    leaves_half_out(child);
}

#[test]
fn without_a_bound_nothing_is_given_up() {
    for options in ALL {
        let report = tally(options, 2000);
        assert_eq!(given_up(&report), [""; 0], "{options:?}");
        finds_the_lost_update(&report);
    }
}
