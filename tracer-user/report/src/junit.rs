//! Test results in JUnit's XML, so that CI systems show defects as failures: a suite for each report, with a case for
//! the run and one for each defect.

use std::io;

use quick_xml::{
    Writer,
    events::{BytesDecl, BytesText, Event},
};

use super::{
    escape::printable,
    explain,
    format::{Entry, FormatError, Layout, ReportFormat},
    model::{Class, Report, Subject},
    phrase,
    rule::Rule,
    scene::{Finding, findings},
    warnings::warnings,
};

/// JUnit's XML as a format.
#[derive(Clone, Copy, Debug)]
pub struct JUnit;

enum Outcome {
    Passed,
    Skipped(String),
    /// Message, type and text.
    Failed(String, &'static str, String),
}

struct Case {
    name: String,
    /// Group of cases: the region.
    class_name: String,
    file: Option<(String, Option<u32>)>,
    outcome: Outcome,
}

impl ReportFormat for JUnit {
    fn render(&self, entries: &[Entry<'_>], layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let suites: Vec<(&Entry<'_>, Vec<Case>)> =
            entries.iter().map(|entry| (entry, cases(entry.report, layout))).collect();
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let all = suites.iter().flat_map(|(_, cases)| cases);
        let (tests, failures, skipped) = count(all);
        writer
            .create_element("testsuites")
            .with_attribute(("name", "avtrace"))
            .with_attribute(("tests", &*tests))
            .with_attribute(("failures", &*failures))
            .with_attribute(("skipped", &*skipped))
            .write_inner_content(|writer| {
                suites.iter().try_for_each(|(entry, cases)| suite(writer, entry, cases))
            })?;
        let mut text = writer.into_inner();
        text.push(b'\n');
        Ok(text)
    }
}

/// Numbers of cases, of failed cases and of skipped cases.
fn count<'c>(cases: impl Iterator<Item = &'c Case>) -> (String, String, String) {
    let (mut tests, mut failures, mut skipped) = (0, 0, 0);
    for case in cases {
        tests += 1;
        match case.outcome {
            Outcome::Passed => {}
            Outcome::Skipped(_) => skipped += 1,
            Outcome::Failed(..) => failures += 1,
        }
    }
    (tests.to_string(), failures.to_string(), skipped.to_string())
}

/// The test cases of a report: the run as a whole, then its findings.
fn cases(report: &Report, layout: &Layout) -> Vec<Case> {
    let mut cases = vec![run(report, layout.least)];
    cases.extend(findings(report).iter().map(|finding| case(finding, layout)));
    cases
}

/// The run as a case: it fails where the program did, and where no finding says that it is not serializable. Defects
/// have cases of their own.
fn run(report: &Report, least: Class) -> Case {
    let rule = Rule::NOT_SERIALIZABLE;
    let death = explain::death(&report.subject).filter(|_| report.merged.is_none());
    let outcome = if let Some(death) = death.filter(|_| report.hunt.is_none()) {
        let mut text = format!("{death}\n\nIts own output says more.");
        for open in &report.open_at_end {
            text.push_str(&format!("\n{}", explain::open_at_end(open, report)));
        }
        let kind = "program-failed";
        Outcome::Failed(format!("the program failed: {death}"), kind, text)
    } else if report.has_cycle_alone() && least >= Class::Possible {
        let text = format!("{}\n\nhelp: {}", rule.meaning, rule.repair);
        Outcome::Failed(format!("the run is not serializable: {}", rule.summary), rule.name, text)
    } else if !explain::checked_anything(report) {
        Outcome::Skipped("no region ran, so there was nothing to check".to_owned())
    } else {
        Outcome::Passed
    };
    Case { name: "run".to_owned(), class_name: "avtrace".to_owned(), file: None, outcome }
}

fn case(finding: &Finding<'_>, layout: &Layout) -> Case {
    let rule = finding.rule();
    let what = match finding.defect {
        Some(defect) => format!("{} at {}", phrase::what(defect), phrase::gap(defect)),
        None => format!("{}: {}", finding.id(), rule.summary),
    };
    let aside = finding.defect.and_then(|defect| defect.set_aside.as_ref());
    let outcome = if let Some(decision) = aside {
        Outcome::Skipped(format!("set aside: {}", decision.reason))
    } else if finding.counts(layout.least) {
        let class = finding.defect.map_or(rule.name, |defect| phrase::class(defect.class));
        Outcome::Failed(finding.headline(), class, details(finding))
    } else {
        let class = finding.defect.map(|defect| phrase::class(defect.class)).unwrap_or_default();
        Outcome::Skipped(format!("{class}: it does not count (--fail-on)"))
    };
    let place = finding.places().into_iter().find_map(|(at, ..)| at);
    Case {
        name: format!("{} {what}", rule.id),
        class_name: finding.region().to_owned(),
        file: place.map(|at| (layout.text.relative(&at.file).to_owned(), at.line)),
        outcome,
    }
}

/// Everything that a log of failures should say.
fn details(finding: &Finding<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (at, label, meaning) in finding.places() {
        lines.push(format!("{}: {meaning}", full_place(at, label)));
    }
    if let Some(scene) = finding.scene() {
        for (at, step) in scene.violation.steps.iter().enumerate() {
            let place = explain::place(step.location.as_ref(), &step.label);
            let action = scene.action(step);
            lines.push(format!("{:>3} {} {action} ({place})", at + 1, scene.who(step.thread)));
        }
        lines.push(format!("evidence: {}", explain::evidence(scene.violation, finding.report)));
    }
    if let Some(defect) = finding.defect {
        let reasons: Vec<&str> = defect.reasons.iter().map(|reason| reason.text.as_str()).collect();
        lines.push(format!("{}: {}", phrase::class(defect.class), reasons.join("; ")));
        lines.push(format!("seen: {}", phrase::seen(defect)));
        lines.push(format!("fingerprint: {}", defect.fingerprint));
    }
    lines.push(format!("help: {}", finding.help()));
    let rule = finding.rule().id;
    lines.push(format!("`avtrace explain {rule}` says what {rule} is"));
    lines.join("\n")
}

fn full_place(at: Option<&super::model::Location>, label: &str) -> String {
    let Some(at) = at else { return label.to_owned() };
    let mut text = at.file.clone();
    for number in [at.line, at.column].into_iter().flatten() {
        text.push_str(&format!(":{number}"));
    }
    text
}

fn suite(writer: &mut Writer<Vec<u8>>, entry: &Entry<'_>, cases: &[Case]) -> io::Result<()> {
    let report = entry.report;
    let name = match (&entry.name, &report.subject) {
        (Some(name), _) | (None, Subject::Process { name: Some(name), .. }) => name.clone(),
        (None, Subject::Process { argv, .. }) => argv.join(" "),
        (None, Subject::Trace { path, .. }) => path.clone(),
    };
    let (tests, failures, skipped) = count(cases.iter());
    // Seconds, as JUnit has them.
    let time = report.summary.elapsed_ns.map(|ns| format!("{:.3}", ns as f64 / 1e9));
    let mut element = writer
        .create_element("testsuite")
        .with_attribute(("name", &*printable(&name)))
        .with_attribute(("tests", &*tests))
        .with_attribute(("failures", &*failures))
        .with_attribute(("errors", "0"))
        .with_attribute(("skipped", &*skipped));
    if let Some(time) = &time {
        element = element.with_attribute(("time", &**time));
    }
    element.write_inner_content(|writer| {
        cases.iter().try_for_each(|case| write(writer, case))?;
        let warnings: Vec<String> = (warnings(report).into_iter())
            .map(|warning| match warning.help {
                Some(help) => format!("warning: {}\n  help: {help}", warning.message),
                None => format!("warning: {}", warning.message),
            })
            .collect();
        if !warnings.is_empty() {
            writer
                .create_element("system-err")
                .write_text_content(BytesText::new(&lines(&warnings.join("\n"))))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn write(writer: &mut Writer<Vec<u8>>, case: &Case) -> io::Result<()> {
    let line = case.file.as_ref().and_then(|(_, line)| *line).map(|line| line.to_string());
    let mut element = writer
        .create_element("testcase")
        .with_attribute(("name", &*printable(&case.name)))
        .with_attribute(("classname", &*printable(&case.class_name)));
    if let Some((file, _)) = &case.file {
        element = element.with_attribute(("file", &*printable(file)));
    }
    if let Some(line) = &line {
        element = element.with_attribute(("line", &**line));
    }
    match &case.outcome {
        Outcome::Passed => element.write_empty()?,
        Outcome::Skipped(reason) => element.write_inner_content(|writer| {
            let skipped = writer.create_element("skipped");
            skipped.with_attribute(("message", &*printable(reason))).write_empty().map(drop)
        })?,
        Outcome::Failed(message, kind, text) => element.write_inner_content(|writer| {
            let failure = writer.create_element("failure");
            let failure = failure.with_attribute(("message", &*printable(message)));
            let failure = failure.with_attribute(("type", *kind));
            failure.write_text_content(BytesText::new(&lines(text))).map(drop)
        })?,
    };
    Ok(())
}

/// Text of several lines, without anything that XML or a terminal does not take.
fn lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}
