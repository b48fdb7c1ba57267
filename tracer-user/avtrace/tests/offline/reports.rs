//! Several traces, places for reports, exit statuses, and reports that are read back.

use crate::support::{Folder, trace};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("bad.std", trace("bank.std"));
    folder.write("good.std", trace("aerodrome-rho-1.std"));
    folder.write("broken.std", "T1|end|1\n");
    folder
}

#[test]
fn each_trace_has_its_report_and_the_worst_is_the_status() {
    let folder = folder();
    let code = |arguments: &[&str]| folder.run(&[&["check"], arguments].concat()).code;
    assert_eq!(code(&["good.std"]), Some(0));
    assert_eq!(code(&["good.std", "bad.std", "good.std"]), Some(66));
    assert_eq!(code(&["good.std", "broken.std", "bad.std"]), Some(3));
    assert_eq!(code(&["--error-exitcode", "7", "bad.std"]), Some(7));
    assert_eq!(code(&["--error-exitcode", "0", "bad.std"]), Some(0));
    assert_eq!(code(&["--algorithm", "no-such", "bad.std"]), Some(2));
    assert_eq!(code(&["-", "-"]), Some(2));
    assert_eq!(code(&[]), Some(2));

    let ended = folder.run(&["check", "--format", "json", "good.std", "broken.std", "bad.std"]);
    let reports = ended.reports();
    let paths: Vec<_> = reports.iter().map(|report| &report["subject"]["path"]).collect();
    assert_eq!(paths, ["good.std", "bad.std"], "the broken one has an error instead");
    ended.check_error(3, &["broken.std:1: "]);

    let text = folder.run(&["check", "good.std", "bad.std"]).stdout;
    assert!(text.starts_with("good.std:\n"), "{text}");
    let (good, bad) = text.split_once("\nbad.std:\n").expect("two reports");
    assert!(good.contains("no atomicity violation found"));
    assert!(bad.contains(" in `transfer`, by `audit`"));
}

#[test]
fn a_report_can_go_to_a_file() {
    let folder = folder();
    let ended = folder.run(&["check", "-o", "report.txt", "bad.std"]);
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(66), "", ""));
    assert_eq!(folder.read("report.txt"), folder.run(&["check", "bad.std"]).stdout.as_bytes());
    folder.run(&["check", "-o", "no/such/file", "bad.std"]).check_error(1, &["no/such/file"]);
}

#[test]
fn figures_are_told_on_standard_error() {
    let folder = folder();
    let plain = folder.run(&["check", "bad.std"]);
    let ended = folder.run(&["check", "--stats", "bad.std"]);
    assert_eq!((ended.code, &ended.stdout), (Some(66), &plain.stdout));
    for part in ["bad.std:", "text", "20, of 3 threads", "2 regions, 1 variable, 1 lock"] {
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
    let ended = folder.run_with(&["check", "--stats", "-", "good.std"], &trace("bank.std"));
    assert!(ended.stderr.starts_with("<stdin>:\n"), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("<stdin>:\n"), "{}", ended.stdout);
}

#[test]
fn instances_are_listed_when_asked_for() {
    let folder = folder();
    let plain = folder.run(&["check", "bad.std"]).stdout;
    let listed = folder.run(&["check", "--instances", "bad.std"]);
    let report = &folder.run(&["check", "--instances", "--format", "json", "bad.std"]).reports()[0];
    let instances = report["instances"].as_array().expect("instances");
    assert!(!instances.is_empty());
    for instance in instances {
        let line = format!(
            "from {} on is violated at {}, which follows {}\n",
            instance["begin_event"], instance["trigger_event"], instance["source_event"]
        );
        assert_eq!(listed.stdout.matches(&line).count(), 1, "{line} in {}", listed.stdout);
        assert!(!plain.contains(&line));
    }
    assert_eq!(listed.code, Some(66));
}

/// A report contains nothing that an algorithm does not determine, and names the algorithm that does.
#[test]
fn algorithms_without_witnesses_say_so() {
    let folder = folder();
    let text = |algorithm: &str| {
        let counting = ["--fail-on", "possible"];
        let arguments = ["check", "--algorithm", algorithm, "bad.std"];
        let ended = folder.run(&[&arguments[..], &counting].concat());
        assert_eq!(ended.code, Some(66));
        // Lines are wrapped.
        ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let aerodrome = text("aerodrome");
    assert!(aerodrome.contains("aerodrome does not tell which transactions"), "{aerodrome}");
    assert!(!aerodrome.contains("no region was split"), "{aerodrome}");
    let regiontrack = text("regiontrack");
    assert!(
        regiontrack.contains("the cycle closes at event 13, which follows event 9"),
        "{regiontrack}"
    );
    for text in [aerodrome, regiontrack] {
        assert!(text.contains("`--algorithm davida`"), "{text}");
    }
}

#[test]
fn reports_are_read_back() {
    let folder = folder();
    let text = folder.run(&["check", "bad.std"]).stdout;
    assert_eq!(
        folder.run(&["check", "--format", "json", "-o", "all.json", "bad.std", "good.std"]).code,
        Some(66)
    );
    let ended = folder.run(&["report", "all.json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    assert!(ended.stdout.starts_with(&text), "{}", ended.stdout);
    assert!(ended.stdout.contains("no atomicity violation found"));
    // Pretty or not, it is the same report.
    let pretty = folder.run(&["report", "--format", "json", "all.json"]).stdout;
    assert_eq!(folder.run_with(&["report", "-"], pretty.as_bytes()).stdout, ended.stdout);
    folder.run(&["report", "good.std"]).check_error(3, &["good.std: ", "not a report"]);
    folder.run_with(&["report", "-"], b"").check_error(3, &["not a report"]);
    let other = br#"{"schema": "something/2"}"#;
    folder.run_with(&["report", "-"], other).check_error(3, &["something/2"]);
}

#[test]
fn each_command_has_its_help() {
    let folder = Folder::new();
    for command in ["run", "record", "check", "convert", "report"] {
        let ended = folder.run(&[command, "--help"]);
        assert_eq!(ended.code, Some(0), "{command}");
        assert!(ended.stdout.contains("Usage: avtrace "), "{}", ended.stdout);
        assert!(ended.stdout.lines().all(|line| line.chars().count() <= 100), "{}", ended.stdout);
    }
}
