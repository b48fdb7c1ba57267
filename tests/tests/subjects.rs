//! Names of data without a symbol: on the heap and on stacks, by the types that debug information gives.

use serde_json::Value;
use tests::tracer::avtrace_with;
use tests::{Avtrace, Report, c, require_bpf};

const LEVELS: [&str; 2] = ["-O0", "-O2"];

fn run(level: &str, how: &str) -> Report {
    let program = c("shared_data", &["-g", level]);
    let (ended, report) = Avtrace::on(&program).seeing_memory().arguments([how]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "1\n"), "{level} {how}: {}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{}", ended.stderr);
    report
}

/// The evidence for the deposit that was not atomic, and the names on the edges of its cycle.
fn deposit<'r>(report: &'r Report, case: &str) -> (&'r str, Vec<&'r str>) {
    let violation = report.violations.iter().find(|violation| violation.region == "deposit");
    let violation = violation.unwrap_or_else(|| panic!("{case}: {:#?}", report.violations));
    (&violation.evidence, violation.edges.iter().map(|edge| edge.name()).collect())
}

#[test]
fn memory_of_the_heap_is_named_by_type_and_field() {
    require_bpf!();
    for level in LEVELS {
        let program = c("shared_data", &["-g", level]);
        let report = run(level, "heap");
        let line = program.line("allocate");
        let block = format!("8 bytes into the block of 56 allocated at shared_data.c:{line} by T0");
        let name = format!("account_t.balance ({block})");
        assert_eq!(deposit(&report, level), ("data", vec![&*name; 2]));
    }
}

#[test]
fn a_recorded_trace_has_the_same_names() {
    require_bpf!();
    let program = c("shared_data", &["-g", "-O2"]);
    let folder = tests::folder();
    let trace = folder.path().join("trace.avt");
    let options = ["record".as_ref(), "-o".as_ref(), trace.as_os_str()];
    let ended = Avtrace::on(&program).seeing_memory().options(options).arguments(["heap"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "1\n"), "{}", ended.stderr);
    // The names are in the trace: the program is not needed any more.
    let trace = trace.as_os_str();
    let checked = avtrace_with(["check".as_ref(), "--format".as_ref(), "json".as_ref(), trace]);
    let report: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    Report::check(&report);
    let defect = &report["defects"][0];
    assert_eq!((&defect["region"], &defect["evidence"]), (&"deposit".into(), &"data".into()));
    assert_eq!(defect["subject"], "account_t.balance");
    let edge = &report["violations"][0]["edges"][0];
    let name = edge["object"]["name"].as_str().unwrap_or_default();
    assert!(name.starts_with("account_t.balance (8 bytes into the block"), "{name}");
}

#[test]
fn data_on_the_stack_of_another_thread_is_seen() {
    require_bpf!();
    for level in LEVELS {
        let report = run(level, "stack");
        let (evidence, names) = deposit(&report, level);
        assert_eq!(evidence, "data", "{level}");
        assert!(names.iter().all(|name| name.starts_with("account_t.balance")), "{names:?}");
    }
}

#[test]
fn data_on_a_threads_own_stack_is_seen_once_another_thread_touched_it() {
    require_bpf!();
    for level in LEVELS {
        let report = run(level, "own");
        let (evidence, names) = deposit(&report, level);
        assert_eq!(evidence, "data", "{level}");
        assert!(names.iter().all(|name| name.starts_with("account_t.balance")), "{names:?}");
    }
}
