//! Traces whose verdicts are known (`docs/semantics.md#known-answers`), from the file to the report.

use serde_json::Value;

use crate::support::{Folder, avtrace_in, trace_path};

/// Returns the regions around each violation's cycle; threads stand for events outside every region.
fn cycles(report: &Value) -> Vec<String> {
    let violations = report["violations"].as_array().expect("violations");
    violations.iter().map(|violation| cycle(&violation["witness"])).collect()
}

fn cycle(transactions: &Value) -> String {
    let name = |tx: &Value| match tx["region"].as_str() {
        Some(region) => region.to_owned(),
        None => format!("#{}", tx["thread"]),
    };
    let transactions = transactions.as_array().expect("transactions");
    transactions.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Checks a trace's violations, its cycle if no violation shows one, and whether it is serializable.
#[track_caller]
fn check_with(options: &[&str], name: &str, expected: &[&str], no_violation: Option<&str>) {
    let folder = trace_path("");
    // A cycle without a violation counts with that.
    let counting = ["--fail-on", "possible"];
    let arguments = [&["check", "--format", "json", name], &counting[..], options].concat();
    let ended = avtrace_in(&folder, arguments, b"");
    let [report] = &ended.reports()[..] else { panic!("one report: {ended:?}") };
    assert_eq!(cycles(report), expected, "{name}");
    let found = !expected.is_empty() || no_violation.is_some();
    assert_eq!((ended.code, &*ended.stderr), (Some(if found { 66 } else { 0 }), ""), "{name}");
    assert_eq!(report["serializable"], !found, "{name}");
    match no_violation {
        Some(expected) => assert_eq!(cycle(&report["cycle"]), expected, "{name}"),
        None => assert_eq!(report["cycle"], Value::Null, "{name}"),
    }
    assert_eq!(report["subject"], serde_json::json!({ "kind": "trace", "path": name }));
}

#[track_caller]
fn check(name: &str, expected: &[&str]) {
    check_with(&[], name, expected, None);
}

#[test]
fn davida_figure_2() {
    check("davida-figure-2.std", &["m4 m2 m6 m5 m4", "m1 m6 m5 m1"]);
}

#[test]
fn the_traces_of_aerodrome() {
    check("aerodrome-rho-1.std", &[]);
    check("aerodrome-rho-2.std", &["a b a"]);
    check_with(&[], "aerodrome-rho-3.std", &[], Some("b a b"));
    check_with(&[], "aerodrome-rho-4.std", &[], Some("a b c a"));
}

#[test]
fn traces_on_which_others_err() {
    check("inherited-order.std", &["m p q m"]);
    check("lost-update.std", &["m #1 m"]);
    check("lost-update-with-readers.std", &["m #2 m"]);
    check("between-transactions.std", &[]);
    check("use-after-free.std", &["m #1 #1 m"]);
    check("recursive-region.std", &["m #1 m", "m #1 #1 m"]);
    let all = ["--regions", "all"];
    check_with(&all, "recursive-region.std", &["m #1 m", "m #1 m", "m #1 #1 m"], None);
}

/// A cycle through 130 threads, each of which reads what the one before it has written.
#[test]
fn more_threads_than_others_can_tell_apart() {
    let folder = Folder::new();
    let mut trace = String::new();
    for thread in 0..130 {
        trace += &format!("T{thread}|begin(m{thread})|1\n");
    }
    for thread in 1..130 {
        trace += &format!("T{0}|w(x{thread})|2\nT{thread}|r(x{thread})|3\n", thread - 1);
    }
    folder.write("serial.std", &trace);
    assert_eq!(folder.run(&["check", "serial.std"]).code, Some(0));
    folder.write("cycle.std", trace + "T129|w(y)|4\nT0|r(y)|5\nT0|end|6\n");
    for algorithm in ["davida", "velodrome", "doublechecker", "regiontrack", "aerodrome"] {
        let counting = ["--fail-on", "possible"];
        let arguments = ["check", "--format", "json", "--algorithm", algorithm, "cycle.std"];
        let ended = folder.run(&[&arguments[..], &counting].concat());
        assert_eq!(ended.code, Some(66), "{algorithm}");
        let report = &ended.reports()[0];
        assert_eq!(report["counts"]["threads"], 130);
        if ["davida", "velodrome", "doublechecker"].contains(&algorithm) {
            let expected: Vec<String> =
                (0..=130).map(|thread| format!("m{}", thread % 130)).collect();
            assert_eq!(cycles(report), [expected.join(" ")], "{algorithm}");
        }
    }
}

#[test]
fn data_and_locks_show_the_bank() {
    check("bank.std", &["transfer audit transfer", "transfer audit transfer"]);
    check_with(&["--relation", "data"], "bank.std", &["transfer audit transfer"], None);
}

#[test]
fn the_report_has_the_names_and_places_of_the_trace() {
    let folder = trace_path("");
    let arguments = ["check", "--instances", "--format", "json", "bank.std"];
    let report = &avtrace_in(&folder, arguments, b"").reports()[0];
    let violation = &report["violations"][0];
    assert_eq!(
        (&violation["region"], &violation["evidence"]),
        (&"transfer".into(), &"data".into())
    );
    assert_eq!(violation["begin"]["file"], "bank.c");
    assert_eq!(violation["begin"]["line"], 70);
    let edge = &violation["edges"][0];
    assert_eq!(edge["object"]["name"], "account.balance");
    assert_eq!((&edge["source"]["line"], &edge["sink"]["line"]), (&73.into(), &91.into()));
    assert_eq!(violation["splits"][0]["lock"]["name"], "account.lock");
    assert_eq!(violation["splits"][0]["lock"]["kind"], "lock");
    let audit = &violation["steps"][3];
    assert_eq!((&audit["region"], &audit["location"]["line"]), (&"audit".into(), &87.into()));
    let names: Vec<_> = report["threads"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert_eq!(names, ["main", "teller", "auditor"]);
    let instances = report["instances"].as_array().expect("instances");
    assert_eq!(instances.len() as u64, report["counts"]["violations"]);
    assert_eq!(instances[0]["begin_event"], 2);
}

#[test]
fn the_algorithms_agree_as_far_as_each_goes() {
    let folder = trace_path("");
    let names = std::fs::read_dir(&folder).expect("the traces");
    for name in names.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()) {
        let report = |algorithm: &str| {
            let arguments = ["check", "--format", "json", "--algorithm", algorithm, &name];
            let report = avtrace_in(&folder, arguments, b"").reports().remove(0);
            assert_eq!(report["algorithm"], algorithm);
            report
        };
        let davida = report("davida");
        let same = ["violations", "violating_transactions", "events", "transactions"];
        let regiontrack = report("regiontrack");
        for count in same {
            assert_eq!(regiontrack["counts"][count], davida["counts"][count], "{name}: {count}");
        }
        for algorithm in ["aerodrome", "velodrome", "doublechecker"] {
            assert_eq!(report(algorithm)["serializable"], davida["serializable"], "{name}");
        }
    }
}

#[test]
fn options_that_an_algorithm_does_not_heed_are_refused() {
    let folder = trace_path("");
    for (algorithm, option) in [
        ("aerodrome", &["--instances"][..]),
        ("aerodrome", &["--regions", "all"]),
        ("velodrome", &["--regions", "all"]),
        ("doublechecker", &["--regions", "all"]),
        ("commit-node", &["--relation", "data"]),
        ("commit-node", &["--instances"]),
    ] {
        let arguments = [&["check", "--algorithm", algorithm, "bank.std"], option].concat();
        avtrace_in(&folder, arguments, b"").check_error(2, &[algorithm, option[0]]);
    }
}
