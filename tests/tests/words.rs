//! Words that are accessed by atomic instructions: those of locks that avtrace does not know order threads and are no
//! data; what threads compute with atomic loads and stores is.

use tests::{Avtrace, Report, c, require_bpf, runs};

/// Runs that each program gets, unless the environment says otherwise.
const RUNS: usize = 1;

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// A program with everything seen.
fn run(kind: &str, level: &str, options: &[&str]) -> (Option<i32>, Report) {
    let program = c("words", &["-g", level]);
    let run = Avtrace::on(&program).seeing_memory().options(["--overhead", "1000000"]);
    // How likely a finding is a defect does not matter here.
    let run = run.options(["--fail-on", "any"]);
    let (ended, report) = run.options(options).arguments([kind]).report();
    assert_eq!(report.counts.lost_events, 0);
    (ended.code, report)
}

/// The evidence of all that is found.
#[track_caller]
fn check(kind: &str, levels: &[&str], evidence: &[&str]) {
    require_bpf!();
    for level in levels {
        for _ in 0..runs(RUNS) {
            for options in [&[][..], &["--accesses", "probe"]] {
                let (code, report) = run(kind, level, options);
                let found: Vec<&str> =
                    report.violations.iter().map(|violation| &*violation.evidence).collect();
                assert_eq!(found, evidence, "{kind} {level} {options:?}: {report:#?}");
                assert_eq!(code, Some(if evidence.is_empty() { 0 } else { 66 }));
            }
        }
    }
}

#[test]
fn a_failed_attempt_to_take_a_lock_is_acted_upon_by_nobody() {
    for kind in ["compare", "exchange", "bit", "look"] {
        check(kind, &LEVELS, &[]);
    }
}

#[test]
fn readers_that_count_themselves_do_not_split_one_another() {
    check("shared", &LEVELS, &[]);
}

#[test]
fn a_flag_may_be_checked_again() {
    check("checked", &LEVELS, &[]);
}

#[test]
fn changes_of_bits_commute() {
    check("flags", &LEVELS, &[]);
}

#[test]
fn sections_of_an_unknown_lock_are_ordered_by_it() {
    check("twice", &LEVELS, &["sync"]);
}

#[test]
fn an_update_by_an_atomic_load_and_store_is_lost() {
    check("lost", &LEVELS, &["data"]);
}

/// An exchange whose result nobody looks at is a store.
#[test]
fn an_update_by_a_load_and_an_exchange_is_lost() {
    check("lost_exchange", &["-O2"], &["data"]);
}
