//! The bundled programs without avtrace: each does what its comment says, the same in each run, and carries the
//! markers that the other suites rely on.

use std::path::Path;

use object::{Object, ObjectSection};
use tests::tracer::native;
use tests::{Program, c, cpp, rust};

/// Both levels of optimisation that the suites build C and C++ at.
const LEVELS: [&str; 2] = ["-O0", "-O2"];
const NO_ARGUMENTS: [&str; 0] = [];

fn output(program: &Program, arguments: &[&str]) -> String {
    let ended = native(&program.path, arguments, None);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{program:?}: {ended:?}");
    ended.stdout
}

/// The text of the markers' notes: providers, names and operands, each ended by a zero.
fn notes(path: &Path) -> String {
    let data = std::fs::read(path).expect("the program");
    let file = object::File::parse(&*data).expect("an ELF file");
    let section = file.section_by_name(".note.stapsdt");
    section.map_or_else(String::new, |section| {
        String::from_utf8_lossy(section.data().expect("its data")).into_owned()
    })
}

fn check_bank(bank: &Program, fixed: &Program) {
    for program in [bank, fixed] {
        let notes = notes(&program.path);
        for region in ["transfer", "audit"] {
            assert!(
                notes.contains(&format!("avtrace_begin\0{region}\0")),
                "{program:?}: {notes:?}"
            );
        }
    }
    for _ in 0..20 {
        assert_eq!(output(bank, &[]), "balance: 900\n");
        assert_eq!(output(fixed, &[]), "balance: 895\n");
    }
    for mark in
        ["transfer_begin", "transfer_lock", "transfer_read", "transfer_unlock", "transfer_write"]
    {
        assert!(bank.line(mark) > 0 && fixed.line(mark) > 0);
    }
    for mark in [
        "transfer_relock",
        "audit_begin",
        "audit_lock",
        "audit_read",
        "audit_write",
        "audit_unlock",
    ] {
        assert!(bank.line(mark) > 0);
    }
}

#[test]
fn bank_in_c() {
    for level in LEVELS {
        check_bank(&c("bank", &["-g", level]), &c("bank_fixed", &["-g", level]));
    }
}

#[test]
fn bank_in_cpp() {
    for level in LEVELS {
        check_bank(&cpp("bank", &["-g", level]), &cpp("bank_fixed", &["-g", level]));
    }
}

#[test]
fn bank_in_rust() {
    for release in [false, true] {
        check_bank(&rust("bank", release), &rust("bank_fixed", release));
    }
}

#[test]
fn a_stripped_bank_has_its_markers_and_no_symbols() {
    let stripped = c("bank", &["-g", "-O2"]).stripped();
    assert_eq!(output(&stripped, &[]), "balance: 900\n");
    assert!(notes(&stripped.path).contains("avtrace_begin\0transfer\0"));
    let data = std::fs::read(&stripped.path).expect("the program");
    assert_eq!(object::File::parse(&*data).expect("an ELF file").symbols().count(), 0);
}

#[test]
fn small_programs() {
    for level in LEVELS {
        let build = |name| c(name, &["-g", level]);
        assert_eq!(output(&build("watch_struct"), &[]), "2 3 5 9\n");
        assert_eq!(output(&build("shared_marker"), &[]), "left: 9\n");
        assert_eq!(output(&build("many_threads"), &[]), "count: 200\n");
        assert_eq!(output(&build("nomarkers"), &[]), "balance: 900\n");
        assert_eq!(output(&build("shared_heap"), &[]), "left: 9\n");
        assert_eq!(output(&build("reads_only"), &["repeat"]), "x: 5\n");
        assert_eq!(output(&build("reads_only"), &["fail"]), "x: 5\n");
        assert_eq!(output(&build("reads_only"), &["succeed"]), "x: 7\n");
        assert_eq!(output(&build("reused_identity"), &[]), "the same identity\n");
        assert_eq!(output(&build("inlined"), &[]), "balance: 900\n");
        assert_eq!(output(&build("inlined"), &["fixed"]), "balance: 895\n");
        assert_eq!(output(&build("jumps"), &[]), "jumped\n");
        assert_eq!(output(&build("jumps"), &["returns"]), "returned\n");
        assert_eq!(output(&build("fork_exec"), &[]), "child\nparent: the child's status was 0\n");
        assert_eq!(output(&build("lockloop"), &["2", "1000"]), "");
        assert_eq!(output(&build("lockloop"), &["3", "1000", "bare"]), "");
        assert_eq!(
            output(&build("recursive"), &[]),
            "trylock: busy\ntimedlock: timed out\nclocklock: timed out\n"
        );
        assert_eq!(
            output(&build("recursive"), &["split"]),
            "trylock: got\ntimedlock: got\nclocklock: got\n"
        );
        assert!(notes(&build("shared_marker").path).contains("avtrace_shared\0stock.left\08@"));
        assert_eq!(notes(&build("nomarkers").path), "");
    }
}

#[test]
fn programs_that_end_in_other_ways() {
    let aborted = native(&c("aborts", &["-g"]).path, NO_ARGUMENTS, None);
    assert_eq!((aborted.signal, &*aborted.stdout), (Some(6), "before the abort\n"));
    let leaderless = native(&c("leaderless", &["-g"]).path, NO_ARGUMENTS, None);
    assert_eq!((leaderless.code, &*leaderless.stdout), (Some(3), "alone\nbalance: 995\n"));
    let over = native(&c("long_run", &["-g"]).path, ["0"], None);
    assert_eq!((over.code, &*over.stdout), (Some(7), "ready\ndone\n"));
}
