//! Reports of runs: the violation, its place as the user knows it, and the end of the program.

use tests::{Avtrace, c, require_bpf};

const REGIONS: [&str; 4] = ["--atomic", "transfer", "--atomic", "audit"];

/// The text without its line breaks.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_region_begins_at_its_name_and_no_lock_is_blamed_that_nobody_else_held() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("prototype", &["-g", level]);
        let (ended, report) = Avtrace::on(&program).options(REGIONS).report();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        let violation = report.only_violation();
        assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
        let begin = violation.begin.as_ref().expect("a place");
        assert_eq!(begin.line, Some(program.line("transfer")), "{begin:?}");

        let options = REGIONS.into_iter().chain(["--watch", "balance"]);
        let text = Avtrace::on(&program).options(options).run().stderr;
        let joined = joined(&text);
        assert!(!text.contains("stats_lock"), "{text}");
        assert!(joined.contains("help: hold mutex `account_lock` over the whole"), "{text}");
        assert!(joined.contains("evidence: data: the transactions were seen to meet"), "{text}");
        assert!(joined.ends_with("; the program exited with status 3"), "{text}");
    }
}

#[test]
fn data_that_was_not_seen_is_said_to_be_not_seen() {
    require_bpf!();
    let program = c("prototype", &["-g", "-O1"]);
    let text = Avtrace::on(&program).options(REGIONS).run().stderr;
    let evidence = "synchronisation only: no access to shared data was seen in these transactions by then: name";
    assert!(joined(&text).contains(evidence), "{text}");
    // The data that the other lock guards is seen, in one of them.
    let options = REGIONS.into_iter().chain(["--watch", "transfers"]);
    let text = Avtrace::on(&program).options(options).run().stderr;
    let evidence =
        "synchronisation only: no access to shared data was seen in `audit` by then: name";
    assert!(joined(&text).contains(evidence), "{text}");
}

#[test]
fn a_report_is_as_wide_as_the_terminal_is_said_to_be() {
    require_bpf!();
    let program = c("prototype", &["-g", "-O1"]);
    let width = |columns: &str| {
        let run = Avtrace::on(&program).options(REGIONS).environment("COLUMNS", columns).run();
        let lines = run.stderr.lines();
        // Whole paths and the line of counts are never cut.
        let wrapped = lines.filter(|line| !line.contains("--> ") && !line.starts_with("avtrace: "));
        wrapped.map(|line| line.chars().count()).max().expect("a report")
    };
    let (narrow, wide) = (width("70"), width("150"));
    assert!(narrow <= 70, "{narrow}");
    assert!((101..=150).contains(&wide), "{wide}");
}
