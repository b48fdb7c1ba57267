//! Locks of the runtime libraries, which do not belong to the program.

use tests::{Avtrace, Program, c, c_by, cpp, machine, require_bpf};

#[track_caller]
fn check(program: &Program, kind: &str, evidence: &[&str]) {
    let run = Avtrace::on(program).seeing_memory();
    let run = run.options(["--fail-on", "possible"]).arguments([kind]);
    let (ended, report) = run.report();
    let found: Vec<&str> = report.violations.iter().map(|one| &*one.evidence).collect();
    assert_eq!(found, evidence, "{kind}: {report:#?}");
    assert_eq!(ended.code, Some(if evidence.is_empty() { 0 } else { 66 }));
}

#[test]
fn the_locks_of_the_c_library_and_the_loader() {
    require_bpf!();
    let program = c("runtime", &["-g", "-O1"]);
    for kind in ["phdr", "start", "print"] {
        check(&program, kind, &[]);
    }
    check(&program, "mine", &["sync"]);
}

/// Runtime libraries that are linked in are recognised by their functions' names.
#[test]
fn the_same_linked_into_the_program() {
    require_bpf!();
    let program = c("runtime", &["-g", "-O1", "-static"]);
    for kind in ["phdr", "start", "print"] {
        check(&program, kind, &[]);
    }
    check(&program, "mine", &["sync"]);
}

#[test]
fn musl_linked_into_the_program() {
    require_bpf!();
    if !machine::have("musl-gcc") {
        machine::skip("musl-gcc is not installed");
        return;
    }
    let program = c_by("musl-gcc", "runtime", &["-g", "-O1", "-static"]);
    for kind in ["phdr", "start", "print"] {
        check(&program, kind, &[]);
    }
    check(&program, "mine", &["sync"]);
}

#[test]
fn the_locks_of_the_cpp_library() {
    require_bpf!();
    check(&cpp("locales", &["-g", "-O1"]), "", &[]);
}

/// A watchpoint on a field beside what a function of the library was asked for is hit by its vector instructions.
#[test]
fn what_a_library_reads_beside_what_it_was_asked_for() {
    require_bpf!();
    for flags in [&["-g", "-O1"][..], &["-g", "-O1", "-static"]] {
        let program = c("overread", flags);
        check(&program, "length", &[]);
        for (kind, expected) in [("length", 0), ("copy", 66)] {
            let run = Avtrace::on(&program).options(["--watch", "account.count"]).arguments([kind]);
            let (ended, report) = run.report();
            assert_eq!(ended.code, Some(expected), "{kind} {flags:?}: {report:#?}");
            assert!(report.violations.iter().all(|one| one.evidence == "data"), "{report:#?}");
            let notes = report.not_seen["notes"].to_string();
            assert_eq!(notes.contains("by the code of libraries"), kind == "length", "{notes}");
        }
    }
}
