//! Locks that programs make themselves are known by their code: their words are no data, and functions that release
//! them half-way are found without any option.

use tests::programs::Program;
use tests::{Avtrace, Report, c, require_bpf, rust};

fn run(program: &Program, arguments: &[&str]) -> (Option<i32>, Report) {
    let (ended, report) = Avtrace::on(program).seeing_memory().arguments(arguments).report();
    assert_eq!(report.counts.lost_events, 0, "{}", ended.stderr);
    let notes = report.not_seen["notes"].to_string();
    assert!(!notes.contains("of locks do"), "each release has one probe: {notes}");
    (ended.code, report)
}

#[track_caller]
fn is_split(program: &Program, arguments: &[&str], region: &str) {
    let (code, report) = run(program, arguments);
    let first = report.defects.first().unwrap_or_else(|| panic!("nothing found: {report:#?}"));
    assert_eq!((first["region"].as_str(), code), (Some(region), Some(66)), "{first:#}");
    assert_eq!((&first["pattern"], &first["class"]), (&"lost-update".into(), &"likely".into()));
    assert!(first.to_string().contains("released"), "its lock is known: {first:#}");
}

#[track_caller]
fn is_quiet(program: &Program, arguments: &[&str]) {
    let (code, report) = run(program, arguments);
    assert_eq!(code, Some(0));
    assert!(report.defects.is_empty(), "{:#?}", report.defects);
}

#[test]
fn locks_in_c_are_known_by_their_code() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("own_lock", &["-g", level]);
        is_split(&program, &["spin", "split"], "transfer_spin");
        is_split(&program, &["ticket", "split"], "transfer_ticket");
        is_split(&program, &["door", "split"], "transfer_door");
        for kind in ["spin", "ticket", "door", "poll"] {
            is_quiet(&program, &[kind, "whole"]);
        }
    }
}

#[test]
fn a_lock_in_rust_with_a_guard_is_known_by_its_code() {
    require_bpf!();
    for release in [false, true] {
        let program = rust("own_lock", release);
        for how in ["swap", "try"] {
            is_split(&program, &["split", how], "own_lock::transfer");
            is_quiet(&program, &["whole", how]);
        }
    }
}
