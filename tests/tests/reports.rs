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
        assert!(joined.contains("fix: hold mutex `account_lock` "), "{text}");
        assert!(joined.contains("T1 reads `balance` = 1000"), "{text}");
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

/// The two relations, with what makes one of the other: the locks.
#[test]
fn a_run_is_checked_with_the_relation_that_is_asked_for() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    let run = |options: &[&str], sees_memory: bool| {
        let run = Avtrace::on(&program).options(options);
        let (ended, report) = if sees_memory { run.seeing_memory() } else { run }.report();
        (ended.code, report)
    };
    let (code, report) = run(&[], false);
    assert_eq!((code, report.relation.as_str()), (Some(66), "full"));
    assert_eq!(report.only_violation().evidence, "sync");
    // Locks are no data, and only locks were captured.
    let (code, report) = run(&["--relation", "data"], false);
    assert_eq!((code, report.relation.as_str()), (Some(0), "data"));
    assert_eq!(report.violations.len(), 0);
    let (code, report) = run(&["--relation", "data"], true);
    assert_eq!((code, report.relation.as_str()), (Some(66), "data"));
    assert_eq!(report.only_violation().evidence, "data");
}

/// Recordings are checked as the program was while it ran: the same defects, in the same order.
#[test]
fn a_recording_has_the_defects_of_the_run() {
    require_bpf!();
    for relation in ["full", "data"] {
        check_recording(relation);
    }
}

/// Runs a program with a relation, and checks its recording with the same one.
fn check_recording(relation: &str) {
    let program = c("bank", &["-g", "-O1"]);
    let folder = tests::folder();
    let path = |name: &str| folder.path().join(name);
    let (trace, live) = (path("t.avt"), path("live.json"));
    let options: [&std::ffi::OsStr; 8] = [
        "--relation".as_ref(),
        relation.as_ref(),
        "--record".as_ref(),
        trace.as_ref(),
        "--format".as_ref(),
        "json".as_ref(),
        "-o".as_ref(),
        live.as_ref(),
    ];
    let ended = Avtrace::on(&program).seeing_memory().options(options).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let options = ["check", "--relation", relation, "--format", "json"];
    let options = options.iter().map(<&str as AsRef<std::ffi::OsStr>>::as_ref);
    let checked = avtrace_with(options.chain([trace.as_os_str()]));
    assert_eq!(checked.code, Some(66), "{}", checked.stderr);
    let defects = |document: &[u8]| -> Vec<serde_json::Value> {
        let report: serde_json::Value = serde_json::from_slice(document).expect("a report");
        let defects = report["defects"].as_array().expect("defects").iter();
        let keys = ["fingerprint", "class", "region", "subject", "gap", "reasons", "runs", "help"];
        let shown = |defect: &serde_json::Value| keys.map(|key| defect[key].clone());
        defects.map(|defect| serde_json::json!(shown(defect))).collect()
    };
    let live = defects(&std::fs::read(live).expect("the report"));
    assert!(!live.is_empty());
    assert_eq!(live, defects(checked.stdout.as_bytes()));
}

/// A quiet run does not end the refinement: another one may show something.
#[test]
fn refinement_does_all_runs() {
    require_bpf!();
    let program = c("same_lines", &["-g", "-O0"]);
    let folder = tests::folder();
    let refine = |name: &str, options: &[&str]| {
        let config = folder.path().join(name).with_extension("toml");
        let capture = tests::capture::options();
        let mut arguments: Vec<&std::ffi::OsStr> = vec!["refine".as_ref()];
        arguments.extend(capture.iter().map(|option| -> &std::ffi::OsStr { option.as_ref() }));
        arguments.extend(options.iter().map(|option| -> &std::ffi::OsStr { option.as_ref() }));
        let file = folder.path().join(name);
        arguments.extend(["-o".as_ref(), config.as_os_str()]);
        arguments.extend([program.path.as_os_str(), file.as_os_str()]);
        let ended = avtrace_with(arguments);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stderr
    };
    let text = refine("all", &["--runs", "4"]);
    assert!(text.contains("run 1: nothing new\n"), "{text}");
    assert!(text.contains("run 2: 1 entry added to "), "{text}");
    assert!(text.contains("(1 likely defect: read what it says)"), "{text}");
    assert!(text.contains("run 4: nothing new, 1 defect known\n"), "{text}");
    assert!(text.ends_with("the last 2 runs showed nothing new\n"), "{text}");
    let text = refine("quiet", &["--runs", "4", "--quiet", "1"]);
    assert!(!text.contains("run 2"), "{text}");
    assert!(text.ends_with("the last run showed nothing new\n"), "{text}");
}

/// Options that decide about the findings of a run do so in a refinement, too.
#[test]
fn refinement_has_the_options_of_a_run() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    let folder = tests::folder();
    let [config, reports] = ["avtrace.toml", "reports"].map(|name| folder.path().join(name));
    let capture = tests::capture::options();
    let words = ["--runs", "1", "--ignore", "account*", "--regions", "all", "--relation", "data"];
    let mut arguments: Vec<&std::ffi::OsStr> = vec!["refine".as_ref()];
    arguments.extend(capture.iter().map(|option| -> &std::ffi::OsStr { option.as_ref() }));
    arguments.extend(words.map(|word| -> &std::ffi::OsStr { word.as_ref() }));
    arguments.extend(["-o".as_ref(), config.as_os_str(), "--report-dir".as_ref()]);
    arguments.extend([reports.as_os_str(), program.path.as_os_str()]);
    let ended = avtrace_with(arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("run 1: nothing new, 1 defect known"), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(&reports).expect("reports").count(), 1);
}

/// Runs that go well make what they show by design; one that fails ends the refinement.
#[test]
fn refinement_leaves_nothing_to_find() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    let folder = tests::folder();
    let config = folder.path().join("avtrace.toml");
    std::fs::write(&config, "# Mine.\natomic = []\n").expect("a file");
    let refine = |program: &std::ffi::OsStr, arguments: &[&str]| {
        let capture = tests::capture::options();
        let mut options: Vec<&std::ffi::OsStr> = vec!["refine".as_ref()];
        options.extend(capture.iter().map(|option| -> &std::ffi::OsStr { option.as_ref() }));
        options.extend(["--runs".as_ref(), "5".as_ref(), "-o".as_ref(), config.as_ref(), program]);
        let arguments = arguments.iter().map(|argument| argument.as_ref());
        avtrace_with(options.into_iter().chain(arguments))
    };
    let ended = refine(program.path.as_ref(), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("run 2: nothing new"), "{}", ended.stderr);
    let text = std::fs::read_to_string(&config).expect("the file");
    assert!(
        text.starts_with(
            "# Mine.\natomic = []\n\n# lost update of `account.balance` in `transfer`, by `audit`"
        ),
        "{text}"
    );
    let spec: [&std::ffi::OsStr; 2] = ["--spec".as_ref(), config.as_ref()];
    let ended = Avtrace::on(&program).seeing_memory().options(spec).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 defect suppressed; "), "{}", ended.stderr);
    let ended = refine("/bin/sh".as_ref(), &["-c", "exit 3"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the program exited with status 3"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&config).expect("the file"), text);
}
