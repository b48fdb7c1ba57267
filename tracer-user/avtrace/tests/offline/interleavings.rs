//! Results on interleavings other than the recorded one: `check --algorithm commit-node` and `check --deadlocks`.

use serde_json::Value;

use crate::support::Folder;

/// Nobody came in between the read and the write of `add`, though somebody could have.
const QUIET: &str = "A|begin(add)|a.c:1\nA|r(x)|a.c:2\nA|w(x)|a.c:3\nA|end|a.c:4\n\
                     B|begin(add)|a.c:1\nB|r(x)|a.c:2\nB|w(x)|a.c:3\nB|end|a.c:4\n";

const RING: &str = "A|acq(l)|a.c:10\nA|acq(m)|a.c:11\nA|rel(m)|a.c:12\nA|rel(l)|a.c:13\n\
                    B|acq(m)|b.c:20\nB|acq(l)|b.c:21\nB|rel(l)|b.c:22\nB|rel(m)|b.c:23\n";

fn check(trace: &str, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let folder = Folder::new();
    folder.write("t.std", trace);
    let arguments = [&["check"], arguments].concat();
    let json = folder.run(&[&arguments[..], &["--format", "json", "t.std"]].concat());
    let text = folder.run(&[&arguments[..], &["t.std"]].concat());
    assert_eq!(json.code, text.code, "{text:?}");
    let report: Value = serde_json::from_str(&json.stdout).expect("a report");
    let schema: Value = serde_json::from_str(include_str!("../../../../docs/report.schema.json"))
        .expect("the schema");
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .expect("a schema")
        .iter_errors(&report)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    // The report can be read back and shown again.
    folder.write("report.json", &json.stdout);
    let fail_on = arguments.iter().position(|argument| *argument == "--fail-on");
    let fail_on = fail_on.map_or(&[][..], |at| &arguments[at..at + 2]);
    let again = folder.run(&[&["report"], fail_on, &["report.json"]].concat());
    assert_eq!((again.code, &again.stdout), (text.code, &text.stdout));
    (json.code, report, text.stdout)
}

#[test]
fn commit_nodes_show_where_others_could_come_in() {
    assert_eq!(check(QUIET, &[]).0, Some(0));
    let (code, report, text) =
        check(QUIET, &["--algorithm", "commit-node", "--fail-on", "possible"]);
    assert_eq!(code, Some(66));
    let atomicity = &report["atomicity"];
    assert_eq!((&atomicity["property"], &atomicity["atomic"]), (&"conflict".into(), &false.into()));
    let pattern = &atomicity["patterns"][0];
    assert_eq!((&pattern["region"], &pattern["certain"]), (&"add".into(), &true.into()));
    let [first, last] = [0, 1].map(|index| &pattern["accesses"][index]);
    assert_eq!(
        (&first["own"]["location"]["line"], &last["own"]["location"]["line"]),
        (&2.into(), &3.into())
    );
    assert_eq!(first["remote"]["action"], "write");
    assert!(report["violations"].as_array().is_some_and(Vec::is_empty));
    assert!(report["serializable"].is_null());
    assert!(text.contains("others can come in between two accesses of `add`"), "{text}");
    assert!(text.contains("not conflict-atomic"), "{text}");
}

#[test]
fn a_lock_makes_it_atomic() {
    let locked = QUIET
        .replace("|a.c:1\nA", "|a.c:1\nA|acq(l)|5\nA")
        .replace("|a.c:1\nB", "|a.c:1\nB|acq(l)|5\nB");
    let locked = locked.replace("A|end", "A|rel(l)|6\nA|end").replace("B|end", "B|rel(l)|6\nB|end");
    for property in ["conflict", "view"] {
        let (code, report, text) =
            check(&locked, &["--algorithm", "commit-node", "--property", property]);
        assert_eq!((code, &report["atomicity"]["atomic"]), (Some(0), &true.into()));
        assert!(text.contains(&format!("{property}-atomic in all interleavings")), "{text}");
    }
}

#[test]
fn the_property_decides() {
    let writes = "A|begin(a)|1\nA|w(x)|2\nA|w(x)|3\nA|end|4\nB|begin(b)|5\nB|w(x)|6\nB|end|7\n";
    let code = |options: &[&str]| {
        let node = ["--algorithm", "commit-node", "--fail-on", "possible"];
        check(writes, &[&node, options].concat()).0
    };
    assert_eq!(code(&[]), Some(66));
    assert_eq!(code(&["--property", "view"]), Some(0));
    let folder = Folder::new();
    folder.write("t.std", writes);
    folder
        .run(&["check", "--property", "view", "t.std"])
        .check_error(2, &["--property", "commit-node"]);
}

#[test]
fn deadlocks_have_both_acquisitions_and_the_locks_held() {
    let (code, report, _) = check(RING, &[]);
    assert_eq!((code, &report["deadlocks"]), (Some(0), &Value::Null));
    let (code, report, text) = check(RING, &["--deadlocks", "--fail-on", "possible"]);
    assert_eq!(code, Some(66));
    let acquisitions = &report["deadlocks"][0]["acquisitions"];
    let line = |index: usize| &acquisitions[index]["location"]["line"];
    let held = |index: usize| &acquisitions[index]["holds"]["location"]["line"];
    assert_eq!(
        (line(0), held(0), line(1), held(1)),
        (&11.into(), &10.into(), &21.into(), &20.into())
    );
    assert_eq!(acquisitions[0]["lock"]["name"], "m");
    assert!(text.contains("potential deadlock"), "{text}");
    assert!(text.contains("(acquired at a.c:10)") && text.contains("at b.c:21"), "{text}");
    let (code, _, text) = check(RING, &["--deadlocks"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("only likely ones set the exit status (--fail-on)"), "{text}");
    let (code, report, text) = check(&RING.replace('B', "A"), &["--deadlocks"]);
    assert_eq!((code, report["deadlocks"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert!(text.contains("deadlocks: none"), "{text}");
}

#[test]
fn commit_nodes_presume_that_there_is_no_deadlock() {
    let (code, report, text) =
        check(RING, &["--algorithm", "commit-node", "--fail-on", "possible"]);
    assert_eq!((code, &report["atomicity"]["atomic"]), (Some(66), &Value::Null));
    assert_eq!(report["deadlocks"].as_array().map(Vec::len), Some(1));
    assert!(text.contains("presume that there is no potential deadlock"), "{text}");
}

#[test]
fn predictions_name_the_gap_and_the_access_that_could_fall_into_it() {
    let (code, report, text) = check(QUIET, &["--predict"]);
    assert_eq!(code, Some(0), "a prediction was not seen");
    let predictions = report["predictions"].as_array().expect("predictions");
    let [prediction] = &predictions[..] else { panic!("{predictions:#?}") };
    assert_eq!((&prediction["class"], &prediction["region"]), (&"predicted".into(), &"add".into()));
    let line = |step: &str| &prediction[step]["location"]["line"];
    assert_eq!((line("left"), line("returned"), line("remote")), (&2.into(), &3.into(), &3.into()));
    assert_eq!(prediction["remote"]["action"], "write");
    assert!(report["defects"].as_array().is_some_and(Vec::is_empty));
    assert!(text.contains("predicted: `add` may be cut"), "{text}");
    assert!(text.contains("it could fall into the gap"), "{text}");
    for (fail_on, code) in [("possible", 0), ("likely", 0), ("predicted", 66), ("any", 66)] {
        assert_eq!(check(QUIET, &["--predict", "--fail-on", fail_on]).0, Some(code), "{fail_on}");
    }
}

#[test]
fn a_prediction_says_on_which_reads_it_depends() {
    let flagged = "A|begin(add)|a.c:1\nA|r(x)|a.c:2\nA|w(x)|a.c:3\nA|end|a.c:4\nA|w(ready)|a.c:5\n\
                   B|r(ready)|b.c:8\nB|w(x)|b.c:9\n";
    let (_, report, text) = check(flagged, &["--predict"]);
    let prediction = &report["predictions"][0];
    assert_eq!(
        (&prediction["dependencies"], &prediction["depends_on"][0]["subject"]),
        (&1.into(), &"ready".into())
    );
    assert!(
        text.contains("on reads that would find another value then") && text.contains("b.c:8"),
        "{text}"
    );
    let (code, report, text) = check(RING, &["--predict", "--fail-on", "any"]);
    assert_eq!((code, report["predictions"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert!(text.contains("predictions: no other access"), "{text}");
}
