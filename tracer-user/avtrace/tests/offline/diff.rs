//! `avtrace diff`: defects that are new, gone or changed between reports, recordings and directories of reports.

use serde_json::Value;

use crate::support::{Ended, Folder};

/// A lost update of `x` by `withdraw`.
const FIRST: &str = "\
T1|begin(deposit)|bank.c:10
T1|r(x)|bank.c:11
T2|begin(withdraw)|bank.c:20
T2|w(x)|bank.c:22
T2|end(withdraw)|bank.c:23
T1|w(x)|bank.c:12
T1|end(deposit)|bank.c:13
";

/// Another one of `y`.
const SECOND: &str = "\
T1|begin(count)|stats.c:5
T1|r(y)|stats.c:6
T2|begin(reset)|stats.c:15
T2|w(y)|stats.c:16
T2|end(reset)|stats.c:17
T1|w(y)|stats.c:7
T1|end(count)|stats.c:8
";

/// A folder with the reports `first.json`, `second.json` and `both.json`, and `both.avt`.
fn folder() -> Folder {
    let folder = Folder::new();
    let both = format!("{FIRST}{SECOND}");
    for (name, trace) in [("first", FIRST), ("second", SECOND), ("both", &both)] {
        folder.write(&format!("{name}.std"), trace);
        let report = folder.run(&["check", "--format", "json", &format!("{name}.std")]).stdout;
        folder.write(&format!("{name}.json"), report);
    }
    assert_eq!(folder.run(&["convert", "both.std", "both.avt"]).code, Some(0));
    folder
}

fn regions(diff: &Value, list: &str) -> Vec<String> {
    let entries = diff[list].as_array().expect("a list").iter();
    entries.map(|entry| entry["region"].as_str().expect("a region").to_owned()).collect()
}

fn json(folder: &Folder, old: &str, new: &str) -> (Ended, Value) {
    let ended = folder.run(&["diff", "--format", "json", old, new]);
    let diff = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    (ended, diff)
}

#[test]
fn new_and_gone_defects_are_listed() {
    let folder = folder();
    let (ended, diff) = json(&folder, "first.json", "second.json");
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    assert_eq!(diff["schema"], "avtrace-diff/1");
    assert_eq!(regions(&diff, "new"), ["count"]);
    assert_eq!(regions(&diff, "gone"), ["deposit"]);
    assert_eq!((&diff["same"], &diff["new"][0]["counts"]), (&0.into(), &true.into()));
    let ended = folder.run(&["diff", "first.json", "both.json"]);
    assert_eq!(ended.code, Some(66));
    assert!(ended.stdout.contains("new  ") && ended.stdout.contains("`count` at"), "{ended:?}");
    assert!(ended.stdout.contains("1 new defect, of which 1 counts"), "{ended:?}");
    assert!(ended.stdout.ends_with("0 changed, 0 gone, 1 the same\n"), "{ended:?}");
}

#[test]
fn what_is_gone_fails_nothing() {
    let folder = folder();
    let ended = folder.run(&["diff", "both.json", "first.json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("no defect is new"), "{ended:?}");
    assert_eq!(folder.run(&["diff", "both.json", "both.json"]).code, Some(0));
}

#[test]
fn recordings_are_checked_first() {
    let folder = folder();
    let (ended, diff) = json(&folder, "both.json", "both.avt");
    assert_eq!((ended.code, &diff["same"]), (Some(0), &2.into()), "{diff}");
    let (ended, diff) = json(&folder, "first.json", "both.avt");
    assert_eq!((ended.code, regions(&diff, "new")), (Some(66), vec!["count".to_owned()]));
}

#[test]
fn directories_have_many_reports() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("old")).expect("a folder");
    std::fs::create_dir(folder.path().join("new")).expect("a folder");
    folder.write("old/a.json", folder.read("first.json"));
    folder.write("new/a.json", folder.read("both.json"));
    folder.write("new/b.json", folder.read("second.json"));
    let (_, diff) = json(&folder, "old", "new");
    assert_eq!(
        (&diff["new"][0]["reports"], &diff["new_reports"]["reports"]),
        (&2.into(), &2.into())
    );
    assert_eq!(diff["same"], 1);
}

#[test]
fn a_changed_class_is_a_change() {
    let folder = folder();
    let text = String::from_utf8(folder.read("first.json")).expect("text");
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    report["defects"][0]["class"] = "by-design".into();
    folder.write("earlier.json", report.to_string());
    let (ended, diff) = json(&folder, "earlier.json", "first.json");
    assert_eq!(ended.code, Some(66), "it counts now: {diff}");
    assert_eq!(diff["changed"][0]["changes"][0]["property"], "class");
    assert_eq!(diff["changed"][0]["changes"][0]["old"], "by-design");
    assert_eq!(json(&folder, "first.json", "earlier.json").0.code, Some(0));
}

#[test]
fn what_is_set_aside_is_not_compared() {
    let folder = folder();
    let ignored = folder.run(&["diff", "--ignore", "y", "first.json", "both.json"]);
    assert_eq!(ignored.code, Some(0), "{ignored:?}");
    assert!(ignored.stdout.contains("1 of the new set aside"), "{ignored:?}");
    let likely = folder.run(&["diff", "--error-exitcode", "7", "first.json", "both.json"]);
    assert_eq!(likely.code, Some(7));
}

#[test]
fn bad_input_is_refused_in_a_line() {
    let folder = folder();
    folder.run(&["diff", "first.json", "none.json"]).check_error(3, &["none.json"]);
    folder.write("bad.json", "{\"schema\":\"other/1\"}");
    folder.run(&["diff", "bad.json", "first.json"]).check_error(3, &["bad.json"]);
}
