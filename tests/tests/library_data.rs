//! Data that a library accesses for the program: text by functions of the C library, nodes of containers by that of
//! C++.

use tests::{Avtrace, Program, Report, c, cpp, require_bpf, rust};

/// The report on a program, with the default regions; probes stay attached whatever they cost. A library that looks
/// again before it inserts may be meant to: the defect is at least possible.
fn report_on(program: &Program) -> Report {
    let options = ["--overhead", "1000000", "--fail-on", "possible"];
    let run = Avtrace::on(program).seeing_memory().options(options);
    let (ended, report) = run.report();
    assert_eq!(ended.code, Some(66), "{report:#?}");
    assert_eq!(report.counts.lost_events, 0);
    report
}

#[test]
fn text_that_the_c_library_reads_and_writes_is_data() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("text", &["-g", level]);
        let report = report_on(&program);
        let violation = &report.violations[0];
        assert_eq!((&*violation.region, &*violation.evidence), ("add", "data"), "{violation:#?}");
        let last = violation.edges.last().expect("an edge");
        let line = last.sink.as_ref().and_then(|place| place.line);
        assert_eq!(line, Some(program.line("write")), "{violation:#?}");
        let first = violation.edges.first().expect("an edge");
        let line = first.source.as_ref().and_then(|place| place.line);
        assert_eq!(line, Some(program.line("read")), "{violation:#?}");
    }
}

#[test]
fn nodes_that_the_cpp_library_links_are_data() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = cpp("containers", &["-g", level]);
        let report = report_on(&program);
        let found = |violation: &&tests::Violation| {
            let is_linked = violation.edges.iter().any(|edge| {
                let line = edge.source.as_ref().and_then(|place| place.line);
                edge.source_action == "write" && line == Some(program.line("insert"))
            });
            violation.region == "open_session" && violation.evidence == "data" && is_linked
        };
        assert!(report.violations.iter().any(|one| found(&one)), "{level}: {report:#?}");
    }
}

/// Words of locks, barriers, once flags and channels are inlined into the region, or accessed by functions that
/// unoptimised code calls for them.
#[test]
fn what_the_rust_library_synchronises_by_is_no_data() {
    require_bpf!();
    for release in [false, true] {
        let program = rust("library_words", release);
        let run =
            Avtrace::on(&program).seeing_memory().options(["--atomic", "library_words::work"]);
        let (_, report) = run.report();
        assert_eq!(report.counts.lost_events, 0);
        let found: Vec<_> =
            report.violations.iter().filter(|violation| violation.evidence == "data").collect();
        assert!(found.is_empty(), "release {release}: {found:#?}");
    }
}
