//! Reports as OpenTelemetry logs: a document of the OpenTelemetry protocol in JSON (OTLP 1.x), with a log event for
//! each defect. It is for a collector, by HTTP or as a file (`docs/reports.md#opentelemetry`).

use chrono::DateTime;
use serde_json::{Value, json};

use super::{
    format::{Entry, FormatError, Layout, ReportFormat},
    json,
    model::{Class, Defect, Location, Report, Subject},
    phrase,
    rule::Rule,
};

/// Log events of OpenTelemetry as a format: a document for each report, each on a line.
#[derive(Clone, Copy, Debug)]
pub struct Otlp;

impl ReportFormat for Otlp {
    fn render(&self, entries: &[Entry<'_>], _layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let document = |entry: &Entry<'_>| {
            json::compact_document(&json!({ "resourceLogs": [resource_logs(entry.report)] }))
        };
        Ok(entries.iter().map(document).collect::<Result<String, _>>()?.into_bytes())
    }

    fn is_stream(&self) -> bool {
        true
    }
}

/// Log events of a report, with the program as their resource.
fn resource_logs(report: &Report) -> Value {
    let mut resource = vec![text("service.name", &report.subject.program())];
    resource.extend(report.host.as_ref().map(|host| text("host.name", host)));
    if let Subject::Process { pid, .. } = report.subject {
        resource.push(number("process.pid", pid.into()));
    }
    let records: Vec<Value> = report.defects.iter().map(|defect| record(report, defect)).collect();
    json!({
        "resource": { "attributes": resource },
        "scopeLogs": [{
            "scope": { "name": report.tool.name, "version": report.tool.version },
            "logRecords": records,
        }],
    })
}

/// Log event of a defect.
fn record(report: &Report, defect: &Defect) -> Value {
    // Severities of OpenTelemetry: 17 to 20 are errors, 13 to 16 warnings, 9 to 12 information.
    let (severity, name) = match defect.class {
        _ if defect.set_aside.is_some() => (9, "INFO"),
        Class::Likely => (17, "ERROR"),
        Class::Possible => (13, "WARN"),
        Class::ByDesign => (9, "INFO"),
    };
    let rule = Rule::of(defect.pattern);
    let place = |prefix: &str, at: Option<&Location>, label: &str| {
        let mut attributes = vec![text(&format!("avtrace.gap.{prefix}"), label)];
        // Names of the semantic conventions, for the step that closed the cycle.
        if let Some(at) = at.filter(|_| prefix == "returned") {
            attributes.push(text("code.file.path", &at.file));
            attributes.extend(at.line.map(|line| number("code.line.number", line.into())));
            attributes
                .extend(at.function.as_ref().map(|function| text("code.function.name", function)));
        }
        attributes
    };
    let mut attributes = vec![
        text("avtrace.rule", rule.id),
        text("avtrace.pattern", rule.name),
        text("avtrace.class", &word(&defect.class)),
        text("avtrace.fingerprint", &defect.fingerprint),
        text("avtrace.region", &defect.region),
        text("avtrace.subject", &defect.subject),
        text("avtrace.evidence", &word(&defect.evidence)),
        number("avtrace.executions", defect.runs),
        number("avtrace.cut_executions", defect.cut_runs),
        number("avtrace.occurrences", defect.occurrences),
        text("avtrace.help", &defect.help),
    ];
    attributes.extend(place("left", defect.gap.left.as_ref(), &defect.gap.left_at.label));
    let returned = &defect.gap.returned_at.label;
    attributes.extend(place("returned", defect.gap.returned.as_ref(), returned));
    let aside = defect.set_aside.as_ref();
    attributes.extend(aside.map(|decision| text("avtrace.set_aside", &decision.reason)));
    let mut record = json!({
        "severityNumber": severity,
        "severityText": name,
        "eventName": "avtrace.defect",
        "body": { "stringValue": phrase::in_a_line(defect) },
        "attributes": attributes,
    });
    if let Some(time) = nanoseconds(report) {
        record["timeUnixNano"] = time.clone().into();
        record["observedTimeUnixNano"] = time.into();
    }
    // Version, trace, span and flags: checked where the report got it.
    let context: Vec<&str> = report.traceparent.as_deref().unwrap_or_default().split('-').collect();
    if let [_, trace, span, flags, ..] = context.as_slice() {
        record["traceId"] = (*trace).into();
        record["spanId"] = (*span).into();
        record["flags"] = u32::from_str_radix(flags, 16).unwrap_or(0).into();
    }
    record
}

/// Time of a report in nanoseconds since 1970: text, as numbers of 64 bits are in OTLP's JSON.
fn nanoseconds(report: &Report) -> Option<String> {
    let time = DateTime::parse_from_rfc3339(report.time.as_ref()?).ok()?;
    Some(time.timestamp_nanos_opt()?.to_string())
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// Returns the name of a value in JSON reports.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
