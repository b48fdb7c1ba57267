//! Reports in the formats for other programs: SARIF against its official schema, JUnit, DOT and trace events.

use insta::assert_snapshot;
use report::{
    Class, Dot, Entry, Html, JUnit, Json, Layout, Otlp, RULES, Report, ReportFormat, Sarif,
    SetAside, SetAsideBy, Text, TextOptions, Trace,
};
use serde_json::Value;

use crate::fixtures::{Story, has_control};
use crate::{json as documents, stories};

pub fn layout() -> Layout {
    let base_dir = Some("/home/user/bank".to_owned());
    let text = TextOptions { base_dir, ..TextOptions::default() };
    Layout { text, least: Class::Possible, ..Layout::default() }
}

/// Lays out reports as text.
pub fn document(format: &dyn ReportFormat, entries: &[Entry<'_>], layout: &Layout) -> String {
    let bytes = format.render(entries, layout).expect("reports are laid out");
    String::from_utf8(bytes).expect("a document of text")
}

pub fn render(format: &dyn ReportFormat, report: &Report) -> String {
    let text = document(format, &[Entry::new(report)], &layout());
    assert!(text.ends_with('\n') && !has_control(&text), "{text:?}");
    text
}

/// A report with a likely defect, a possible one, one by design, and one that is set aside.
pub fn of_each_class() -> Report {
    let mut report = stories::many(4).report();
    let classes = [Class::Likely, Class::Possible, Class::ByDesign, Class::Likely];
    for (defect, class) in report.defects.iter_mut().zip(classes) {
        defect.class = class;
        (defect.runs, defect.cut_runs) = (120_412, 3);
    }
    let reason = "a statistic that may be <off> by \"one\"".to_owned();
    report.defects[3].set_aside = Some(SetAside { by: SetAsideBy::Suppression, reason });
    report
}

fn sarif(report: &Report) -> Value {
    serde_json::from_str(&render(&Sarif, report)).expect("SARIF is JSON")
}

fn trace(report: &Report) -> Value {
    serde_json::from_str(&render(&Trace, report)).expect("trace events are JSON")
}

#[test]
fn sarif_fits_the_official_schema() {
    let schema = include_str!("../data/sarif/sarif-schema-2.1.0.json");
    let mut schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    // The pattern of languages is no regular expression as the schema's own draft demands it: a bracket too many.
    for definition in ["run", "toolComponent"] {
        let language = &mut schema["definitions"][definition]["properties"]["language"];
        assert!(language["pattern"].is_string());
        language["pattern"] = "^[a-zA-Z]{2}|^[a-zA-Z]{2}-[a-zA-Z]{2}?$".into();
    }
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("the schema can be used");
    let mut reports: Vec<Report> = documents::all().iter_mut().map(Story::report).collect();
    reports.push(of_each_class());
    for report in &reports {
        let document = sarif(report);
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert_eq!(errors, Vec::<String>::new());
    }
    let mut broken = sarif(&reports[0]);
    broken["runs"][0]["results"][0]["level"] = "severe".into();
    assert!(!validator.is_valid(&broken), "the schema refuses what is wrong");
}

#[test]
fn sarif_in_full() {
    let mut document = sarif(&stories::racy_data().report());
    // The rules are texts of their own.
    let rules = document["runs"][0]["tool"]["driver"]["rules"].take();
    assert_eq!(rules.as_array().map(Vec::len), Some(RULES.len()));
    assert_snapshot!(serde_json::to_string_pretty(&document).expect("JSON"));
}

#[test]
fn sarif_has_all_steps_in_their_order() {
    let report = stories::three_threads().report();
    let violation = report.shown(&report.defects[0]).expect("it is shown");
    let document = sarif(&report);
    let flows = &document["runs"][0]["results"][0]["codeFlows"][0]["threadFlows"];
    let flows = flows.as_array().expect("a flow for each thread");
    assert_eq!(flows.len(), 3);
    let mut orders = Vec::new();
    for flow in flows {
        let locations = flow["locations"].as_array().expect("steps");
        let of_flow: Vec<u64> =
            locations.iter().filter_map(|at| at["executionOrder"].as_u64()).collect();
        assert!(of_flow.is_sorted(), "{of_flow:?}");
        orders.extend(of_flow);
    }
    orders.sort_unstable();
    assert_eq!(orders, (1..=violation.steps.len() as u64).collect::<Vec<_>>());
}

#[test]
fn sarif_has_a_level_for_each_class_and_suppressions() {
    let report = of_each_class();
    let document = sarif(&report);
    let results = document["runs"][0]["results"].as_array().expect("results");
    let levels: Vec<&Value> = results.iter().map(|result| &result["level"]).collect();
    assert_eq!(levels, ["error", "warning", "note", "error"]);
    let suppressed: Vec<usize> = (results.iter())
        .map(|result| result["suppressions"].as_array().map_or(99, Vec::len))
        .collect();
    assert_eq!(suppressed, [0, 0, 0, 1]);
    for (result, defect) in results.iter().zip(&report.defects) {
        assert_eq!(result["partialFingerprints"]["avtraceDefect/v1"], defect.fingerprint);
        let rule = result["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(result["ruleId"], RULES[rule].id);
    }
    let uri = &results[0]["locations"][0]["physicalLocation"]["artifactLocation"];
    assert!(!uri["uri"].as_str().expect("a URI").starts_with('/'), "{uri}");
}

/// Braces in names are no placeholders, and places without lines name the program.
#[test]
fn sarif_has_places_for_what_has_no_lines() {
    let mut story = stories::no_debug_info();
    story.names.regions[0].name = "main::{closure#0}".to_owned();
    let document = sarif(&story.report());
    let result = &document["runs"][0]["results"][0];
    let text = result["message"]["text"].as_str().expect("a message");
    assert!(text.contains("`main::{{closure#0}}`"), "{text}");
    let place = &result["locations"][0];
    assert!(place["physicalLocation"]["artifactLocation"]["uri"].is_string(), "{place}");
    assert!(place["logicalLocations"][0]["fullyQualifiedName"].is_string(), "{place}");
}

#[test]
fn junit_in_full() {
    assert_snapshot!(render(&JUnit, &of_each_class()));
}

#[test]
fn junit_of_several_reports() {
    let (bad, clean) = (stories::racy_data().report(), stories::clean().report());
    let (nothing, cycle) = (stories::nothing_seen().report(), stories::cycle_only().report());
    let entries: Vec<Entry<'_>> = [&bad, &clean, &nothing, &cycle]
        .into_iter()
        .zip(["bad", "clean", "nothing <&\u{7}>", "cycle"])
        .map(|(report, name)| Entry { name: Some(name.to_owned()), ..Entry::new(report) })
        .collect();
    assert_snapshot!(document(&JUnit, &entries, &layout()));
}

#[test]
fn junit_fails_what_counts() {
    let report = of_each_class();
    let failures = |least| {
        let text = document(&JUnit, &[Entry::new(&report)], &Layout { least, ..layout() });
        text.matches("<failure ").count()
    };
    assert_eq!([Class::Likely, Class::Possible, Class::ByDesign].map(failures), [1, 2, 3]);
}

#[test]
fn log_events_have_the_trace_of_the_program() {
    let mut report = of_each_class();
    report.time = Some("2026-11-23T08:15:30.125Z".to_owned());
    report.host = Some("ci-1".to_owned());
    report.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    let text = render(&Otlp, &report);
    assert_eq!(text.lines().count(), 1);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let logs = &document["resourceLogs"][0];
    let service = serde_json::json!({ "key": "service.name", "value": { "stringValue": "bank" } });
    assert!(
        logs["resource"]["attributes"].as_array().expect("a list").contains(&service),
        "{text}"
    );
    let records = logs["scopeLogs"][0]["logRecords"].as_array().expect("events");
    let severities: Vec<&Value> = records.iter().map(|record| &record["severityText"]).collect();
    assert_eq!(severities, ["ERROR", "WARN", "INFO", "INFO"]);
    for (record, defect) in records.iter().zip(&report.defects) {
        assert_eq!(record["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((&record["spanId"], &record["flags"]), (&"00f067aa0ba902b7".into(), &1.into()));
        assert_eq!(record["timeUnixNano"], "1795421730125000000");
        let attributes = record["attributes"].as_array().expect("a list");
        let fingerprint = attributes.iter().find(|of| of["key"] == "avtrace.fingerprint");
        let fingerprint = &fingerprint.expect("a fingerprint")["value"]["stringValue"];
        assert_eq!(*fingerprint, defect.fingerprint);
    }
    let alone: Value = serde_json::from_str(&render(&Otlp, &of_each_class())).expect("JSON");
    let record = &alone["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert!(record.get("traceId").is_none() && record.get("timeUnixNano").is_none(), "{record}");
}

#[test]
fn dot_in_full() {
    assert_snapshot!(render(&Dot, &stories::three_threads().report()));
}

#[test]
fn dot_of_what_has_no_defect() {
    assert_snapshot!(render(&Dot, &stories::cycle_only().report()));
}

#[test]
fn trace_in_full() {
    assert_snapshot!(render(&Trace, &stories::lock_split().report()));
}

/// Slices of one track lie in one another or apart: viewers drop others.
#[test]
fn slices_of_a_track_nest() {
    for mut story in documents::all() {
        let document = trace(&story.report());
        let events = document["traceEvents"].as_array().expect("events");
        let number = |event: &Value, key: &str| event[key].as_f64().expect("a number");
        let slices: Vec<(u64, u64, f64, f64)> = (events.iter())
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                let from = number(event, "ts");
                let id = |key: &str| event[key].as_u64().expect("an id");
                (id("pid"), id("tid"), from, from + number(event, "dur"))
            })
            .collect();
        for (at, one) in slices.iter().enumerate() {
            for other in &slices[at + 1..] {
                if (one.0, one.1) != (other.0, other.1) {
                    continue;
                }
                let (first, second) = if one.2 <= other.2 { (one, other) } else { (other, one) };
                let is_apart = first.3 <= second.2 + 1e-6;
                let is_within = second.3 <= first.3 + 1e-6 || first.2 == second.2;
                assert!(is_apart || is_within, "{first:?} {second:?}");
            }
        }
        let ends = |ph: &str| events.iter().filter(|event| event["ph"] == *ph).count();
        assert_eq!(ends("s"), ends("f"));
    }
}

#[test]
fn streams_are_the_documents_of_each_report() {
    let reports = [stories::racy_data().report(), stories::clean().report()];
    let entries: Vec<Entry<'_>> = reports.iter().map(Entry::new).collect();
    let formats: [&dyn ReportFormat; 8] =
        [&Text, &Json, &Sarif, &JUnit, &Dot, &Trace, &Html, &Otlp];
    for format in formats.into_iter().filter(|format| format.is_stream()) {
        let whole = document(format, &entries, &layout());
        let part = |(before, entry): (usize, &Entry<'_>)| {
            let layout = Layout { before, is_part: true, ..layout() };
            document(format, std::slice::from_ref(entry), &layout)
        };
        assert_eq!(whole, entries.iter().enumerate().map(part).collect::<String>());
    }
}

/// Names and source lines of the program are markup in no format, and act on no terminal.
#[test]
fn hostile_names_are_escaped() {
    let mut story = stories::hostile();
    let hostile = "</script><img src=x onerror=alert(1)>\"'&]]>--><![CDATA[";
    story.names.regions[0].name.push_str(hostile);
    story.names.objects.values_mut().for_each(|object| object.name = Some(hostile.to_owned()));
    story.names.threads[0].name = Some(hostile.to_owned());
    story.names.lines.values_mut().for_each(|line| line.push_str(hostile));
    let report = story.report();
    let html = render(&Html, &report);
    assert!(!html.contains("<img") && html.matches("</script>").count() == 2, "{html}");
    let xml = render(&JUnit, &report);
    let mut reader = quick_xml::Reader::from_str(&xml);
    let mut names = Vec::new();
    loop {
        match reader.read_event().expect("it is well-formed") {
            quick_xml::events::Event::Start(tag) | quick_xml::events::Event::Empty(tag) => {
                names.push(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
            }
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["failure", "testcase", "testsuite", "testsuites"]);
    for line in render(&Dot, &report).lines() {
        assert_eq!(line.replace("\\\\", "").replace("\\\"", "").matches('"').count() % 2, 0);
    }
    sarif(&report);
    trace(&report);
}
