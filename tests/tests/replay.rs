//! Recordings on other machines: reports on them without the program, its sources and its libraries.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tests::{Avtrace, Ended, Program, Report, c, programs::c_file, require_bpf, tracer::avtrace};

/// A program, its sources and a recording of it, in a new folder, with the report of the run itself.
struct Recorded {
    folder: tempfile::TempDir,
    live: Value,
}

impl Recorded {
    /// Compiles a program of `programs/c` from a copy of its source, and records and checks a run with these options.
    fn new(name: &str, options: &[&str]) -> Self {
        Self::of(name, |avtrace| avtrace.options(options))
    }

    /// Records as [`new`](Self::new) does, with all that a run may be made of.
    fn of(name: &str, with: impl FnOnce(Avtrace) -> Avtrace) -> Self {
        let folder = tests::folder();
        let source = tests::root().join("tests/programs/c").join(name).with_extension("c");
        let copy = folder.path().join(name).with_extension("c");
        fs::copy(source, &copy).expect("a copy");
        let Program { path, .. } = c_file(&copy, &["-g", "-O2"]);
        let report = folder.path().join("live.json");
        let ended = with(Avtrace::on_path(&path).seeing_memory())
            .options(["--overhead", "1000000", "--format=json"])
            .options(["--record".as_ref(), folder.path().join("t.avt").as_os_str()])
            .options(["-o".as_ref(), report.as_os_str()])
            .run();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        let live = serde_json::from_slice(&fs::read(report).expect("a report")).expect("JSON");
        // The program and its sources are gone.
        fs::remove_file(&path).expect("the program");
        fs::remove_file(&copy).expect("its source");
        Self { folder, live }
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("t.avt")
    }
}

/// Returns a report on a recording, as a command of avtrace writes it in a root directory that has nothing but avtrace
/// and the recording.
fn elsewhere(trace: &Path, command: &str) -> (Ended, Value) {
    let root = tests::folder();
    let copy = |from: &Path, to: &str| {
        let to = root.path().join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(from, to).expect("a copy");
    };
    copy(avtrace(), "avtrace");
    copy(trace, "t.avt");
    let libraries = Command::new("ldd").arg(avtrace()).output().expect("ldd");
    for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace() {
        if word.starts_with('/') {
            copy(Path::new(word), word);
        }
    }
    let mut chroot = Command::new("chroot");
    chroot.arg(root.path()).args(["/avtrace", command, "--format=json", "/t.avt"]);
    let ended = tests::process::run(&mut chroot);
    let report = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("no report ({error}): {ended:#?}"));
    (ended, report)
}

/// Checks that a report on a recording says the same as the report on the run.
fn check_same(live: &Value, replayed: &Value) {
    Report::check(replayed);
    // The subject is a file now, and the time of the check is another. Time and place of the run are no part of a
    // recording.
    let named = ["subject", "summary", "time", "host", "traceparent"];
    let live = &without_unrecorded_values(live, replayed);
    let keys = live.as_object().expect("keys").keys();
    for key in keys.filter(|key| !named.contains(&&***key)) {
        assert_eq!(live[key], replayed[key], "{key}");
    }
    let keys = replayed.as_object().expect("keys").keys();
    assert!(keys.clone().all(|key| !live[key].is_null() || replayed[key].is_null()), "{keys:?}");
}

/// Returns a report without the values that a recording does not have: those of accesses to a variable that no other
/// thread had accessed so far.
fn without_unrecorded_values(live: &Value, replayed: &Value) -> Value {
    let mut live = live.clone();
    for list in ["violations", "exemplars"] {
        for (index, violation) in live[list].as_array_mut().expect("a list").iter_mut().enumerate()
        {
            let steps = violation["steps"].as_array_mut().expect("steps");
            for (number, step) in steps.iter_mut().enumerate() {
                let recorded = &replayed[list][index]["steps"][number]["value"];
                if recorded.is_null() {
                    step["value"] = recorded.clone();
                }
            }
        }
    }
    live
}

fn first_fingerprint(report: &Value) -> &str {
    report["defects"][0]["fingerprint"].as_str().expect("a fingerprint")
}

#[test]
fn a_recording_gives_the_report_of_the_run_without_the_program() {
    require_bpf!();
    for options in [&["--embed-sources", "--watch", "account.balance"][..], &["--embed-sources"]] {
        let recorded = Recorded::new("bank", options);
        for command in ["check", "report"] {
            let (ended, replayed) = elsewhere(&recorded.trace(), command);
            assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
            check_same(&recorded.live, &replayed);
            // Variables that are watched by name have all values.
            let has_all =
                options.len() == 1 || recorded.live["violations"] == replayed["violations"];
            assert!(has_all, "{replayed}");
        }
        let steps = recorded.live["violations"][0]["steps"].to_string();
        assert!(steps.contains("account.balance = "), "source lines: {steps}");
    }
}

#[test]
fn with_inline_probes_as_well() {
    let recorded = Recorded::of("bank", |avtrace| avtrace.inline().options(["--embed-sources"]));
    let (ended, replayed) = elsewhere(&recorded.trace(), "check");
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    check_same(&recorded.live, &replayed);
    assert_eq!(replayed["capture"]["backend"], "inline");
}

#[test]
fn a_recording_without_sources_says_what_is_missing() {
    require_bpf!();
    let recorded = Recorded::new("bank", &[]);
    let (ended, replayed) = elsewhere(&recorded.trace(), "check");
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let limitations = replayed["not_seen"]["limitations"].as_array().expect("limitations");
    let missing = limitations.iter().find(|one| one["kind"] == "missing_sources");
    let missing = missing.expect("the missing lines");
    assert!(missing["file"].as_str().expect("a file").ends_with("bank.c"), "{missing}");
    assert!(missing["message"].to_string().contains("--embed-sources"), "{missing}");
    assert_eq!(replayed["defects"][0]["region"], recorded.live["defects"][0]["region"]);
}

#[test]
fn segments_have_their_sources() {
    require_bpf!();
    let (folder, live) = {
        let recorded = Recorded::new("bank", &[]);
        (tests::folder(), recorded.live)
    };
    let traces = folder.path().join("traces");
    let ended = Avtrace::on(&c("bank", &["-g", "-O2"]))
        .seeing_memory()
        .options(["--overhead", "1000000", "--embed-sources", "--keep", "4M"])
        .options(["--record".as_ref(), traces.as_os_str()])
        .run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let joined = folder.path().join("joined.avt");
    let words = ["convert".as_ref(), traces.as_os_str(), joined.as_os_str()];
    let ended = tests::tracer::avtrace_with(words);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let (ended, replayed) = elsewhere(&joined, "report");
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(first_fingerprint(&replayed), first_fingerprint(&live), "the file has moved");
    assert!(!replayed["not_seen"].to_string().contains("missing_sources"), "{replayed}");
}
