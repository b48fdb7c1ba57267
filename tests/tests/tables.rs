//! Reports and recordings of many runs, in the tools that people have for such: DuckDB over a directory of reports, Ray
//! over a directory of traces, by the examples. `avtrace merge` and `convert` are run for both.
//!
//! A test whose Python package is missing is skipped, and says how to get it; where `CI` is set it fails.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tests::{Ended, Running, root, target_dir, tracer};

/// Ray starts a dozen processes, on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(300);

/// A lost update of `x` by `bank`, in a trace.
const BAD: &str = "\
T1|begin(transfer)|bank.c:1
T1|r(account.balance)|bank.c:2
T2|w(account.balance)|bank.c:9
T1|w(account.balance)|bank.c:3
T1|end(transfer)|bank.c:4
";

/// Another one.
const OTHER: &str = "\
T1|begin(push)|queue.c:1
T1|r(queue.length)|queue.c:2
T2|w(queue.length)|queue.c:9
T1|w(queue.length)|queue.c:3
T1|end(push)|queue.c:4
";

const GOOD: &str = "\
T1|begin(transfer)|bank.c:1
T1|w(account.balance)|bank.c:3
T1|end(transfer)|bank.c:4
T2|w(account.balance)|bank.c:9
";

fn python() -> PathBuf {
    target_dir().join("test-tools/bin/python")
}

/// Returns whether Python has a package.
fn has(package: &str, remedy: &str) -> bool {
    let import = Command::new(python()).args(["-c", &format!("import {package}")]).output();
    let is_there = import.is_ok_and(|output| output.status.success());
    if !is_there {
        assert!(env::var_os("CI").is_none(), "Python has no {package}: {remedy}");
        eprintln!("skipped: Python has no {package}: {remedy}");
    }
    is_there
}

fn run(program: &Path, arguments: &[&str], directory: &Path) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("AVTRACE", tracer::avtrace());
    Running::start(&mut command, None, LIMIT).wait()
}

#[track_caller]
fn avtrace(arguments: &[&str], directory: &Path) -> Ended {
    run(tracer::avtrace(), arguments, directory)
}

/// Writes the report on a trace as one of a run on a machine.
fn report(folder: &TempDir, trace: &str, name: &str, (host, time): (&str, &str)) {
    fs::write(folder.path().join("trace.std"), trace).expect("a trace");
    let ended = avtrace(&["check", "--no-config", "--format", "json", "trace.std"], folder.path());
    let mut report: Value = serde_json::from_str(&ended.stdout).expect("a report");
    report["host"] = host.into();
    report["time"] = time.into();
    let reports = folder.path().join("reports");
    fs::create_dir_all(&reports).expect("a directory");
    fs::write(reports.join(name), report.to_string()).expect("a report");
}

/// Reports of two weeks, on three machines.
fn reports() -> TempDir {
    let folder = tests::folder();
    let [old, monday, tuesday] =
        ["2026-11-18T09:00:00.000Z", "2026-11-23T09:00:00.000Z", "2026-11-24T09:00:00.000Z"];
    report(&folder, BAD, "1.json", ("ci-1", old));
    report(&folder, BAD, "2.json", ("ci-1", tuesday));
    report(&folder, OTHER, "3.json", ("ci-1", monday));
    report(&folder, OTHER, "4.json", ("ci-2", tuesday));
    report(&folder, OTHER, "5.json", ("ci-2", "2026-11-24T10:00:00.000Z"));
    report(&folder, GOOD, "6.json", ("ci-3", tuesday));
    folder
}

#[test]
fn duckdb_says_which_defects_are_new_since_monday_and_on_how_many_hosts() {
    if !has("duckdb", "run `cargo xtask setup`") {
        return;
    }
    let folder = reports();
    let written = ["report", "--no-config", "reports", "--format", "parquet=defects.parquet"];
    let ended = avtrace(&written, folder.path());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(66), ""), "{}", ended.stderr);
    let example = root().join("examples/duckdb/new_defects.py");
    let example = example.to_str().expect("text");
    let ended = run(&python(), &[example, "defects.parquet", "2026-11-23"], folder.path());
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [line] = lines.as_slice() else { panic!("one is new: {}", ended.stdout) };
    assert!(line.contains("`push`") && line.contains("queue.length"), "{line}");
    assert!(line.contains("on 2 hosts, in 3 reports, since 2026-11-23 09:00:00"), "{line}");
    let ended = run(&python(), &[example, "defects.parquet", "2026-11-25"], folder.path());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
}

#[test]
fn merged_reports_have_each_defect_once() {
    let folder = reports();
    let ended = avtrace(
        &["merge", "--no-config", "reports", "--format", "text", "--format", "json=all.json"],
        folder.path(),
    );
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("in 3 of 6 reports, on 2 of 3 hosts, first at 2026-11-23T"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("made of 6 reports from 3 hosts"), "{}", ended.stdout);
    let all = fs::read(folder.path().join("all.json")).expect("a report");
    let all: Value = serde_json::from_slice(&all).expect("JSON");
    assert_eq!(all["defects"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["defects"][0]["merged"]["reports"], 3);
    assert_eq!(all["defects"][0]["merged"]["hosts"], serde_json::json!(["ci-1", "ci-2"]));
    assert_eq!(all["merged"]["reports"], 6);
    // Machines can be left out afterwards.
    let ended = avtrace(
        &["merge", "--no-config", "--no-host", "--format", "json", "all.json"],
        folder.path(),
    );
    assert!(!ended.stdout.contains("ci-1"), "{}", ended.stdout);
    let ended = avtrace(&["merge", "--no-config", "all.json", "all.json"], folder.path());
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("named twice"), "{}", ended.stderr);
    fs::write(folder.path().join("no.avth"), "SQLite format 3\0 and more").expect("a file");
    let ended = avtrace(&["merge", "--no-config", "all.json", "no.avth"], folder.path());
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    fs::write(folder.path().join("broken.json"), "{").expect("a file");
    let ended = avtrace(&["merge", "--no-config", "all.json", "broken.json"], folder.path());
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(3), 1), "{}", ended.stderr);
    assert!(ended.stdout.contains("`push`"), "the others are merged: {}", ended.stdout);
}

#[test]
fn tables_need_a_file() {
    let folder = tests::folder();
    let ended = avtrace(&["run", "--format", "parquet", "true"], folder.path());
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--format parquet=FILE"), "{}", ended.stderr);
    let ended = avtrace(
        &["check", "--format", "parquet=t.parquet", "--format", "parquet-runs=./t.parquet", "-"],
        folder.path(),
    );
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("two reports would go to"), "{}", ended.stderr);
}

#[test]
fn duckdb_reads_the_events_of_a_trace() {
    if !has("duckdb", "run `cargo xtask setup`") {
        return;
    }
    let folder = tests::folder();
    fs::write(folder.path().join("t.std"), BAD).expect("a trace");
    let ended = avtrace(&["convert", "t.std", "t.avt"], folder.path());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let script = "
import duckdb, sys
events = duckdb.sql(f\"SELECT event, operation, thread, object, region, file, line FROM '{sys.argv[1]}' ORDER BY event\")
print(events.fetchall())
metadata = duckdb.sql(f\"SELECT key, value FROM parquet_kv_metadata('{sys.argv[1]}') ORDER BY key\").fetchall()
print([value.decode() for key, value in metadata][:2])
";
    // Of text a copy is made, the other is used in place.
    let mut tables = Vec::new();
    for (from, to) in [("t.std", "text.parquet"), ("t.avt", "avt.parquet")] {
        let ended = avtrace(&["convert", from, to], folder.path());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let ended = run(&python(), &["-c", script, to], folder.path());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        tables.push(ended.stdout);
    }
    let [text, avt] = tables.as_slice() else { panic!("two tables") };
    assert_eq!(text, avt);
    assert!(text.contains("(0, 'begin', 0, None, 'transfer', 'bank.c', 1)"), "{text}");
    assert!(text.contains("(2, 'write', 1, 'account.balance', None, 'bank.c', 9)"), "{text}");
    assert!(text.ends_with("['avtrace-parquet/1', 'events']\n"), "{text}");
}

#[test]
#[ignore = "starts Ray; `cargo xtask test --long` installs and runs it"]
fn ray_checks_a_directory_of_traces() {
    if !has("ray", "run `cargo xtask test --long`") {
        return;
    }
    let folder = tests::folder();
    let traces = folder.path().join("traces/night");
    fs::create_dir_all(&traces).expect("a directory");
    for (name, trace) in [("bad", BAD), ("other", OTHER), ("good", GOOD)] {
        fs::write(folder.path().join("t.std"), trace).expect("a trace");
        let to = format!("traces/night/{name}.avt");
        let ended = avtrace(&["convert", "t.std", &to], folder.path());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let example = root().join("examples/ray/check_all.py");
    let example = example.to_str().expect("text");
    let ended = run(&python(), &[example, "traces", "reports"], folder.path());
    assert_eq!(ended.code, Some(66), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("`transfer`") && ended.stdout.contains("`push`"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("made of 3 reports"), "{}", ended.stdout);
    fs::write(traces.join("broken.avt"), "no trace").expect("a file");
    let ended = run(&python(), &[example, "traces", "others"], folder.path());
    assert!(ended.stderr.contains("broken.avt: avtrace ended with status 3"), "{}", ended.stderr);
}
