//! The topics of `avtrace explain`, against the reasons, classes and patterns that there are.

use insta::assert_snapshot;
use report::{Explained, RULES, TOPICS, explanation, find_topic, topics};
use serde_json::Value;

use crate::json::schema;

/// Returns the constants and enumerated values of a part of the schema.
fn names(of: &Value, out: &mut Vec<String>) {
    match of {
        Value::Object(keys) => {
            let constant = keys.get("const").into_iter();
            let values = keys.get("enum").and_then(Value::as_array).into_iter().flatten();
            out.extend(constant.chain(values).filter_map(Value::as_str).map(str::to_owned));
            keys.values().for_each(|value| names(value, out));
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, out)),
        _ => {}
    }
}

#[test]
fn every_reason_class_and_pattern_is_a_topic() {
    let mut wanted = Vec::new();
    names(&schema()["$defs"]["Reason"], &mut wanted);
    assert!(wanted.len() > 25, "{wanted:?}");
    names(&schema()["$defs"]["Class"], &mut wanted);
    names(&schema()["$defs"]["Pattern"], &mut wanted);
    for name in &wanted {
        assert!(find_topic(name).is_some(), "`{name}` is not explained");
    }
    // And nothing else is.
    for topic in TOPICS {
        let is_certainty = ["data", "sync", "racy"].contains(&topic.name);
        assert!(is_certainty || wanted.iter().any(|name| name == topic.name), "{}", topic.name);
    }
}

#[test]
fn every_topic_has_an_example_of_some_lines_and_a_repair() {
    let rules = RULES.iter().map(|rule| (rule.name, rule.meaning, rule.example, rule.repair));
    let topics = TOPICS.iter().map(|of| (of.name, of.meaning, of.example, of.repair));
    for (name, meaning, example, repair) in rules.chain(topics) {
        let lines = example.lines().count();
        assert!((2..=12).contains(&lines), "{name}: {lines} lines");
        assert!(meaning.ends_with('.') && repair.ends_with('.'), "{name}");
    }
}

#[test]
fn topics_are_found_by_any_spelling() {
    for name in ["AV1", "av1", "lost-update", "lost update", "Lost_Update", "LostUpdate"] {
        let found = find_topic(name);
        assert!(matches!(found, Some(Explained::Rule(rule)) if rule.id == "AV1"), "{name}");
    }
    assert!(matches!(find_topic("by design"), Some(Explained::Topic(_))));
    assert!(find_topic("no such thing").is_none() && find_topic("").is_none());
}

#[test]
fn the_list_of_topics() {
    assert_snapshot!(topics());
}

#[test]
fn a_pattern_and_a_reason() {
    let text = ["AV1", "callees"].map(|name| explanation(find_topic(name).expect("a topic")));
    assert_snapshot!(text.join("----\n"));
}

#[test]
fn lines_fit_a_terminal() {
    let rules = RULES.iter().map(Explained::Rule).chain(TOPICS.iter().map(Explained::Topic));
    for text in rules.map(explanation) {
        let long = text.lines().find(|line| line.chars().count() > 106);
        assert_eq!(long, None);
    }
}
