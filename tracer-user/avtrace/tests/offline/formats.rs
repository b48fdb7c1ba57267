//! Reports in several forms at once, and the refusals of what makes no sense.

use serde_json::Value;

use crate::support::{Folder, trace};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("bad.std", trace("bank.std"));
    folder.write("good.std", trace("aerodrome-rho-1.std"));
    folder
}

#[test]
fn several_forms_go_to_their_files() {
    let folder = folder();
    let ended = folder.run(&[
        "check",
        "--format",
        "text",
        "--format=sarif=a.sarif",
        "--format=junit=a.xml",
        "--format=html=a.html",
        "--format=trace=a.trace",
        "--format=dot=a.dot",
        "--format=json=a.json",
        "bad.std",
        "good.std",
    ]);
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    assert_eq!(ended.stdout, folder.run(&["check", "bad.std", "good.std"]).stdout);
    let json = |name: &str| serde_json::from_slice::<Value>(&folder.read(name)).expect("JSON");
    let sarif = json("a.sarif");
    let runs = sarif["runs"].as_array().expect("runs");
    let results: Vec<usize> =
        runs.iter().map(|run| run["results"].as_array().map_or(99, Vec::len)).collect();
    assert_eq!(results, [1, 0]);
    assert_eq!(runs[1]["properties"]["name"], "good.std");
    assert!(json("a.trace")["traceEvents"].is_array());
    let text = |name: &str| String::from_utf8(folder.read(name)).expect("text");
    assert_eq!(text("a.xml").matches("<testsuite ").count(), 2);
    assert_eq!(text("a.xml").matches("<failure ").count(), 1);
    assert_eq!(text("a.dot").matches("digraph ").count(), 2);
    assert!(text("a.html").ends_with("</html>\n"));
    assert_eq!(text("a.json").lines().count(), 2);
    // A JSON report gives the same documents later.
    folder.run(&["report", "--format=junit=b.xml", "a.json"]);
    assert_eq!(text("b.xml").matches("<failure ").count(), 1);
}

#[test]
fn nothing_is_written_of_a_document_without_reports() {
    let folder = folder();
    folder.write("broken.std", "T1|end|1\n");
    let ended = folder.run(&["check", "--format=sarif=a.sarif", "broken.std"]);
    ended.check_error(3, &["broken.std:1: "]);
    assert!(!folder.names().contains(&"a.sarif".to_owned()));
}

#[test]
fn forms_without_a_place_are_refused() {
    let folder = folder();
    let refused = |arguments: &[&str], parts: &[&str]| {
        folder.run(&[&["check"], arguments, &["bad.std"]].concat()).check_error(2, parts);
    };
    refused(&["--format=text", "--format=json"], &["one place", "--format html=report.html"]);
    refused(&["--format=sarif=x", "-o", "y"], &["--output"]);
    refused(&["--format=sarif=x", "--format=html=x"], &["`x`", "another file"]);
    refused(&["--gen-suppressions", "--format=sarif"], &["--gen-suppressions=FILE"]);
    let unknown = folder.run(&["check", "--format=xml", "bad.std"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("sarif, junit, dot, trace, html"), "{}", unknown.stderr);
    folder.run(&["check", "--format=html=no/such/x", "bad.std"]).check_error(1, &["no/such/x"]);
    let list = folder.run(&["probes", "--format=sarif", "/bin/true"]);
    list.check_error(2, &["--format text or --format json"]);
}

#[test]
fn topics_are_explained() {
    let folder = folder();
    let ended = folder.run(&["explain", "AV1"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert!(ended.stdout.starts_with("AV1: lost update "), "{}", ended.stdout);
    assert_eq!(folder.run(&["explain", "lost", "update"]).stdout, ended.stdout);
    let list = folder.run(&["explain"]).stdout;
    let unknown = folder.run(&["explain", "AV99"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.starts_with(&list), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("`AV99` is no topic"), "{}", unknown.stderr);
}
