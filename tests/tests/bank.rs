//! The bank programs: the witness of `transfer` and `audit` with the right lines, and no finding for the repaired
//! ones; in C, C++ and Rust, with and without optimisation, debug information and symbols.

use std::process::Command;

use tests::tracer::avtrace;
use tests::{
    Avtrace, Location, Program, Report, Violation, c, cpp, machine, process, require_bpf, runs,
    rust,
};

/// Expectations of a build of the bank programs.
struct Build {
    bank: Program,
    fixed: Program,
    /// Part of the lock's name in reports: Rust puts the crate before it, a C++ mutex has named parts.
    lock: &'static str,
    /// The places of the lock operations. Without optimisation, `std::lock_guard` calls down through functions
    /// of the standard library, and the call that is seen is in one of those.
    lines: bool,
}

fn in_c(level: &str) -> Build {
    let flags = ["-g", level];
    Build {
        bank: c("bank", &flags),
        fixed: c("bank_fixed", &flags),
        lock: "account.lock",
        lines: true,
    }
}

fn in_cpp(level: &str) -> Build {
    let flags = ["-g", level];
    Build {
        bank: cpp("bank", &flags),
        fixed: cpp("bank_fixed", &flags),
        lock: "account.lock",
        lines: level != "-O0",
    }
}

fn in_rust(release: bool) -> Build {
    Build {
        bank: rust("bank", release),
        fixed: rust("bank_fixed", release),
        lock: "ACCOUNT.lock",
        lines: true,
    }
}

/// Checks that a place is the line with this mark, in this function.
#[track_caller]
fn check_place(place: Option<&Location>, program: &Program, mark: &str, function: &str) {
    let place = place.unwrap_or_else(|| panic!("a place for @{mark}"));
    let file = program.source.file_name().expect("a file name").to_str().expect("text");
    assert!(place.file.ends_with(file), "@{mark}: {place:?}");
    assert_eq!(place.line, Some(program.line(mark)), "@{mark}: {place:?}");
    let name = place.function.as_deref().unwrap_or_default();
    assert!(name.contains(function), "@{mark}: {place:?}");
}

/// Checks the witness by locks.
fn check_lock_witness(violation: &Violation, build: &Build) {
    assert_eq!(violation.region, "transfer");
    assert_eq!((&*violation.evidence, &*violation.order), ("sync", "synchronised"));
    assert_eq!(violation.occurrences, 1);
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    assert_eq!(violation.witness.first(), violation.witness.last());
    assert_ne!(violation.witness[0].thread, violation.witness[1].thread);
    check_place(violation.begin.as_ref(), &build.bank, "transfer_begin", "transfer");

    let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
    for edge in [there, back] {
        assert!(edge.name().contains(build.lock), "{edge:?}");
        assert!(["mutex", "lock"].contains(&&*edge.object.kind), "{edge:?}");
        assert!(edge.object.address.as_deref().is_some_and(|at| at.starts_with("0x")), "{edge:?}");
        assert_eq!((&*edge.source_action, &*edge.sink_action), ("release", "acquire"));
        assert_eq!(edge.order, "synchronised");
    }
    assert_eq!(there.object.address, back.object.address);

    let [split] = &violation.splits[..] else { panic!("one split lock: {violation:#?}") };
    assert!(split.lock.name.as_deref().is_some_and(|name| name.contains(build.lock)));
    if build.lines {
        let bank = &build.bank;
        check_place(there.source.as_ref(), bank, "transfer_unlock", "transfer");
        check_place(there.sink.as_ref(), bank, "audit_lock", "audit");
        check_place(back.source.as_ref(), bank, "audit_unlock", "audit");
        check_place(back.sink.as_ref(), bank, "transfer_relock", "transfer");
        check_place(split.released.as_ref(), bank, "transfer_unlock", "transfer");
        check_place(split.reacquired.as_ref(), bank, "transfer_relock", "transfer");
    }
}

/// Checks what every report on a complete run says.
fn check_run(report: &Report, program: &Program) {
    assert_eq!((&*report.schema, &*report.algorithm), ("avtrace-report/1", "davida"));
    assert_eq!(report.subject.kind, "process");
    assert!(report.subject.pid > 1);
    assert!(report.subject.argv[0].ends_with(program.path.file_name().unwrap().to_str().unwrap()));
    assert_eq!((report.subject.exit_code, report.subject.signal), (Some(0), None));
    assert_eq!(report.counts.lost_events, 0);
    assert_eq!(report.counts.threads, 3, "main, teller and auditor");
    assert!(report.counts.transactions >= 2);
    assert!(report.counts.dependencies >= 1);
}

fn check(build: &Build) {
    let mut first: Option<String> = None;
    for _ in 0..runs(1) {
        let (ended, report) = Avtrace::on(&build.bank).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
        check_run(&report, &build.bank);
        assert_eq!(report.serializable, Some(false));
        assert_eq!(report.counts.violating_transactions, 1);
        assert_eq!(report.counts.distinct_witnesses, 1);
        let violation = report.only_violation();
        check_lock_witness(violation, build);
        let fingerprint = violation.fingerprint();
        assert_eq!(first.get_or_insert_with(|| fingerprint.clone()), &fingerprint);
    }
    for _ in 0..runs(1) {
        let (ended, report) = Avtrace::on(&build.fixed).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 895\n"), "{}", ended.stderr);
        check_run(&report, &build.fixed);
        assert_eq!(report.serializable, Some(true));
        assert_eq!(report.counts.violations, 0);
        assert!(report.violations.is_empty());
    }
}

#[test]
fn in_c_without_optimisation() {
    require_bpf!();
    check(&in_c("-O0"));
}

#[test]
fn in_c_optimised() {
    require_bpf!();
    check(&in_c("-O2"));
}

#[test]
fn in_cpp_without_optimisation() {
    require_bpf!();
    check(&in_cpp("-O0"));
}

#[test]
fn in_cpp_optimised() {
    require_bpf!();
    check(&in_cpp("-O2"));
}

#[test]
fn in_rust_without_optimisation() {
    require_bpf!();
    check(&in_rust(false));
}

#[test]
fn in_rust_optimised() {
    require_bpf!();
    check(&in_rust(true));
}

#[test]
fn at_fixed_addresses() {
    require_bpf!();
    let flags = ["-g", "-O2", "-fno-pie", "-no-pie"];
    let build = Build {
        bank: c("bank", &flags),
        fixed: c("bank_fixed", &flags),
        lock: "account.lock",
        lines: true,
    };
    check(&build);
}

#[test]
fn without_debug_information_functions_and_offsets_are_shown() {
    require_bpf!();
    let bank = c("bank", &["-O0"]);
    let (ended, report) = Avtrace::on(&bank).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let violation = report.only_violation();
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
    assert!(there.source_label.starts_with("transfer+0x"), "{there:?}");
    assert!(there.sink_label.starts_with("audit+0x"), "{there:?}");
    assert!(back.source_label.starts_with("audit+0x"), "{back:?}");
    assert!(back.sink_label.starts_with("transfer+0x"), "{back:?}");
    assert!(there.name().starts_with("account"), "a symbol: {there:?}");
}

#[test]
fn without_symbols_regions_and_locks_are_seen() {
    require_bpf!();
    let bank = c("bank", &["-O2"]).stripped();
    let (ended, report) = Avtrace::on(&bank).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let violation = report.only_violation();
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    assert_eq!(violation.edges.len(), 2);
    for edge in &violation.edges {
        assert!(edge.source_label.contains("bank"), "the file at least: {edge:?}");
    }

    let fixed = c("bank_fixed", &["-O2"]).stripped();
    let (ended, report) = Avtrace::on(&fixed).report();
    assert_eq!((ended.code, report.violations.len()), (Some(0), 0), "{}", ended.stderr);
}

#[test]
fn the_text_shows_the_steps_with_their_source() {
    require_bpf!();
    let build = in_c("-O2");
    let bank = &build.bank;
    let ended = Avtrace::on(bank).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"));
    let text = &ended.stderr;
    for part in ["transfer", "audit", "account.lock", "synchronisation only"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let mut lines = text.lines();
    for mark in [
        "transfer_begin",
        "transfer_unlock",
        "audit_begin",
        "audit_lock",
        "audit_unlock",
        "transfer_relock",
    ] {
        let place = format!(" bank.c:{}", bank.line(mark));
        let shown = lines.find(|line| line.starts_with(' ') && line.ends_with(&place));
        assert!(shown.is_some(), "{place}, in the order of time, in\n{text}");
    }
    for mark in ["transfer_unlock", "transfer_relock"] {
        let code = bank.line_text(mark);
        let code = code.split(';').next().expect("a statement");
        assert!(text.contains(&format!("   |   {code}")), "`{code}` in\n{text}");
    }
    let summary = text.lines().last().expect("a summary");
    assert!(summary.starts_with("avtrace: 1 possible defect; "), "{summary}");
    assert!(summary.split_whitespace().count() <= 20, "{summary}");
}

#[test]
fn the_text_says_when_nothing_is_found() {
    require_bpf!();
    let ended = Avtrace::on(&in_c("-O2").fixed).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 895\n"));
    let summary = ended.stderr.lines().last().expect("a summary");
    assert_eq!(summary, "avtrace: no violation; the program exited with status 0");
}

#[test]
fn colour_is_used_only_where_it_is_wanted() {
    require_bpf!();
    let bank = in_c("-O2").bank;
    let coloured = |run: Avtrace| run.run().stderr.contains('\x1b');
    assert!(!coloured(Avtrace::on(&bank)), "standard error is not a terminal");
    assert!(coloured(Avtrace::on(&bank).options(["--color", "always"])));
    assert!(!coloured(Avtrace::on(&bank).options(["--color", "never"])));
    assert!(!coloured(
        Avtrace::on(&bank).options(["--color", "auto"]).environment("NO_COLOR", "1")
    ));
}

#[test]
fn on_a_terminal_there_is_colour_unless_unwanted() {
    require_bpf!();
    if !machine::have("script") {
        machine::skip("script is not installed");
        return;
    }
    let bank = in_c("-O2").bank;
    // `script` runs its command on a terminal.
    let coloured = |options: &[&str], no_color: Option<&str>| {
        let mut command = Command::new("script");
        let line =
            format!("{} {} -- {}", avtrace().display(), options.join(" "), bank.path.display());
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let ended = process::run(&mut command);
        assert_eq!(ended.code, Some(66), "{}", ended.stdout);
        ended.stdout.contains('\x1b')
    };
    assert!(coloured(&[], None));
    assert!(coloured(&["--color", "auto"], Some("")), "an empty NO_COLOR is none");
    assert!(!coloured(&[], Some("1")));
    assert!(!coloured(&["--color", "never"], None));
    assert!(coloured(&["--color", "always"], Some("1")));
}

#[test]
fn the_exit_status_of_findings_can_be_chosen() {
    require_bpf!();
    let build = in_c("-O2");
    let status =
        |program, status| Avtrace::on(program).options(["--error-exitcode", status]).run().code;
    assert_eq!(status(&build.bank, "3"), Some(3));
    assert_eq!(status(&build.bank, "0"), Some(0));
    assert_eq!(status(&build.fixed, "3"), Some(0));
}

#[test]
fn a_report_in_a_file_leaves_standard_error_alone() {
    require_bpf!();
    let folder = tests::folder();
    let file = folder.path().join("report.txt");
    let ended = Avtrace::on(&in_c("-O2").bank).options(["-o"]).options([&file]).run();
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    let text = std::fs::read_to_string(&file).expect("the report");
    assert!(text.contains("transfer") && text.contains("account.lock"), "{text}");
}

#[test]
fn json_goes_to_standard_error_without_a_file() {
    require_bpf!();
    let ended = Avtrace::on(&in_c("-O2").bank).options(["--format", "json"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"));
    assert_eq!(Report::parse(&ended.stderr).only_violation().region, "transfer");
}
