//! Reports as tables in Parquet files (`docs/parquet.md`), for many runs at once: defects, findings or runs, a row for
//! each in each report.

use checker::defect::fingerprint;
use chrono::DateTime;
use serde::Serialize;

use super::{
    format::{Entry, FormatError, Layout, ReportFormat},
    model::{Class, Defect, Location, Merged, Report, Subject, Violation},
    rule::Rule,
};
use crate::table::{
    Kind::{Flag, Number, Text, Time},
    Table, TableWriter,
};

/// Defects as a Parquet file.
#[derive(Clone, Copy, Debug)]
pub struct ParquetDefects;

/// Findings as a Parquet file.
#[derive(Clone, Copy, Debug)]
pub struct ParquetFindings;

/// Runs as a Parquet file.
#[derive(Clone, Copy, Debug)]
pub struct ParquetRuns;

impl ReportFormat for ParquetDefects {
    fn render(&self, entries: &[Entry<'_>], _layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let runs: Vec<Run<'_>> = entries.iter().map(Run::of).collect();
        let mut writer = TableWriter::new(defects(), Vec::new())?;
        for run in &runs {
            run.report.defects.iter().try_for_each(|of| writer.push(&DefectRow { run, of }))?;
        }
        Ok(writer.finish()?)
    }

    fn is_binary(&self) -> bool {
        true
    }
}

impl ReportFormat for ParquetFindings {
    fn render(&self, entries: &[Entry<'_>], _layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let runs: Vec<Run<'_>> = entries.iter().map(Run::of).collect();
        let mut writer = TableWriter::new(findings(), Vec::new())?;
        for run in &runs {
            let Report { violations, exemplars, .. } = run.report;
            for of in violations.iter().chain(exemplars) {
                let defect =
                    run.report.defects.iter().find(|defect| defect.violations.contains(&of.id));
                let is_exemplar = exemplars.iter().any(|exemplar| exemplar.id == of.id);
                writer.push(&FindingRow { run, of, defect, is_exemplar })?;
            }
        }
        Ok(writer.finish()?)
    }

    fn is_binary(&self) -> bool {
        true
    }
}

impl ReportFormat for ParquetRuns {
    fn render(&self, entries: &[Entry<'_>], _layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let mut writer = TableWriter::new(runs(), Vec::new())?;
        entries.iter().map(Run::of).try_for_each(|run| writer.push(&run))?;
        Ok(writer.finish()?)
    }

    fn is_binary(&self) -> bool {
        true
    }
}

/// A report, with the values that several tables have.
#[derive(Debug)]
pub struct Run<'r> {
    report: &'r Report,
    /// Hash of the parts that no option for reports changes, so that rows of several files can be joined.
    id: String,
    program: String,
}

impl<'r> Run<'r> {
    fn of(entry: &Entry<'r>) -> Self {
        let report = entry.report;
        let Report { tool, subject, counts, summary, time, host, merged, .. } = report;
        let identity = serde_json::to_string(&(tool, subject, counts, summary, time, host, merged));
        let id = format!("{:016x}", fingerprint::of([identity.unwrap_or_default().as_str()]));
        Self { report, id, program: subject.program() }
    }

    /// Counts the defects of a class that are not set aside.
    fn of_class(&self, class: Class) -> u64 {
        let defects = self.report.defects.iter();
        defects.filter(|of| of.class == class && of.set_aside.is_none()).count() as u64
    }
}

/// A defect in a run.
#[derive(Debug)]
pub struct DefectRow<'r> {
    run: &'r Run<'r>,
    of: &'r Defect,
}

impl DefectRow<'_> {
    /// Returns the reports that have it.
    fn merged(&self) -> Merged {
        self.of.merged.clone().unwrap_or_else(|| Merged::of(self.run.report))
    }
}

/// A finding in a run.
#[derive(Debug)]
pub struct FindingRow<'r> {
    run: &'r Run<'r>,
    of: &'r Violation,
    defect: Option<&'r Defect>,
    is_exemplar: bool,
}

/// A row of something that a run showed.
trait OfRun {
    fn run(&self) -> &Run<'_>;
}

impl OfRun for Run<'_> {
    fn run(&self) -> &Run<'_> {
        self
    }
}

impl OfRun for DefectRow<'_> {
    fn run(&self) -> &Run<'_> {
        self.run
    }
}

impl OfRun for FindingRow<'_> {
    fn run(&self) -> &Run<'_> {
        self.run
    }
}

/// Begins a table with the columns that all of reports have.
fn table<R: OfRun>(name: &'static str) -> Table<R> {
    Table::new(name)
        .with("run", Text, |row: &R| row.run().id.as_str().into())
        .with_optional("time", Time, |row: &R| microseconds(row.run().report.time.as_ref()).into())
        .with_optional("host", Text, |row: &R| row.run().report.host.as_ref().into())
        .with("program", Text, |row: &R| row.run().program.as_str().into())
        .with_optional("traceparent", Text, |row: &R| row.run().report.traceparent.as_ref().into())
}

/// Returns the table of defects.
#[must_use]
pub fn defects<'r>() -> Table<DefectRow<'r>> {
    table("defects")
        .with("defect", Text, |row: &DefectRow<'r>| (&row.of.id).into())
        .with("fingerprint", Text, |row| (&row.of.fingerprint).into())
        .with("class", Text, |row| word(&row.of.class).into())
        .with("rule", Text, |row| Rule::of(row.of.pattern).id.into())
        .with("pattern", Text, |row| Rule::of(row.of.pattern).name.into())
        .with("region", Text, |row| (&row.of.region).into())
        .with("subject", Text, |row| (&row.of.subject).into())
        .with("evidence", Text, |row| word(&row.of.evidence).into())
        .with("order", Text, |row| word(&row.of.order).into())
        .with_optional("left_file", Text, |row| file(&row.of.gap.left).into())
        .with_optional("left_line", Number, |row| line(&row.of.gap.left).into())
        .with("left_label", Text, |row| (&row.of.gap.left_at.label).into())
        .with_optional("returned_file", Text, |row| file(&row.of.gap.returned).into())
        .with_optional("returned_line", Number, |row| line(&row.of.gap.returned).into())
        .with("returned_label", Text, |row| (&row.of.gap.returned_at.label).into())
        .with("executions", Number, |row| row.of.runs.into())
        .with("cut_executions", Number, |row| row.of.cut_runs.into())
        .with("occurrences", Number, |row| row.of.occurrences.into())
        .with("ways", Number, |row| row.of.ways.into())
        .with("origin", Text, |row| word(&row.of.origin).into())
        .with("reasons", Text, |row| {
            let kinds: Vec<&str> =
                row.of.reasons.iter().map(|reason| reason.kind.as_str()).collect();
            kinds.join(" ").into()
        })
        .with("help", Text, |row| (&row.of.help).into())
        .with_optional("set_aside_by", Text, |row| {
            row.of.set_aside.as_ref().map(|decision| word(&decision.by)).into()
        })
        .with_optional("set_aside", Text, |row| {
            row.of.set_aside.as_ref().map(|decision| &decision.reason).into()
        })
        .with_optional("hunted_runs", Number, |row| {
            row.of.hunted.as_ref().map(|hunted| hunted.runs).into()
        })
        .with("reports", Number, |row| row.merged().reports.into())
        .with("hosts", Number, |row| (row.merged().hosts.len() as u64).into())
        .with_optional("first_time", Time, |row| {
            microseconds(row.merged().first_time.as_ref()).into()
        })
        .with_optional("last_time", Time, |row| {
            microseconds(row.merged().last_time.as_ref()).into()
        })
}

/// Returns the table of findings.
#[must_use]
pub fn findings<'r>() -> Table<FindingRow<'r>> {
    table("findings")
        .with("finding", Text, |row: &FindingRow<'r>| (&row.of.id).into())
        .with_optional("defect", Text, |row| row.defect.map(|defect| &defect.id).into())
        .with_optional("fingerprint", Text, |row| {
            row.defect.map(|defect| &defect.fingerprint).into()
        })
        .with("exemplar", Flag, |row| row.is_exemplar.into())
        .with("region", Text, |row| (&row.of.region).into())
        .with("occurrences", Number, |row| row.of.occurrences.into())
        .with("evidence", Text, |row| word(&row.of.evidence).into())
        .with("order", Text, |row| word(&row.of.order).into())
        .with("thread", Number, |row| row.of.transaction.thread.into())
        .with("transaction", Number, |row| row.of.transaction.ordinal.into())
        .with("begin_event", Number, |row| row.of.transaction.begin_event.into())
        .with("trigger_event", Number, |row| row.of.trigger_event.into())
        .with("source_event", Number, |row| row.of.source_event.into())
        .with_optional("begin_file", Text, |row| file(&row.of.begin).into())
        .with_optional("begin_line", Number, |row| line(&row.of.begin).into())
        .with("begin_label", Text, |row| (&row.of.begin_label).into())
        .with("transactions", Number, |row| {
            // The first and the last are one.
            (row.of.witness.len().saturating_sub(1) as u64).into()
        })
        .with("witness", Text, |row| json(&row.of.witness).into())
        .with("edges", Text, |row| json(&row.of.edges).into())
        .with("help", Text, |row| (&row.of.hint).into())
}

/// Returns the table of runs.
#[must_use]
pub fn runs<'r>() -> Table<Run<'r>> {
    table("runs")
        .with("tool_version", Text, |row: &Run<'r>| (&row.report.tool.version).into())
        .with("algorithm", Text, |row| (&row.report.algorithm).into())
        .with("relation", Text, |row| word(&row.report.relation).into())
        .with("nesting", Text, |row| word(&row.report.nesting).into())
        .with_optional("trace", Text, |row| match &row.report.subject {
            Subject::Trace { path, .. } => Some(path).into(),
            Subject::Process { .. } => None::<&str>.into(),
        })
        .with_optional("pid", Number, |row| match row.report.subject {
            Subject::Process { pid, .. } => Some(pid).into(),
            Subject::Trace { .. } => None::<u32>.into(),
        })
        .with_optional("parent", Number, |row| match row.report.subject {
            Subject::Process { parent, .. } => parent.into(),
            Subject::Trace { .. } => None::<u32>.into(),
        })
        .with_optional("command", Text, |row| match &row.report.subject {
            Subject::Process { argv, .. } => Some(json(argv)).into(),
            Subject::Trace { .. } => None::<String>.into(),
        })
        .with_optional("exit_code", Number, |row| {
            let (Subject::Process { exit_code, .. } | Subject::Trace { exit_code, .. }) =
                &row.report.subject;
            (*exit_code).into()
        })
        .with_optional("signal", Number, |row| {
            let (Subject::Process { signal, .. } | Subject::Trace { signal, .. }) =
                &row.report.subject;
            (*signal).into()
        })
        .with_optional("serializable", Flag, |row| row.report.serializable.into())
        .with("events", Number, |row| row.report.counts.events.into())
        .with("lost_events", Number, |row| row.report.counts.lost_events.into())
        .with("threads", Number, |row| row.report.counts.threads.into())
        .with("regions", Number, |row| {
            let counts = &row.report.counts;
            counts.transactions.saturating_sub(counts.unary_transactions).into()
        })
        .with("dependencies", Number, |row| row.report.counts.dependencies.into())
        .with("violations", Number, |row| row.report.counts.violations.into())
        .with("findings", Number, |row| (row.report.violations.len() as u64).into())
        .with("likely", Number, |row| row.of_class(Class::Likely).into())
        .with("possible", Number, |row| row.of_class(Class::Possible).into())
        .with("by_design", Number, |row| row.of_class(Class::ByDesign).into())
        .with("set_aside", Number, |row| {
            let defects = row.report.defects.iter();
            (defects.filter(|defect| defect.set_aside.is_some()).count() as u64).into()
        })
        .with_optional("elapsed_ns", Number, |row| row.report.summary.elapsed_ns.into())
        .with("reports", Number, |row| Merged::of(row.report).reports.into())
        .with("hosts", Number, |row| (Merged::of(row.report).hosts.len() as u64).into())
}

/// Returns a time of a report in microseconds since 1970; `None` for text that is no time.
fn microseconds(time: Option<&String>) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(time?).ok()?;
    Some(time.timestamp_micros())
}

/// Returns the name of a value in JSON reports.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        other => other.map(|value| value.to_string()).unwrap_or_default(),
    }
}

/// Returns a value as it is in JSON reports.
fn json(value: &impl Serialize) -> String {
    // Neither maps with keys that are no text nor errors of the types' own can occur here.
    serde_json::to_string(value).unwrap_or_default()
}

fn file(location: &Option<Location>) -> Option<&str> {
    location.as_ref().map(|location| location.file.as_str())
}

fn line(location: &Option<Location>) -> Option<u32> {
    location.as_ref()?.line
}
