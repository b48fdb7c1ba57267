//! Counters: updates that commute are no violation of one another, and lost updates of the same counter are.

use serde_json::Value;
use tests::tracer::avtrace_with;
use tests::{Avtrace, Program, Report, c, cpp, require_bpf, runs, rust};

/// Runs that each program gets, unless the environment says otherwise.
const RUNS: usize = 1;

fn run(program: &Program, kind: &str, options: &[&str]) -> (Option<i32>, Report) {
    let run = Avtrace::on(program).seeing_memory().options(["--overhead", "1000000"]);
    let (ended, report) = run.options(options).arguments([kind]).report();
    assert_eq!(report.counts.lost_events, 0);
    (ended.code, report)
}

/// The evidence of all that is found, each once. How likely a finding is a defect does not matter here.
#[track_caller]
fn check(program: &Program, kind: &str, evidence: &[&str]) {
    for _ in 0..runs(RUNS) {
        for options in [&[][..], &["--accesses", "probe"]] {
            let options = [options, &["--fail-on", "any"]].concat();
            let (code, report) = run(program, kind, &options);
            let mut found: Vec<&str> =
                report.violations.iter().map(|violation| &*violation.evidence).collect();
            found.dedup();
            assert_eq!(found, evidence, "{kind} {options:?}: {report:#?}");
            assert_eq!(code, Some(if evidence.is_empty() { 0 } else { 66 }));
        }
    }
}

#[track_caller]
fn check_c(kind: &str, levels: &[&str], evidence: &[&str]) {
    require_bpf!();
    for level in levels {
        check(&c("counters", &["-g", level]), kind, evidence);
    }
}

#[test]
fn additions_in_one_step_commute() {
    check_c("atomic", &["-O0", "-O2"], &[]);
}

#[test]
fn a_reference_count_that_is_compared_with_zero_commutes() {
    check_c("references", &["-O0", "-O2"], &[]);
}

/// The mutex that is released and taken again remains.
#[test]
fn additions_under_one_mutex_commute() {
    check_c("mutex", &["-O2"], &["sync"]);
}

/// The comparison no longer holds when the counter is changed.
#[test]
fn an_addition_after_a_comparison_does_not_commute() {
    check_c("limited", &["-O2"], &["data", "sync"]);
}

#[test]
fn a_lost_update_of_a_counter_is_found() {
    check_c("lost", &["-O0", "-O2"], &["data"]);
}

#[test]
fn additions_without_a_common_mutex_do_not_commute() {
    check_c("plain", &["-O0", "-O2"], &["data"]);
    check_c("other_mutex", &["-O2"], &["data"]);
}

#[test]
fn a_count_that_is_seen_or_used_does_not_commute() {
    check_c("seen", &["-O0", "-O2"], &["data"]);
    check_c("numbered", &["-O0", "-O2"], &["data"]);
}

#[test]
fn counters_of_rust() {
    require_bpf!();
    let program = rust("counters", true);
    check(&program, "atomic", &[]);
    check(&program, "shared", &[]);
    check(&program, "mutex", &["sync"]);
    check(&program, "lost", &["data"]);
}

#[test]
fn reference_counts_of_cpp() {
    require_bpf!();
    check(&cpp("counters", &["-g", "-O2"]), "", &[]);
}

/// A lock of one's own around data that does not change: findings are on the lock alone, also in a recording.
#[test]
fn a_spin_lock_of_rust_is_a_lock() {
    require_bpf!();
    let program = rust("counters", true);
    for _ in 0..runs(RUNS) {
        let folder = tests::folder();
        let trace = folder.path().join("t.avt");
        let record = ["--accesses", "probe", "--record", trace.to_str().expect("UTF-8")];
        let (_, report) = run(&program, "spin", &record);
        let checked = avtrace_with(["check".as_ref(), "--format=json".as_ref(), trace.as_os_str()]);
        let checked: Value = serde_json::from_str(&checked.stdout).expect("a report");
        let violations = checked["violations"].as_array().expect("a list");
        assert_eq!(violations.len(), report.violations.len());
        for edge in violations.iter().flat_map(|violation| violation["edges"].as_array()).flatten()
        {
            assert_eq!(edge["object"]["kind"], "lock", "{checked:#}");
        }
        assert!(!report.violations.is_empty());
        for violation in &report.violations {
            assert_eq!(violation.evidence, "sync", "{report:#?}");
            for edge in &violation.edges {
                assert_eq!(edge.object.kind, "lock", "{report:#?}");
            }
        }
    }
}
