//! Fingerprints of defects: they distinguish lines of the same text, and stay when a program is changed elsewhere and
//! built again.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::{Avtrace, Ended, Program, c, programs::c_file, require_bpf, tracer::avtrace_with};

/// Ten lines for the place marked `@insert`, with the same texts as in the function below.
const INSERTED: &str = "\
__attribute__((unused)) static void add_once(void)
{
    long seen;

    pthread_mutex_lock(&lock);
    seen = total;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
    total = seen + 1;
    pthread_mutex_unlock(&lock);
}
";

/// A copy of a program's source that can be changed, and the findings of its runs.
struct Project {
    folder: tempfile::TempDir,
    source: PathBuf,
}

impl Project {
    fn of(program: &Program) -> Self {
        let folder = tests::folder();
        let source = folder.path().join(program.source.file_name().expect("a file name"));
        std::fs::copy(&program.source, &source).expect("a copy");
        Self { folder, source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn build(&self, headers: &Path) -> Program {
        let include = format!("-I{}", headers.display());
        c_file(&self.source, &["-g", "-O0", &include])
    }

    fn insert(&self, text: &str) {
        let source = std::fs::read_to_string(&self.source).expect("the source");
        let changed = source.replace("/* @insert */\n", text);
        assert!(changed.lines().count() >= source.lines().count() + 10);
        std::fs::write(&self.source, changed).expect("the source");
    }
}

/// Runs a program with its gap, and writes a JSON report.
fn run(program: &Program, gap: &str, report: &Path, options: &[&OsStr]) -> Ended {
    let report: [&OsStr; 4] =
        ["--format".as_ref(), "json".as_ref(), "-o".as_ref(), report.as_ref()];
    let run = Avtrace::on(program).seeing_memory().arguments([gap]);
    run.options(report.iter().chain(options)).run()
}

/// Fingerprints of the defects in `add_twice`.
fn fingerprints(report: &Path) -> Vec<String> {
    let document = std::fs::read(report).expect("the report");
    let report: Value = serde_json::from_slice(&document).expect("a report");
    let defects = report["defects"].as_array().expect("defects").iter();
    let found: Vec<String> = defects
        .filter(|defect| defect["region"] == "add_twice")
        .map(|defect| defect["fingerprint"].as_str().expect("a fingerprint").to_owned())
        .collect();
    assert!(!found.is_empty(), "{report:#}");
    found
}

#[test]
fn lines_of_the_same_text_are_distinguished_and_stay_the_same_after_a_rebuild() {
    require_bpf!();
    let original = c("same_lines", &["-g", "-O0"]);
    let headers = original.source.parent().expect("a folder").to_owned();
    let project = Project::of(&original);
    let program = project.build(&headers);
    let reports = ["1", "2"].map(|gap| {
        let report = project.path(&format!("{gap}.json"));
        let ended = run(&program, gap, &report, &[]);
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        report
    });
    let found = reports.each_ref().map(|report| fingerprints(report));
    assert!(found[0].iter().all(|one| !found[1].contains(one)), "{found:?}");

    project.insert(INSERTED);
    let program = project.build(&headers);
    let (report, trace) = (project.path("new.json"), project.path("t.avt"));
    for (gap, known) in ["1", "2"].iter().zip(&reports) {
        let options: [&OsStr; 4] =
            ["--baseline".as_ref(), known.as_ref(), "--record".as_ref(), trace.as_ref()];
        let ended = run(&program, gap, &report, &options);
        assert_eq!(fingerprints(&report), fingerprints(known));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let check: [OsString; 4] =
            ["check".into(), "--baseline".into(), known.into(), (&trace).into()];
        let checked = avtrace_with(check);
        assert_eq!(checked.code, Some(0), "{}", checked.stdout);
    }
    // The other gap is new.
    let options: [&OsStr; 2] = ["--baseline".as_ref(), reports[0].as_ref()];
    let ended = run(&program, "2", &report, &options);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
}
