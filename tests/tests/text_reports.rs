//! Whole text reports of ten different violations, as a user gets them at a terminal, by both back ends.
//!
//! Each has to say what is to be changed in the program, and where: read a snapshot before you accept it, without the
//! program at hand.

use std::process::Command;
use std::sync::LazyLock;

use tests::process::{Running, TIME_LIMIT};
use tests::{Avtrace, Program, c, cpp, programs, require_bpf, root, rust};

/// Columns of the reports.
const COLUMNS: &str = "100";

/// Builds a program of the triage benchmark.
fn triage(name: &str, level: &str) -> Program {
    let folder = root().join("xtask/bench/programs");
    let include = format!("-I{}", folder.join("support").display());
    let source = folder.join(name);
    if source.extension().is_some_and(|extension| extension == "cpp") {
        programs::cpp_file(&source, &["-g", level, "-std=c++17", &include])
    } else {
        programs::c_file(&source, &["-g", level, &include])
    }
}

/// Runs a program by both back ends, in the root of the repository, and compares both reports with one snapshot.
#[track_caller]
fn check(name: &str, program: &Program, options: &[&str], arguments: &[&str]) {
    for capture in ["kernel", "inline"] {
        check_by(capture, name, program, (options, arguments));
    }
}

/// Compares the report of each back end with its own snapshot: they differ in values of reads, and in the callers
/// that were recorded with them.
#[track_caller]
fn check_each(name: &str, program: &Program) {
    for capture in ["kernel", "inline"] {
        check_by(capture, &format!("{name}_{capture}"), program, (&[], &[]));
    }
}

#[track_caller]
fn check_by(
    capture: &str,
    name: &str,
    program: &Program,
    (options, arguments): (&[&str], &[&str]),
) {
    let run = Avtrace::on(program).seeing_memory().capturing(capture);
    let run = run.options(options).arguments(arguments).environment("COLUMNS", COLUMNS);
    let mut command: Command = run.command();
    command.current_dir(root());
    let ended = Running::start(&mut command, None, TIME_LIMIT).wait();
    assert_eq!(ended.code, Some(66), "{capture}: {}", ended.stderr);
    insta::assert_snapshot!(name, stable(&ended.stderr), &format!("{name}, {capture}"));
}

/// A report without what differs from run to run and between back ends: ids of threads, addresses, the counts of
/// the last line after the number of defects, and the number of limits, which chance decides.
fn stable(report: &str) -> String {
    let mut text = String::new();
    for line in report.lines().filter(|line| !line.starts_with("limits: ")) {
        let line = match line.strip_prefix("avtrace: ") {
            Some(summary) => {
                let counts = summary.split(';').next().unwrap_or_default();
                format!("avtrace: {counts}; ...")
            }
            None => without_ids(line),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A line with `(tid N)` and `0xN` in place of ids of threads and addresses.
fn without_ids(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((at, start)) =
        ["(tid ", "0x"].iter().filter_map(|start| Some((rest.find(start)?, *start))).min()
    {
        let (before, after) = rest.split_at(at + start.len());
        let digits = after.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(after.len());
        out.push_str(before);
        // An offset in a function is short, and stays the same.
        out.push_str(if start == "0x" && digits < 6 { &after[..digits] } else { "N" });
        rest = &after[digits..];
    }
    out + rest
}

/// The programs, each built once.
static BANK: LazyLock<Program> = LazyLock::new(|| c("bank", &["-g", "-O1"]));

#[test]
fn two_threads_and_a_mutex() {
    require_bpf!();
    check("two_threads_and_a_mutex", &BANK, &[], &[]);
}

#[test]
fn synchronisation_only() {
    require_bpf!();
    let sync = ["--accesses", "sync", "--fail-on", "possible"];
    check("synchronisation_only", &BANK, &sync, &[]);
}

#[test]
fn four_threads_and_nested_regions() {
    require_bpf!();
    check("four_threads_and_nested_regions", &c("relay", &["-g", "-O0"]), &[], &[]);
}

#[test]
fn read_write_lock() {
    require_bpf!();
    check("read_write_lock", &c("rwlock", &["-g", "-O1"]), &[], &["plain"]);
}

#[test]
fn condition_variable() {
    require_bpf!();
    check("condition_variable", &c("condvar", &["-g", "-O1"]), &[], &["wait"]);
}

#[test]
fn object_on_the_heap() {
    require_bpf!();
    check_each("object_on_the_heap", &triage("string_buffer.cpp", "-O0"));
}

#[test]
fn inlined_code() {
    require_bpf!();
    check("inlined_code", &triage("inlined_reserve.c", "-O2"), &[], &[]);
}

#[test]
fn templates() {
    require_bpf!();
    check_each("templates", &cpp("templates", &["-g", "-O0"]));
}

#[test]
fn closures() {
    require_bpf!();
    check_each("closures", &rust("closures", false));
}

#[test]
fn unsynchronised_data() {
    require_bpf!();
    check("unsynchronised_data", &triage("log_buffer.c", "-O0"), &[], &[]);
}

#[test]
fn wrappers_of_locks() {
    require_bpf!();
    check_each("wrappers_of_locks", &c("wrapped", &["-g", "-O0"]));
    check(
        "wrappers_of_locks_by_locks",
        &c("wrapped", &["-g", "-O0"]),
        &["--accesses", "sync", "--fail-on", "possible"],
        &[],
    );
}

/// Runs a program with `--stacks`, and returns the lines of its report without what is drawn before them.
fn stacks(program: &Program, capture: &str) -> Vec<String> {
    let run = Avtrace::on(program).seeing_memory().capturing(capture).options(["--stacks"]);
    let ended = run.environment("COLUMNS", "120").run();
    assert_eq!(ended.code, Some(66), "{capture}: {}", ended.stderr);
    let drawn = |c: char| c == '|' || c == ' ';
    ended.stderr.lines().map(|line| line.trim_start_matches(drawn).to_owned()).collect()
}

/// The frames of a step follow its source line, innermost first.
#[test]
fn stacks_are_those_of_their_steps() {
    require_bpf!();
    for capture in ["kernel", "inline"] {
        // A call, with frame pointers.
        let program = c("wrapped", &["-g", "-O0"]);
        let lines = stacks(&program, capture);
        let line = |mark| format!("wrapped.c:{}", program.line(mark));
        let released = format!("from deposit at {}", line("unlock"));
        let at = lines.iter().position(|line| *line == released).expect(&released);
        assert!(lines[at - 1].starts_with("in mutex_unlock at wrapped.c:"), "{lines:#?}");
        assert_eq!(lines[at + 1], format!("from first at {}", line("caller")), "{lines:#?}");
        assert!(lines.contains(&format!("in deposit at {}", line("write"))), "{lines:#?}");

        // Functions that were inlined into one another.
        let lines = stacks(&triage("inlined_reserve.c", "-O2"), capture);
        let is_read = |line: &String| line.starts_with("in reserve_seat at inlined_reserve.c:");
        let at = lines.iter().position(is_read).expect("the read in reserve_seat");
        assert!(lines[at + 1].starts_with("from "), "{lines:#?}");

        // A closure.
        let lines = stacks(&rust("closures", false), capture);
        let is_closure =
            |line: &String| line.contains("{{closure}}") && line.contains(" at closures.rs:");
        assert!(lines.iter().any(is_closure), "{lines:#?}");
    }
}

#[test]
fn what_differs_is_left_out() {
    assert_eq!(
        without_ids("T1 (tid 123) reads mutex at 0x55aabbccdd in f+0x1c"),
        "T1 (tid N) reads mutex at 0xN in f+0x1c"
    );
    assert_eq!(
        stable("avtrace: 1 likely defect; 12 events, 3 ms\n"),
        "avtrace: 1 likely defect; ...\n"
    );
}
