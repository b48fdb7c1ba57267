//! `avtrace hunt`: a bug that plain runs hardly ever show is found, and what was found can be shown again. Nothing is
//! forced in the program: its threads meet because they are delayed.

use std::{ffi::OsStr, path::Path, process::Command, time::Duration};

use tests::{
    Ended, Program, c,
    capture::captures_inline,
    folder,
    process::Running,
    require_bpf,
    tracer::{avtrace, avtrace_with},
};

fn rare() -> Program {
    c("rare", &["-g", "-O1"])
}

/// Command line of a hunt, with results in a file and the report in another.
fn arguments(folder: &Path, options: &[&str], program: &[&OsStr]) -> Vec<std::ffi::OsString> {
    let mut arguments: Vec<std::ffi::OsString> = vec!["hunt".into()];
    arguments.extend(tests::capture::options().into_iter().map(Into::into));
    arguments.extend(["--results".into(), folder.join("results").into()]);
    arguments.extend(["--format", "json", "-o"].map(Into::into));
    arguments.push(folder.join("report").into());
    arguments.extend(options.iter().map(Into::into));
    arguments.push("--".into());
    arguments.extend(program.iter().map(Into::into));
    arguments
}

/// Hunts a mode of the program.
fn hunt(folder: &Path, options: &[&str], mode: &[&str]) -> (Ended, serde_json::Value) {
    hunt_program(&rare(), folder, options, mode)
}

fn hunt_program(
    program: &Program,
    folder: &Path,
    options: &[&str],
    mode: &[&str],
) -> (Ended, serde_json::Value) {
    let mut words: Vec<&OsStr> = vec![program.path.as_ref()];
    words.extend(mode.iter().map(OsStr::new));
    let ended = avtrace_with(arguments(folder, options, &words));
    let report =
        std::fs::read(folder.join("report")).unwrap_or_else(|_| panic!("{}", ended.stderr));
    (ended, serde_json::from_slice(&report).expect("a report"))
}

/// Options for a report in the file of [`arguments`].
fn to_file(folder: &tempfile::TempDir) -> [String; 2] {
    ["-o".to_owned(), folder.path().join("report").display().to_string()]
}

/// The defect of the deposits.
fn lost_update(report: &serde_json::Value) -> &serde_json::Value {
    let defects = report["defects"].as_array().expect("defects");
    let is_it =
        |defect: &&serde_json::Value| defect["region"] == "deposit" && defect["class"] == "likely";
    defects.iter().find(is_it).unwrap_or_else(|| panic!("{defects:#?} {:#}", report["hunt"]))
}

#[test]
fn a_rare_bug_is_found_and_shown_again() {
    require_bpf!();
    let folder = folder();
    let (ended, report) =
        hunt(folder.path(), &["--runs", "8", "--seed", "1", "--repeat", "4"], &["lost"]);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert!(ended.stderr.contains(": `deposit` at rare.c:"), "{}", ended.stderr);
    let defect = lost_update(&report);
    assert_eq!(defect["subject"], "balance");
    let hunted = &defect["hunted"];
    assert_eq!(hunted["failing"]["runs"], hunted["failing"]["of"], "{hunted:#}");
    assert_eq!(hunted["passing"]["runs"], 0, "{hunted:#}");
    assert_eq!(hunted["replayed"]["of"], 4, "{hunted:#}");
    assert_eq!(report["hunt"]["runs"], 8);
    assert_eq!(report["hunt"]["treatments"]["observed"], 1);
    assert_eq!(report["hunt"]["failed"], hunted["failing"]["of"]);
    assert!(report["hunt"]["gaps"]["cut"].as_u64().unwrap() > 0, "{:#}", report["hunt"]);
    // Elsewhere, from the results alone.
    let results = folder.path().join("results");
    let run = hunted["first_run"].as_u64().unwrap();
    let shown = hunted["shown_run"].as_u64().unwrap();
    assert!(run <= shown, "{hunted:#}");
    let replay = format!("{}#{shown}", results.display());
    assert_eq!(hunted["replay"], format!("avtrace hunt --replay {replay}"));
    let again = || {
        let words = ["hunt", "--format", "json", "--replay", &replay, "--repeat", "10"];
        let ended = avtrace_with(words.into_iter().map(String::from).chain(to_file(&folder)));
        (ended.code, reports(folder.path()).remove(0), ended.stderr)
    };
    let backend = report["capture"]["backend"].clone();
    let (code, report, stderr) = again();
    assert_eq!((code, &report["hunt"]["runs"]), (Some(66), &10.into()), "{stderr}");
    lost_update(&report);
    // It has no name.
    assert_eq!(report["capture"]["backend"], backend, "{stderr}");
    let ended = avtrace_with(["hunt", "--replay", &format!("{}#99", results.display())]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("the results have no run 99"), "{}", ended.stderr);
}

#[test]
fn a_hunt_ends_with_the_first_likely_defect() {
    require_bpf!();
    let folder = folder();
    let options = ["--runs", "1000", "--first", "--seed", "3", "--repeat", "0", "--jobs", "2"];
    let (ended, report) = hunt(folder.path(), &options, &["lost"]);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(report["hunt"]["ended"], "first_defect");
    lost_update(&report);
}

#[test]
fn a_thread_that_is_over_before_the_others_come_starts_late() {
    let folder = folder();
    let program = c("early_bird", &["-g", "-O1"]);
    let [results, report] = ["results", "report"].map(|name| folder.path().join(name));
    // Threads that sleep are late by the stated time; threads that the kernel lets spin, by less.
    let options = ["hunt", "--capture", "inline", "--runs", "40", "--first", "--seed", "1"];
    let mut words: Vec<std::ffi::OsString> = options.map(Into::into).into();
    words.extend(["--format", "json", "--results"].map(Into::into));
    words.extend([results.into(), "-o".into(), report.clone().into(), "--".into()]);
    words.push(program.path.clone().into());
    let ended = avtrace_with(words);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = std::fs::read(report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let defect = &report["defects"][0];
    assert_eq!(defect["region"], "pay");
    assert_eq!(defect["subject"], "account.funds");
    let hunted = &defect["hunted"];
    let shown = hunted["by"].as_str().unwrap_or_default();
    assert!(shown.ends_with(", and threads that come late"), "{hunted:#}");
    assert!(hunted["replayed"]["runs"].as_u64() > Some(5), "by the same delays: {hunted:#}");
}

#[test]
fn a_thread_is_held_before_it_could_come_in() {
    let folder = folder();
    let program = c("gone_before", &["-g", "-O1"]);
    let options = ["--runs", "20", "--seed", "1", "--repeat", "0"];
    let (ended, report) = hunt_program(&program, folder.path(), &options, &[]);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let defect = &report["defects"][0];
    let known = ["class", "region", "pattern"].map(|key| defect[key].as_str().unwrap());
    assert_eq!(known, ["likely", "withdraw", "lost-update"], "{defect:#}");
}

#[test]
fn threads_are_delayed_where_only_their_code_could_meet() {
    require_bpf!();
    let folder = folder();
    let options = ["--runs", "8", "--seed", "1", "--repeat", "0"];
    let (ended, report) =
        hunt_program(&c("causes", &["-g", "-O1"]), folder.path(), &options, &["stop"]);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let defect = &report["defects"][0];
    assert_eq!((&defect["class"], &defect["region"]), (&"likely".into(), &"stop".into()));
    assert!(report["hunt"]["treatments"]["delayed"].as_u64() > Some(4), "{:#}", report["hunt"]);
}

#[test]
fn what_is_in_failing_runs_only_is_their_cause() {
    require_bpf!();
    let folder = folder();
    let options = ["--runs", "20", "--seed", "1", "--repeat", "0"];
    let (ended, report) =
        hunt_program(&c("causes", &["-g", "-O1"]), folder.path(), &options, &["apart"]);
    // Runs may show the other half as well: `compare` reads both sums between two additions.
    let defects = report["defects"].as_array().unwrap();
    let defect = defects.iter().find(|defect| defect["region"] == "add_to_both").unwrap();
    assert_eq!(defect["class"], "likely", "{defect:#} {:#}", report["hunt"]);
    assert_eq!(defect["reasons"][0]["kind"], "only-in-failing-runs", "{defect:#}");
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(report["hunt"]["unexplained"], 0, "{:#}", report["hunt"]);
    assert_eq!(report["hunt"]["failed_by_delay"], 0, "{:#}", report["hunt"]);
    let report = folder.path().join("report");
    let shown = avtrace_with(["report".as_ref(), "--color=never".as_ref(), report.as_os_str()]);
    assert!(shown.stdout.contains("failing and 0 of"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("was seen in them"), "{}", shown.stdout);
}

#[test]
fn a_hunt_goes_on_where_it_has_ended_and_is_merged() {
    require_bpf!();
    let folder = folder();
    let options = ["--runs", "2", "--seed", "4", "--repeat", "0"];
    let (_, first) = hunt(folder.path(), &options, &["whole"]);
    assert_eq!(first["hunt"]["runs"], 2);
    let (ended, second) =
        hunt(folder.path(), &["--resume", "--runs", "3", "--repeat", "0"], &["whole"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!((&second["hunt"]["runs"], &second["hunt"]["seed"]), (&5.into(), &4.into()));
    assert_eq!(second["hunt"]["treatments"]["observed"], 1);
    let other = avtrace_with(arguments(folder.path(), &["--resume"], &["/bin/true".as_ref()]));
    assert_eq!(other.code, Some(2), "{}", other.stderr);
    assert!(other.stderr.contains("give the same program and options"), "{}", other.stderr);
    // A new hunt keeps the older results.
    let results = folder.path().join("results");
    let (_, third) = hunt(folder.path(), &options, &["whole"]);
    assert_eq!(third["hunt"]["runs"], 2);
    let old = folder.path().join("results.old");
    let merged = avtrace_with([
        "merge".as_ref(),
        "--format=json".as_ref(),
        results.as_os_str(),
        old.as_os_str(),
    ]);
    assert_eq!(merged.code, Some(0), "{}", merged.stderr);
    let merged: serde_json::Value = serde_json::from_str(&merged.stdout).expect("a report");
    assert_eq!(merged["hunt"]["runs"], 7);
    let foreign = folder.path().join("report");
    let mixed = avtrace_with(["merge".as_ref(), foreign.as_os_str(), results.as_os_str()]);
    assert_eq!(mixed.code, Some(2), "{}", mixed.stderr);
    assert!(
        mixed.stderr.contains("has results of a hunt, the others are reports"),
        "{}",
        mixed.stderr
    );
    let other = folder.path().join("other");
    std::fs::write(&other, "neither").expect("a file");
    let refused = avtrace_with(["merge".as_ref(), other.as_os_str()]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(refused.stderr.contains("not a report"), "{}", refused.stderr);
    // Only files of hunts are put aside.
    let refused = avtrace_with([
        "hunt".as_ref(),
        "--results".as_ref(),
        foreign.as_os_str(),
        "/bin/true".as_ref(),
    ]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(foreign.exists());
}

#[test]
fn crashes_hangs_and_deadlocks_under_delays_are_failures_and_end() {
    require_bpf!();
    let late = "did not end in time";
    for (mode, text) in
        [("crash", "the program was killed by SIGABRT"), ("hang", late), ("deadlock", late)]
    {
        let folder = folder();
        // Each run that hangs takes all of the limit.
        let options = ["--runs", "8", "--first", "--seed", "5", "--repeat", "0", "--limit", "12s"];
        let (ended, report) = hunt(folder.path(), &options, &[mode]);
        assert_eq!(ended.code, Some(66), "{mode}: {}", ended.stderr);
        let hunted = &lost_update(&report)["hunted"];
        assert!(hunted["failing"]["runs"].as_u64().unwrap() > 0, "{mode}: {hunted:#}");
        let failures = &report["hunt"]["failures"];
        assert_eq!(failures[0]["text"], text, "{failures:#}");
        let timed_out = report["hunt"]["timed_out"].as_u64().unwrap();
        assert_eq!(timed_out > 0, text == late, "{:#}", report["hunt"]);
    }
}

#[test]
fn a_first_run_that_hangs_is_a_failure_among_others() {
    require_bpf!();
    let folder = folder();
    let flag = folder.path().join("flag").display().to_string();
    let options = ["--runs", "4", "--seed", "5", "--repeat", "0", "--limit", "8s"];
    let (ended, report) = hunt(folder.path(), &options, &["stuck", &flag]);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert!(ended.stderr.contains("run 1: did not end within 8 seconds"), "{}", ended.stderr);
    lost_update(&report);
    let hunted = &report["hunt"];
    assert_eq!((&hunted["runs"], &hunted["timed_out"]), (&4.into(), &1.into()), "{hunted:#}");
}

#[test]
fn a_region_in_which_the_program_dies_is_in_the_report_of_all_runs() {
    require_bpf!();
    let folder = folder();
    let options = ["--runs", "20", "--seed", "1", "--repeat", "1"];
    let (ended, report) = hunt(folder.path(), &options, &["closed"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let open = report["open_at_end"].as_array().unwrap_or_else(|| panic!("{:#}", report["hunt"]));
    let is_it = |open: &&serde_json::Value| open["region"] == "close_and_open";
    let open = open.iter().find(is_it).unwrap_or_else(|| panic!("{open:#?}"));
    let hunted = &open["hunted"];
    assert!(hunted["failing"]["runs"].as_u64().unwrap() > 0, "{hunted:#}");
    assert_eq!(hunted["passing"]["runs"], 0, "{hunted:#}");
    assert_eq!(hunted["replayed"]["of"], 1, "{hunted:#}");
    assert_eq!(open["ending"], "the program was killed by SIGABRT");
    // The delays were made for it, and are no reason to make shorter ones.
    assert_eq!(report["hunt"]["failed_by_delay"], 0, "{:#}", report["hunt"]);
    let thread = &open["thread"];
    let threads = report["threads"].as_array().expect("threads");
    assert!(threads.iter().any(|known| known["id"] == *thread), "{threads:#?}");
    let report = folder.path().join("report");
    let shown = avtrace_with(["report".as_ref(), "--color=never".as_ref(), report.as_os_str()]);
    assert!(shown.stdout.contains("region `close_and_open` of T"), "{}", shown.stdout);
    assert!(shown.stdout.contains("hunted"), "{}", shown.stdout);
}

/// Installs a text for the shell as an executable.
fn script(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("script");
    tests::programs::install_contents(format!("#!/bin/sh\n{text}"), &path);
    path
}

#[test]
fn a_defect_is_shown_by_a_run_that_shows_it_again() {
    require_bpf!();
    let folder = folder();
    let bank = c("bank", &["-g", "-O1"]).path;
    // The fourth run repeats the first one.
    let program = script(
        folder.path(),
        &format!(
            "echo >> {counted}; test $(wc -l < {counted}) = 4 && exit 0; exec {bank}\n",
            counted = folder.path().join("counted").display(),
            bank = bank.display()
        ),
    );
    let options = ["--runs", "3", "--repeat", "1", "--seed", "1"];
    let ended = avtrace_with(arguments(folder.path(), &options, &[program.as_ref()]));
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = &reports(folder.path())[0];
    let hunted = &report["defects"][0]["hunted"];
    assert_eq!((&hunted["first_run"], &hunted["shown_run"]), (&1.into(), &2.into()), "{hunted:#}");
    assert_eq!(hunted["replayed"], serde_json::json!({"runs": 1, "of": 1}), "{hunted:#}");
    assert!(report["hunt"]["wall_ns"].as_u64() > report["hunt"]["elapsed_ns"].as_u64());
}

#[test]
fn tests_without_a_gap_end_at_once_and_the_time_is_for_all() {
    require_bpf!();
    let folder = folder();
    let list = "case $1 in --gtest_list_tests) printf 'Bank.\\n  one\\n  two\\n';; esac\n";
    let program = script(folder.path(), list);
    let hunt = |options: &[&str]| {
        let options = [&["--per-test"], options].concat();
        avtrace_with(arguments(folder.path(), &options, &[program.as_ref()]))
    };
    let ended = hunt(&["--runs", "50", "--time", "1h"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let reports = reports(folder.path());
    assert_eq!(reports.len(), 2, "{}", ended.stderr);
    for report in reports {
        let hunt = &report["hunt"];
        assert_eq!((&hunt["runs"], &hunt["ended"]), (&1.into(), &"no_gap".into()), "{hunt:#}");
    }
    let ended = hunt(&["--time", "1ms"]);
    assert!(ended.stderr.contains("the time is over: 1 test not hunted"), "{}", ended.stderr);
}

#[test]
fn a_hunt_goes_on_with_its_program_and_options() {
    require_bpf!();
    let folder = folder();
    let options = ["--runs", "2", "--repeat", "0", "--seed", "3"];
    let (ended, _) = hunt(folder.path(), &options, &["whole"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let results = folder.path().join("results").display().to_string();
    let [option, report] = to_file(&folder);
    let words = ["hunt", "--resume", "--runs", "1", "--repeat", "0", "--format", "json"];
    let words = [&words[..], &["--results", &results, &option, &report]].concat();
    let ended = avtrace_with(words);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(reports(folder.path())[0]["hunt"]["runs"], 3, "{}", ended.stderr);
}

#[test]
fn runs_that_repeat_others_have_their_standard_input() {
    require_bpf!();
    let folder = folder();
    let input = folder.path().join("input");
    std::fs::write(&input, "given\n").unwrap();
    let program = ["/bin/sh", "-c", "read word; test \"$word\" = given"].map(OsStr::new);
    // The harness gives no standard input.
    let mut hunt = Command::new("/bin/sh");
    hunt.args(["-c", "input=$1 && shift && exec \"$0\" \"$@\" < \"$input\""])
        .arg(avtrace())
        .arg(&input);
    hunt.args(arguments(folder.path(), &["--runs", "2", "--seed", "1"], &program));
    let ended = tests::process::run(&mut hunt);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    std::fs::remove_file(&input).unwrap();
    let results = folder.path().join("results").display().to_string();
    let [option, report] = to_file(&folder);
    let replay = ["hunt", "--replay", &format!("{results}#2"), "--repeat", "1", "--format", "json"];
    let ended = avtrace_with(replay.into_iter().chain([option.as_str(), report.as_str()]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&report["hunt"]["runs"], &report["hunt"]["failed"]), (&1.into(), &0.into()));
}

#[test]
fn programs_that_end_early_or_fork_are_hunted_to_the_end() {
    require_bpf!();
    for mode in ["early", "fork"] {
        let folder = folder();
        let options = ["--runs", "5", "--seed", "6", "--repeat", "0"];
        let (ended, report) = hunt(folder.path(), &options, &[mode]);
        assert_eq!(report["hunt"]["runs"], 5, "{mode}: {}", ended.stderr);
        assert_eq!(report["hunt"]["untraced"], 0, "{mode}: {}", ended.stderr);
    }
}

#[test]
fn nothing_is_likely_in_a_correct_program() {
    require_bpf!();
    let folder = folder();
    let (ended, report) = hunt(folder.path(), &["--runs", "12", "--seed", "7"], &["whole"]);
    let likely = |defect: &&serde_json::Value| defect["class"] == "likely";
    let found: Vec<_> =
        report["defects"].as_array().expect("defects").iter().filter(likely).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(report["hunt"]["failed"], 0, "{}", ended.stderr);
}

#[test]
fn the_user_says_what_a_failure_is() {
    require_bpf!();
    let folder = folder();
    let condition = "test -z \"$AVTRACE_FAILURE\" && grep -q 'balance: 60' \"$AVTRACE_OUTPUT\"";
    let options = ["--runs", "2", "--repeat", "0", "--fail-if", condition];
    let (ended, report) = hunt(folder.path(), &options, &["whole"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let failure = &report["hunt"]["failures"][0];
    assert_eq!((&failure["text"], &failure["runs"]), (&"--fail-if says so".into(), &2.into()));
    assert_eq!(failure["output"], "balance: 60\n");
}

/// Number of processes that sleep as long as the program that does not end.
fn sleepers() -> usize {
    let arguments = |process: std::fs::DirEntry| std::fs::read(process.path().join("cmdline")).ok();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(arguments)
        .filter(|words| words.starts_with(b"/bin/sleep\0") && words.ends_with(b"86399\0"))
        .count()
}

#[test]
fn programs_that_cannot_be_hunted_are_refused() {
    require_bpf!();
    let folder = folder();
    let hunt = |options: &[&str], program: &[&str]| {
        let program: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
        avtrace_with(arguments(folder.path(), options, &program))
    };
    let ended = hunt(&[], &["/nonexistent/program"]);
    assert_eq!(ended.code, Some(127), "{}", ended.stderr);
    assert!(ended.stderr.contains("/nonexistent/program"), "{}", ended.stderr);
    // A refused first run leaves no results, so that a hunt begins anew with the same file.
    let ended = hunt(&["--runs", "1"], &["/bin/true"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!folder.path().join("results.old").exists());
    let before = sleepers();
    let ended = hunt(&["--limit", "2s"], &["/bin/sleep", "86399"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for said in ["run 1: still goes on", "error: the program did not end within 2 seconds"] {
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    assert_eq!(sleepers(), before);
    let ended = hunt(&["--shard", "3/2"], &["/bin/true"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

#[test]
fn an_interrupted_hunt_reports_what_it_has_seen() {
    require_bpf!();
    let folder = folder();
    let program = rare();
    let words = [program.path.as_os_str(), OsStr::new("lost")];
    let mut command = std::process::Command::new(avtrace());
    let options = ["--time", "1h", "--seed", "8", "--fail-on", "possible"];
    command.args(arguments(folder.path(), &options, &words));
    let mut running = Running::start(&mut command, None, Duration::from_secs(120));
    running.await_stderr("`deposit` at rare.c:");
    running.signal("INT");
    let ended = running.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = std::fs::read(folder.path().join("report")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("a report");
    assert_eq!(report["hunt"]["ended"], "interrupted");
    lost_update(&report);
}

/// Source of two tests in Rust.
fn tests_of_deposits() -> std::path::PathBuf {
    tests::root().join("tests/programs/rust/deposit_tests.rs")
}

/// Reports of several programs, one a line.
fn reports(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("report")).expect("reports");
    let documents = serde_json::Deserializer::from_str(&text).into_iter();
    documents.map(|document| document.expect("a report")).collect()
}

#[test]
fn test_cases_are_hunted_by_themselves() {
    require_bpf!();
    // It is about lists of tests; a debug build of avtrace takes seconds for inline probes in Rust's test harness.
    if captures_inline() {
        return;
    }
    let folder = folder();
    let program = folder.path().join("account");
    let options = ["--test", "-g", "-C", "opt-level=1", "--edition", "2024", "-o"];
    let mut build = std::process::Command::new("rustc");
    let built = build.args(options).arg(&program).arg(tests_of_deposits()).status();
    assert!(built.expect("rustc").success());
    let options = ["--runs", "4", "--seed", "9", "--repeat", "0", "--per-test"];
    let ended = avtrace_with(arguments(folder.path(), &options, &[program.as_ref()]));
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert!(ended.stderr.contains("avtrace: splits: run "), "{}", ended.stderr);
    let [splits, whole] = &reports(folder.path())[..] else { panic!("two: {}", ended.stderr) };
    let is_likely = |defect: &serde_json::Value| defect["class"] == "likely";
    let has_likely = |report: &serde_json::Value| {
        report["defects"].as_array().expect("defects").iter().any(is_likely)
    };
    assert!(has_likely(splits) && !has_likely(whole), "{}", ended.stderr);
    assert_eq!(whole["hunt"]["failed"], 0);
    for name in ["results.splits", "results.whole"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    let ended = avtrace_with(arguments(folder.path(), &["--per-test"], &["/bin/true".as_ref()]));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("lists no tests"), "{}", ended.stderr);
}

#[test]
fn the_tests_of_a_crate_are_hunted() {
    require_bpf!();
    // Cargo is another user's where an ordinary user traces, and the probes take long as above.
    if captures_inline() {
        return;
    }
    let folder = folder();
    let (source, manifest) = (folder.path().join("src"), folder.path().join("Cargo.toml"));
    std::fs::create_dir(&source).expect("a folder");
    let package =
        "[package]\nname = \"account\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(&manifest, package).expect("a manifest");
    std::fs::copy(tests_of_deposits(), source.join("lib.rs")).expect("a source");
    let words = ["cargo", "test", "--lib", "--manifest-path"].map(OsStr::new);
    let words = [&words[..], &[manifest.as_os_str()]].concat();
    let options = ["--runs", "3", "--seed", "10", "--repeat", "0"];
    let ended = avtrace_with(arguments(folder.path(), &options, &words));
    let [report] = &reports(folder.path())[..] else { panic!("one: {}", ended.stderr) };
    let command = report["subject"]["argv"][0].as_str().expect("a program");
    assert!(command.contains("/deps/account-"), "{command}");
    assert_eq!(report["hunt"]["runs"], 3, "{}", ended.stderr);
    assert_eq!(report["hunt"]["untraced"], 0, "{}", ended.stderr);
}

#[test]
fn a_run_is_repeated_in_another_build() {
    require_bpf!();
    let folder = folder();
    let program = folder.path().join("rare");
    std::fs::copy(&rare().path, &program).expect("a copy");
    let options = ["--runs", "3", "--seed", "11", "--repeat", "0"];
    let ended = avtrace_with(arguments(folder.path(), &options, &[program.as_ref()]));
    // The first run observes, the second one delays threads at the gap of the highest promise.
    assert_eq!(reports(folder.path())[0]["hunt"]["runs"], 3, "{}", ended.stderr);
    // Its code is elsewhere.
    std::fs::remove_file(&program).expect("removed");
    std::fs::copy(&c("rare", &["-g", "-O2", "-fcf-protection=none"]).path, &program)
        .expect("a copy");
    let replay = format!("{}#2", folder.path().join("results").display());
    let words = ["hunt", "--format", "json", "--replay", &replay, "--repeat", "10"];
    let ended = avtrace_with(words.into_iter().map(String::from).chain(to_file(&folder)));
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    lost_update(&reports(folder.path())[0]);
    // A run without such a gap cannot be repeated.
    std::fs::copy("/bin/true", &program).expect("a copy");
    let ended = avtrace_with(words.into_iter().map(String::from).chain(to_file(&folder)));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("none of the gaps"), "{}", ended.stderr);
    let resumed = avtrace_with(arguments(folder.path(), &["--resume"], &[program.as_ref()]));
    assert_eq!(resumed.code, Some(2), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("the program has changed"), "{}", resumed.stderr);
}
