//! Findings that count: classes, suppressions, ignored variables, baselines, and the configuration of a directory.

use serde_json::Value;

use crate::support::{Ended, Folder};

/// A lost update of `x`, and one of `y`, each in a region of its own.
const TRACE: &str = "\
T1|begin(deposit)|bank.c:10
T1|r(x)|bank.c:11
T2|begin(withdraw)|bank.c:20
T2|w(x)|bank.c:22
T2|end(withdraw)|bank.c:23
T1|w(x)|bank.c:12
T1|end(deposit)|bank.c:13
T1|begin(count)|stats.c:5
T1|r(y)|stats.c:6
T2|begin(reset)|stats.c:15
T2|w(y)|stats.c:16
T2|end(reset)|stats.c:17
T1|w(y)|stats.c:7
T1|end(count)|stats.c:8
";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("t.std", TRACE);
    folder
}

fn check(folder: &Folder, options: &[&str]) -> Ended {
    folder.run(&[&["check", "t.std"], options].concat())
}

/// The report with these options, as JSON.
fn report(folder: &Folder, options: &[&str]) -> Value {
    let ended = check(folder, &[&["--format", "json"], options].concat());
    ended.reports().remove(0)
}

/// Fingerprints by region.
fn fingerprint(report: &Value, region: &str) -> String {
    let defects = report["defects"].as_array().expect("defects");
    let defect = defects.iter().find(|defect| defect["region"] == region);
    defect.expect("a defect of the region")["fingerprint"].as_str().expect("hex").to_owned()
}

/// Regions of defects that are set aside, each with the kind of the decision.
fn aside(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let defects = report["defects"].as_array().expect("defects").iter();
    let mut aside: Vec<_> = defects
        .filter(|defect| !defect["set_aside"].is_null())
        .map(|defect| (text(&defect["region"]), text(&defect["set_aside"]["by"])))
        .collect();
    aside.sort();
    aside
}

fn suppressed(regions: &[&str]) -> Vec<(String, String)> {
    regions.iter().map(|region| ((*region).to_owned(), "suppression".to_owned())).collect()
}

#[test]
fn suppressions_match_by_all_of_their_keys() {
    let folder = folder();
    let both = report(&folder, &[]);
    let deposit = fingerprint(&both, "deposit");
    for (keys, regions) in [
        ("region = 'deposit'", vec!["deposit"]),
        ("region = '*'", vec!["count", "deposit"]),
        ("subject = 'y'", vec!["count"]),
        ("file = 'stats.?'", vec!["count"]),
        ("file = 'stats.c'\nregion = 'deposit'", vec![]),
        ("module = 'libbank.so'", vec![]),
        (&format!("fingerprint = '{deposit}'"), vec!["deposit"]),
        (&format!("fingerprint = '{deposit}'\ngap = 'bank.c:1 -> 2'"), vec!["deposit"]),
    ] {
        folder.write("s.toml", format!("[[suppress]]\n{keys}\nreason = 'it is so'\n"));
        let report = report(&folder, &["--suppress", "s.toml"]);
        assert_eq!(aside(&report), suppressed(&regions), "{keys}");
        let unused = report["settings"]["unused"].as_array().expect("a list");
        assert_eq!(unused.len(), usize::from(regions.is_empty()), "{keys}");
        let code = check(&folder, &["--suppress", "s.toml"]).code;
        assert_eq!(code, Some(if regions.len() == 2 { 0 } else { 66 }), "{keys}");
    }
    let text = check(&folder, &["--suppress", "s.toml"]).stdout;
    assert!(text.contains("1 defect suppressed"), "{text}");
}

#[test]
fn what_matches_nothing_is_listed_once() {
    let folder = folder();
    let entry = |region: &str| format!("[[suppress]]\nregion = '{region}'\nreason = 'it is so'\n");
    folder.write("s.toml", format!("# Two.\n{}{}", entry("deposit"), entry("flush")));
    let ended = folder.run(&["check", "t.std", "t.std", "--suppress", "s.toml"]);
    let note = "1 suppression matched nothing: s.toml:5 (region = flush)";
    assert_eq!(ended.stdout.matches(note).count(), 1, "{}", ended.stdout);
}

#[test]
fn mistakes_in_suppressions_name_the_line() {
    let folder = folder();
    for (text, line) in [
        ("[[suppress]]\nregion = 'x'\n", 1),
        ("\n[[suppress]]\nregion = 'x'\nfunction = 'y'\nreason = 'z'\n", 4),
        ("\n\n[[suppress]]\nreason = 'z'\n", 3),
        ("[[suppress]]\nregion = 'x'\nreason = ''\n", 1),
        ("[[suppress]]\nfingerprint = '12'\nreason = 'z'\n", 1),
        ("atomic = ['x']\n", 1),
    ] {
        folder.write("s.toml", text);
        let line = format!("line {line}");
        check(&folder, &["--suppress", "s.toml"]).check_error(2, &["s.toml", &line]);
    }
    check(&folder, &["--suppress", "none.toml"]).check_error(2, &["none.toml"]);
}

#[test]
fn variables_can_be_ignored() {
    let folder = folder();
    let ignored = |symbol: &str| aside(&report(&folder, &["--ignore", symbol]));
    let count = [("count".to_owned(), "ignore".to_owned())];
    assert_eq!(ignored("y"), count);
    assert_eq!(ignored("[y-z]"), count);
    assert_eq!(ignored("yy"), []);
    assert_eq!(check(&folder, &["--ignore", "x", "--ignore", "y"]).code, Some(0));
    folder.write("t.std", TRACE.replace("(y)", "(y.hits[3])"));
    assert_eq!(ignored("y"), count);
}

#[test]
fn only_what_is_not_in_the_baseline_counts() {
    let folder = folder();
    let both = report(&folder, &[]);
    folder.write("old.json", both.to_string());
    assert_eq!(check(&folder, &["--baseline", "old.json"]).code, Some(0));
    let mut old = both.clone();
    old["defects"].as_array_mut().expect("defects").retain(|defect| defect["region"] == "count");
    folder.write("old.json", old.to_string());
    let ended = check(&folder, &["--baseline", "old.json"]);
    assert_eq!(ended.code, Some(66));
    assert!(ended.stdout.contains(" in `deposit`, by "), "{}", ended.stdout);
    assert!(ended.stdout.contains("1 defect known from the baseline"), "{}", ended.stdout);
    folder.write("old.json", "{}");
    check(&folder, &["--baseline", "old.json"]).check_error(3, &["old.json"]);
}

#[test]
fn generated_suppressions_suppress_all_that_counts() {
    let folder = folder();
    let ended = check(&folder, &["--gen-suppressions=s.toml"]);
    assert_eq!(ended.code, Some(66));
    let entries = String::from_utf8(folder.read("s.toml")).expect("text");
    assert!(entries.contains(" in `deposit`, by "), "{entries}");
    assert_eq!(check(&folder, &["--suppress", "s.toml"]).code, Some(0));
    let printed = check(&folder, &["--gen-suppressions"]).stdout;
    assert!(printed.ends_with(&format!("\n\n{entries}")), "{printed}");
    let ended = check(&folder, &["--gen-suppressions", "--format", "json"]);
    ended.check_error(2, &["--gen-suppressions=FILE"]);
}

#[test]
fn the_configuration_of_the_directory_is_read() {
    let folder = folder();
    folder.write(
        "avtrace.toml",
        "atomic = ['x']\n[[suppress]]\nregion = 'deposit'\nreason = 'it is so'\n",
    );
    let ended = check(&folder, &[]);
    assert_eq!(ended.code, Some(66));
    let summary = ended.stdout.lines().last().expect("a summary");
    assert!(summary.contains("; with `avtrace.toml` (--no-config leaves it out)"), "{summary}");
    assert_eq!(aside(&report(&folder, &[])), suppressed(&["deposit"]));
    assert_eq!(aside(&report(&folder, &["--no-config"])), []);
    let json = check(&folder, &["--format", "json", "--no-config"]).stdout;
    folder.write("r.json", json);
    let shown = folder.run(&["report", "--format", "json", "r.json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("a report");
    assert_eq!(aside(&shown), suppressed(&["deposit"]));
    folder.write("avtrace.toml", "atomicc = []\n");
    check(&folder, &[]).check_error(2, &["avtrace.toml", "line 1"]);
    assert_eq!(check(&folder, &["--no-config"]).code, Some(66));
}

#[test]
fn the_least_class_that_counts_can_be_chosen() {
    let folder = folder();
    let classes = |report: &Value| -> Vec<String> {
        let defects = report["defects"].as_array().expect("defects").iter();
        defects.map(|defect| defect["class"].as_str().expect("a class").to_owned()).collect()
    };
    let classes = classes(&report(&folder, &[]));
    for (least, counting) in [
        ("likely", &["likely"][..]),
        ("possible", &["likely", "possible"]),
        ("any", &["likely", "possible", "by-design"]),
    ] {
        let counts = classes.iter().any(|class| counting.contains(&class.as_str()));
        let code = check(&folder, &["--fail-on", least]).code;
        assert_eq!(code, Some(if counts { 66 } else { 0 }), "{least}: {classes:?}");
    }
}
