//! The JSON document against its schema and its contract.

use insta::assert_snapshot;
use jsonschema::Validator;
use report::{Report, json};
use serde_json::{Value, json};

use crate::fixtures::Story;
use crate::stories;

pub fn schema() -> Value {
    let schema = include_str!("../../../../docs/report.schema.json");
    serde_json::from_str(schema).expect("the schema is JSON")
}

pub fn validator() -> Validator {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema), "the schema is one of its draft");
    jsonschema::validator_for(&schema).expect("the schema can be used")
}

pub fn document(report: &Report) -> Value {
    let text = json::render(report).expect("a report can be written");
    serde_json::from_str(&text).expect("what is written is JSON")
}

fn with_instances() -> Story {
    let mut story = stories::racy_data();
    story.context.with_instances = true;
    story.findings.instances =
        vec![checker::finding::Instance { begin_event: 10, trigger_event: 15, source_event: 14 }];
    story
}

/// An algorithm that names transactions but gives no witness.
fn without_witness() -> Story {
    let mut story = stories::lock_split();
    let violation = &mut story.findings.violations[0];
    violation.witness.clear();
    violation.edges.clear();
    violation.released_locks.clear();
    story.findings.serializable = None;
    story.context.algorithm = "regiontrack".to_owned();
    story
}

pub fn all() -> Vec<Story> {
    vec![
        stories::lock_split(),
        stories::watched_split(),
        stories::racy_data(),
        stories::three_threads(),
        stories::unary(),
        stories::text_trace(),
        stories::no_debug_info(),
        stories::many(30),
        stories::clean(),
        stories::busy(),
        stories::nothing_seen(),
        stories::losses(),
        stories::cycle_only(),
        stories::relay(8),
        stories::wait_in_region(),
        stories::hostile(),
        with_instances(),
        without_witness(),
    ]
}

#[test]
fn every_kind_of_report_fits_the_schema() {
    let validator = validator();
    for mut story in all() {
        let document = document(&story.report());
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}

/// Calls `change` for every value in the document, by its JSON pointer.
fn walk(value: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                walk(value, &format!("{path}/{key}"), visit);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                walk(value, &format!("{path}/{index}"), visit);
            }
        }
        _ => {}
    }
}

#[test]
fn the_schema_refuses_missing_unknown_and_wrong_keys() {
    let validator = validator();
    for mut story in
        [stories::three_threads(), stories::wait_in_region(), stories::losses(), with_instances()]
    {
        let good = document(&story.report());
        let mut places = Vec::new();
        walk(&good, "", &mut |path, value| places.push((path.to_owned(), value.clone())));
        for (path, value) in places {
            let mut broken = good.clone();
            *broken.pointer_mut(&path).expect("the place exists") = json!({ "wrong": [] });
            assert!(!validator.is_valid(&broken), "`{path}` may be anything");
            let Value::Object(map) = value else { continue };
            let mut broken = good.clone();
            broken.pointer_mut(&path).expect("the place exists")["unknown"] = json!(1);
            assert!(!validator.is_valid(&broken), "`{path}` may have unknown keys");
            for key in map.keys().filter(|key| *key != "instances") {
                let mut broken = good.clone();
                let place = broken.pointer_mut(&path).and_then(Value::as_object_mut);
                place.expect("the place exists").remove(key);
                assert!(!validator.is_valid(&broken), "`{path}/{key}` may be missing");
            }
        }
    }
}

#[test]
fn the_schema_refuses_values_out_of_range() {
    let validator = validator();
    let good = document(&stories::racy_data().report());
    for (path, value) in [
        ("/schema", json!("avtrace-report/2")),
        ("/counts/events", json!(-1)),
        ("/counts/events", json!(1.5)),
        ("/violations/0/id", json!("v0")),
        ("/violations/0/occurrences", json!(0)),
        ("/violations/0/evidence", json!("guess")),
        ("/violations/0/steps", json!([])),
        ("/violations/0/witness", json!([good["violations"][0]["transaction"]])),
        ("/violations/0/edges/0/object/address", json!("7fff")),
        ("/violations/0/edges/0/source/line", json!(0)),
        ("/subject/kind", json!("trace")),
    ] {
        let mut broken = good.clone();
        let place = broken.pointer_mut(path).expect("the place exists");
        assert_ne!(*place, value);
        *place = value;
        assert!(!validator.is_valid(&broken), "`{path}` is not checked");
    }
}

#[test]
fn one_document_in_full() {
    let text = json::render(&stories::lock_split().report()).unwrap();
    assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn what_was_written_reads_back() {
    for mut story in all() {
        let report = story.report();
        let text = json::render(&report).unwrap();
        assert_eq!(json::read(text.as_bytes()).unwrap(), report);
    }
}

#[test]
fn keys_of_the_contract_mean_what_it_says() {
    let document = document(&with_instances().report());
    let violation = &document["violations"][0];
    assert_eq!(document["subject"]["kind"], "process");
    assert_eq!(document["counts"]["violations"], 7);
    assert_eq!(document["serializable"], false);
    assert_eq!(violation["transaction"], violation["witness"][0]);
    assert_eq!(violation["witness"][0], violation["witness"][2]);
    assert_eq!(
        violation["witness"][1],
        json!({"thread": 1, "ordinal": 0, "region": "deposit", "begin_event": 12})
    );
    assert_eq!(violation["trigger_event"], 15);
    assert_eq!(violation["source_event"], 14);
    assert_eq!(
        violation["edges"][0]["object"],
        json!({"kind": "variable", "name": "account.balance", "address": "0x555555558040"})
    );
    assert_eq!(
        violation["edges"][0]["source"],
        json!({"file": "/home/user/bank/src/bank.c", "line": 31, "column": 5, "function": "deposit"})
    );
    assert_eq!(
        document["instances"],
        json!([{"begin_event": 10, "trigger_event": 15, "source_event": 14}])
    );
    let without = self::document(&stories::lock_split().report());
    assert!(without.get("instances").is_none());
}

#[test]
fn without_line_information_locations_are_null_and_labels_stay() {
    let document = document(&stories::no_debug_info().report());
    let edge = &document["violations"][0]["edges"][0];
    assert_eq!(edge["source"], Value::Null);
    assert_eq!(edge["source_label"], "transfer+0x58 (bank)");
}

#[test]
fn the_document_cannot_act_on_a_terminal() {
    let report = stories::hostile().report();
    let text = json::render(&report).unwrap();
    let bad: Vec<char> =
        text.chars().filter(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}').collect();
    assert_eq!(bad, Vec::<char>::new());
    assert_eq!(document(&report)["violations"][0]["region"], "pay\u{1b}]0;owned\u{7}\u{202e}");
}

#[test]
fn other_documents_are_refused_with_the_reason() {
    let error = |document: &str| json::read(document.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        error(r#"{"schema": "avtrace-report/9"}"#),
        "schema is `avtrace-report/9`, expected `avtrace-report/1`"
    );
    assert!(
        error(r#"{"schema": "avtrace-report/1"}"#)
            .starts_with("not a report: missing field `tool`")
    );
    assert!(error("{}").starts_with("not a report: missing field `schema`"));
    assert!(error("<html>").starts_with("not a report: expected value"));
    let mut forged = stories::lock_split().report();
    forged.defects[0].fingerprint = "f\u{1b}[2J".to_owned();
    assert_eq!(
        error(&json::render(&forged).unwrap()),
        "not a report: the fingerprint of \"d1\" is not 16 hexadecimal digits"
    );
}
