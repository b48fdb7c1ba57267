//! Reports of runs: the violation, its place as the user knows it, and the end of the program.

use tests::{Avtrace, c, require_bpf, tracer::avtrace_with};

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
        assert!(joined.contains("help: hold mutex `account_lock` "), "{text}");
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

/// Recordings are checked as the program was while it ran: the same defects, in the same order.
#[test]
fn a_recording_has_the_defects_of_the_run() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let (trace, live) = (path("t.avt"), path("live.json"));
    let options: [&std::ffi::OsStr; 6] = [
        "--record".as_ref(),
        trace.as_ref(),
        "--format".as_ref(),
        "json".as_ref(),
        "-o".as_ref(),
        live.as_ref(),
    ];
    let ended = Avtrace::on(&program).seeing_memory().options(options).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let checked =
        avtrace_with(["check".as_ref(), "--format".as_ref(), "json".as_ref(), trace.as_os_str()]);
    assert_eq!(checked.code, Some(66), "{}", checked.stderr);
    let defects = |document: &[u8]| -> Vec<serde_json::Value> {
        let report: serde_json::Value = serde_json::from_slice(document).expect("a report");
        let defects = report["defects"].as_array().expect("defects").iter();
        defects.map(|defect| serde_json::json!([defect["fingerprint"], defect["class"]])).collect()
    };
    let live = defects(&std::fs::read(live).expect("the report"));
    assert!(!live.is_empty());
    assert_eq!(live, defects(checked.stdout.as_bytes()));
}

/// Runs that go well make what they show by design; one that fails ends the refinement.
#[test]
fn refinement_leaves_nothing_to_find() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("avtrace.toml");
    std::fs::write(&config, "# Mine.\natomic = []\n").expect("a file");
    let refine = |program: &std::ffi::OsStr, arguments: &[&str]| {
        let options: [&std::ffi::OsStr; 6] = [
            "refine".as_ref(),
            "--runs".as_ref(),
            "5".as_ref(),
            "-o".as_ref(),
            config.as_ref(),
            program,
        ];
        let arguments = arguments.iter().map(|argument| argument.as_ref());
        avtrace_with(options.into_iter().chain(arguments))
    };
    let ended = refine(program.path.as_ref(), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("run 2: nothing new"), "{}", ended.stderr);
    let text = std::fs::read_to_string(&config).expect("the file");
    assert!(
        text.starts_with("# Mine.\natomic = []\n\n# region `transfer` is not atomic: "),
        "{text}"
    );
    let spec: [&std::ffi::OsStr; 2] = ["--spec".as_ref(), config.as_ref()];
    let ended = Avtrace::on(&program).seeing_memory().options(spec).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("; 1 defect suppressed; "), "{}", ended.stderr);
    let ended = refine("/bin/sh".as_ref(), &["-c", "exit 3"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the program exited with status 3"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&config).expect("the file"), text);
}
