//! Reports as Parquet tables: rows as a reader gets them, and the columns as `docs/parquet.md` has them.

use std::collections::HashMap;

use avtrace::offline::events;
use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::Field,
};
use report::{
    Entry, ParquetDefects, ParquetFindings, ParquetRuns, Report, ReportFormat, Subject,
    merge::merge,
    parquet::{defects, findings, runs},
    table::Table,
};

use crate::formats::{layout, of_each_class};
use crate::stories;

type Row = HashMap<String, Field>;

/// Rows of the table of reports.
fn rows(format: &dyn ReportFormat, reports: &[Report]) -> Vec<Row> {
    let entries: Vec<Entry<'_>> = reports.iter().map(Entry::new).collect();
    let bytes = format.render(&entries, &layout()).expect("a table");
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("Parquet");
    let rows = reader.get_row_iter(None).expect("rows");
    rows.map(|row| row.expect("a row").into_columns().into_iter().collect()).collect()
}

fn text(row: &Row, column: &str) -> String {
    match &row[column] {
        Field::Str(text) => text.clone(),
        Field::Null => "null".to_owned(),
        other => panic!("{column}: {other}"),
    }
}

fn number(row: &Row, column: &str) -> i64 {
    match row[column] {
        Field::Long(number) | Field::TimestampMicros(number) => number,
        ref other => panic!("{column}: {other}"),
    }
}

/// Puts a time and a machine into a report.
fn at(mut report: Report, host: &str, time: &str) -> Report {
    (report.host, report.time) = (Some(host.to_owned()), Some(time.to_owned()));
    report
}

/// Rows of a table in the manual: column, type, and if there may be no value.
fn documented(heading: &str) -> Vec<(String, String, bool)> {
    let manual = include_str!("../../../../docs/parquet.md");
    let (_, section) = manual.split_once(&format!("\n## {heading}\n")).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (kind, null) = cells[2].split_once(',').unwrap_or((cells[2], ""));
        assert!(!cells[3].is_empty(), "{line}");
        (cells[1].replace('`', ""), kind.replace('`', ""), null == " null")
    })
    .collect()
}

fn declared<R>(table: &Table<R>) -> Vec<(String, String, bool)> {
    let columns = table.columns.iter();
    columns
        .map(|column| (column.name.to_owned(), column.kind.sql().to_owned(), column.is_optional))
        .collect()
}

#[test]
fn the_manual_has_all_columns() {
    let common = documented("Columns of all reports");
    assert_eq!(common.len(), 5);
    let of_reports = |heading: &str| [common.clone(), documented(heading)].concat();
    assert_eq!(declared(&defects()), of_reports("Defects"));
    assert_eq!(declared(&findings()), of_reports("Findings"));
    assert_eq!(declared(&runs()), of_reports("Runs"));
    assert_eq!(declared(&events::table()), documented("Events"));
}

#[test]
fn defects_are_rows() {
    let report = at(of_each_class(), "ci-1", "2026-11-23T08:15:30.125Z");
    let rows = rows(&ParquetDefects, &[report.clone(), stories::clean().report()]);
    assert_eq!(rows.len(), report.defects.len());
    for (row, defect) in rows.iter().zip(&report.defects) {
        assert_eq!(text(row, "fingerprint"), defect.fingerprint);
        assert_eq!(
            (text(row, "host"), text(row, "region")),
            ("ci-1".to_owned(), defect.region.clone())
        );
        assert_eq!(number(row, "time"), 1_795_421_730_125_000);
        assert_eq!(number(row, "executions"), defect.runs as i64);
        assert_eq!((number(row, "reports"), number(row, "hosts")), (1, 1));
    }
    let classes: Vec<String> = rows.iter().map(|row| text(row, "class")).collect();
    assert_eq!(classes, ["likely", "possible", "by-design", "likely"]);
    assert_eq!(text(&rows[3], "set_aside_by"), "suppression");
    assert_eq!(text(&rows[0], "set_aside_by"), "null");
}

#[test]
fn findings_and_runs_join_defects() {
    let reports = [of_each_class(), stories::clean().report(), stories::cycle_only().report()];
    let (defects, findings) = (rows(&ParquetDefects, &reports), rows(&ParquetFindings, &reports));
    let runs = rows(&ParquetRuns, &reports);
    assert_eq!(runs.len(), 3);
    assert_eq!(findings.len(), reports[0].violations.len() + reports[0].exemplars.len());
    for row in defects.iter().chain(&findings) {
        assert_eq!(text(row, "run"), text(&runs[0], "run"));
    }
    assert_ne!(text(&runs[0], "run"), text(&runs[1], "run"));
    assert!(
        findings.iter().any(|row| text(row, "fingerprint") == text(&defects[0], "fingerprint"))
    );
    let counts = ["likely", "possible", "by_design", "set_aside"];
    assert_eq!(counts.map(|column| number(&runs[0], column)), [1, 1, 1, 1]);
    assert_eq!(runs[2]["serializable"], Field::Bool(false));
    let witness: serde_json::Value =
        serde_json::from_str(&text(&findings[0], "witness")).expect("JSON");
    assert_eq!(witness, serde_json::to_value(&reports[0].violations[0].witness).expect("JSON"));
}

#[test]
fn merged_defects_have_their_reports_hosts_and_times() {
    let [first, second] = ["2026-11-20T10:00:00.000Z", "2026-11-23T08:15:30.125Z"];
    let reports = [
        at(stories::racy_data().report(), "one", second),
        at(stories::racy_data().report(), "two", first),
        at(stories::racy_data().report(), "two", second),
        at(stories::lock_split().report(), "two", second),
        at(stories::clean().report(), "three", first),
    ];
    let merged = merge(&reports).expect("a report");
    let all = merged.merged.clone().expect("of several");
    assert_eq!((all.reports, all.hosts.len()), (5, 3));
    let known = &reports[0].defects[0].fingerprint;
    let rows = rows(&ParquetDefects, std::slice::from_ref(&merged));
    assert_eq!(rows.len(), 2, "each defect once");
    let row = rows.iter().find(|row| text(row, "fingerprint") == *known).expect("the defect");
    assert_eq!((number(row, "reports"), number(row, "hosts")), (3, 2));
    let between = number(row, "last_time") - number(row, "first_time");
    assert_eq!(between, ((2 * 24 + 22) * 3600 + 15 * 60 + 30) * 1_000_000 + 125_000);
    assert_eq!(number(row, "occurrences"), 3 * reports[0].defects[0].occurrences as i64);
    assert_eq!(
        merged.counts.events,
        reports.iter().map(|report| report.counts.events).sum::<u64>()
    );
    // Each defect shows its finding, with threads that are listed.
    for defect in &merged.defects {
        let shown = merged.shown(defect).expect("a finding");
        let ids: Vec<u32> = merged.threads.iter().map(|thread| thread.id).collect();
        shown.clone().for_each_thread(|thread| assert!(ids.contains(thread)));
    }
    assert_eq!(merge(&[]), None);
}

#[test]
fn merging_merged_reports_is_merging_all() {
    let time = "2026-11-20T10:00:00.000Z";
    let part = |host: &str| at(of_each_class(), host, time);
    let parts = [part("one"), part("two"), part("three")];
    let pairs = [merge(&parts[..2]).expect("a report"), merge(&parts[2..]).expect("a report")];
    let (all, twice) = (merge(&parts).expect("a report"), merge(&pairs).expect("a report"));
    assert_eq!((&twice.defects, &twice.merged), (&all.defects, &all.merged));
    // Threads are numbered as they are mentioned.
    assert_eq!(twice.threads.len(), all.threads.len());
    let ids = |report: &Report| -> Vec<String> {
        report.violations.iter().map(|violation| violation.id.clone() + &violation.region).collect()
    };
    assert_eq!(ids(&twice), ids(&all));
}

#[test]
fn the_likelier_report_is_shown() {
    let (mut possible, likely) = (stories::racy_data().report(), stories::racy_data().report());
    possible.defects[0].class = report::Class::ByDesign;
    possible.violations[0].begin_label = "of the other".to_owned();
    let Subject::Process { pid, .. } = &mut possible.subject else { panic!("a process") };
    *pid += 1;
    let merged = merge(&[possible, likely.clone()]).expect("a report");
    assert_eq!(merged.defects.len(), 1);
    assert_eq!(merged.defects[0].class, likely.defects[0].class);
    let shown = merged.shown(&merged.defects[0]).expect("a finding");
    assert_eq!(shown.begin_label, likely.violations[0].begin_label);
}
