//! Two runs: the first names what took part in imprecise cycles, the second looks at that alone. The report says what
//! was left out, and errors what to do.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tests::{Avtrace, Ended, Program, Report, c, folder, require_bpf};

/// The program with regions that are functions, at two levels of optimisation, and with marked ones.
fn programs() -> [Program; 3] {
    [&["-g", "-O0"][..], &["-g", "-O2"], &["-g", "-O2", "-DMARKED"]]
        .map(|flags| c("two_runs", flags))
}

/// Makes a first pass, to `file`, with all accesses seen.
fn first_pass(program: &Program, arguments: &[&str], file: &Path) -> (Ended, Value) {
    let run = Avtrace::on(program).seeing_memory().options(["--accesses", "probe", "--first-pass"]);
    let ended = run.options(["-o".as_ref(), file.as_os_str()]).arguments(arguments).run();
    let document = fs::read_to_string(file).unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
    (ended, serde_json::from_str(&document).expect("JSON"))
}

fn focused(program: &Program, file: &Path) -> Avtrace {
    Avtrace::on(program).seeing_memory().options(["--focus".as_ref(), file.as_os_str()])
}

fn names(document: &Value, key: &str) -> Vec<String> {
    let all = document[key].as_array().expect("a list");
    all.iter().map(|one| one["name"].as_str().expect("text").to_owned()).collect()
}

/// The limitation of a run with a focus.
fn limitation(report: &Report) -> Value {
    let all = report.not_seen["limitations"].as_array().expect("a list");
    let found = all.iter().find(|limitation| limitation["kind"] == "focused");
    found.unwrap_or_else(|| panic!("{all:#?}")).clone()
}

/// The violated regions of a report.
fn violated(report: &Report) -> Vec<&str> {
    let mut regions: Vec<&str> = report.violations.iter().map(|one| one.region.as_str()).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

#[test]
fn the_second_run_finds_with_less_what_the_first_has_named() {
    require_bpf!();
    for program in programs() {
        let folder = folder();
        let file = folder.path().join("first.json");
        let (ended, document) = first_pass(&program, &[], &file);
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "900 39\n"), "{}", ended.stderr);
        assert_eq!(document["schema"], "avtrace-first-pass/1");
        assert_eq!(document["program"]["name"], "two_runs");
        assert_eq!(names(&document, "regions"), ["audit", "reserve", "sell", "transfer"]);
        let functions = names(&document, "functions");
        assert!(functions.contains(&"transfer".to_owned()), "{functions:?}");
        assert!(!functions.contains(&"tally".to_owned()), "{functions:?}");
        assert!(ended.stderr.contains("first pass: 4 of 6 regions and "), "{}", ended.stderr);

        let (ended, report) = focused(&program, &file).report();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        assert_eq!(violated(&report), ["reserve", "transfer"]);
        let by_data = |region: &str| {
            report.violations.iter().any(|one| one.region == region && one.evidence == "data")
        };
        assert!(by_data("reserve") && by_data("transfer"));
        let limitation = limitation(&report);
        assert_eq!(limitation["regions"], 4);
        assert_eq!(limitation["left_out"], 2, "tally and refill");
        assert_eq!(limitation["missing"], json!([]));

        let all = Avtrace::on(&program).seeing_memory().options(["--accesses", "probe"]);
        let (_, whole) = all.report();
        assert_eq!(violated(&whole), violated(&report));
        let (few, many) = (report.counts.events, whole.counts.events);
        assert!(few * 10 < many, "{few} of {many} events");
    }
}

#[test]
fn the_report_as_text_says_what_was_left_out() {
    require_bpf!();
    let [_, program, _] = programs();
    let folder = folder();
    let file = folder.path().join("first.json");
    let _ = first_pass(&program, &[], &file);
    let ended = focused(&program, &file).run();
    let said: Vec<&str> = ended.stderr.split_whitespace().collect();
    let said = said.join(" ");
    assert!(said.contains("warning: focused on 4 regions and "), "{said}");
    assert!(said.contains(": 2 other regions were not probed"), "{said}");
}

#[test]
fn a_first_pass_without_cycles_names_nothing() {
    require_bpf!();
    for program in programs() {
        let folder = folder();
        let file = folder.path().join("first.json");
        let (ended, document) = first_pass(&program, &["apart"], &file);
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "895 37\n"), "{}", ended.stderr);
        assert_eq!(document["regions"], json!([]));
        assert!(ended.stderr.contains("names nothing to look at"), "{}", ended.stderr);

        let (ended, report) = focused(&program, &file).report();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(violated(&report), Vec::<&str>::new());
        let limitation = limitation(&report);
        assert_eq!((&limitation["regions"], &limitation["left_out"]), (&json!(0), &json!(6)));
    }
}

#[test]
fn regions_that_the_program_does_not_have_any_more_are_counted() {
    require_bpf!();
    let [_, program, _] = programs();
    let folder = folder();
    let file = folder.path().join("first.json");
    let _ = first_pass(&program, &[], &file);
    let changed = c("two_runs", &["-g", "-O2", "-DWITHOUT_RESERVE"]);
    let (ended, report) = focused(&changed, &file).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(violated(&report), ["transfer"]);
    assert_eq!(limitation(&report)["missing"], json!(["reserve"]));
}

#[test]
fn lists_show_what_the_focus_leaves_out() {
    require_bpf!();
    let [_, program, _] = programs();
    let folder = folder();
    let file = folder.path().join("first.json");
    let _ = first_pass(&program, &[], &file);
    let list = focused(&program, &file).without_capture();
    let list = list.options(["--list-regions", "--format", "json"]).run();
    let document: Value = serde_json::from_str(&list.stdout).expect("JSON");
    let mut regions = names(&document, "regions");
    regions.retain(|name| !["first", "second"].contains(&name.as_str()));
    regions.sort_unstable();
    assert_eq!(regions, ["audit", "reserve", "sell", "transfer"]);
    let left = names(&document, "not_watched");
    for region in ["tally", "refill"] {
        assert!(left.contains(&region.to_owned()), "{left:?}");
    }
}

#[test]
fn a_file_that_is_no_first_pass_of_the_program_is_refused() {
    require_bpf!();
    let [_, program, _] = programs();
    let folder = folder();
    let file = folder.path().join("first.json");
    let refused = |reason: &str, remedy: &str| {
        let ended = focused(&program, &file).run();
        assert_eq!((ended.code, &*ended.stdout), (Some(3), ""), "{}", ended.stderr);
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("error")).collect();
        let [line] = lines[..] else { panic!("{}", ended.stderr) };
        assert!(line.contains(reason) && line.contains(remedy), "{line}");
    };
    let remedy = "`avtrace run --first-pass -o FILE PROGRAM` makes one";
    refused("cannot read the first pass", remedy);
    for (text, reason) in [
        ("{\"schema\": ", "is no first pass: EOF while parsing"),
        ("{\"schema\": \"avtrace-report/1\"}", "is of the form `avtrace-report/1`"),
        ("{\"schema\": \"avtrace-first-pass/1\"}", "is no first pass: missing field"),
    ] {
        fs::write(&file, text).expect("a file");
        refused(reason, remedy);
    }
    let _ = first_pass(&c("helpers", &["-g", "-O2"]), &[], &file);
    refused("is of `helpers`, and not of `two_runs`", "--first-pass -o FILE two_runs` makes one");
}

#[test]
fn a_first_pass_says_what_it_needs_before_the_program_runs() {
    let [_, program, _] = programs();
    for (options, reason) in [
        (&["--first-pass"][..], "--output"),
        (&["--first-pass", "-o", "/nowhere/first.json"], "its directory does not exist"),
        (&["--first-pass", "-o", "first.json", "--focus", "first.json"], "cannot be used with"),
    ] {
        let ended = Avtrace::on(&program).options(options).run();
        assert_ne!(ended.code, Some(0));
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.contains(reason), "{options:?}: {}", ended.stderr);
    }
}
