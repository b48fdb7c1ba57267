//! Programs that die in the middle of a region that others have written into.

use std::ffi::OsStr;

use serde_json::Value;
use tests::{Avtrace, c, require_bpf, tracer::avtrace_with};

/// The exit status and the signal, the end of the report's text, and the regions that were open at the end.
fn run(how: &str) -> ((Option<i32>, Option<i32>), String, Value) {
    let program = c("dies", &["-g", "-O1"]);
    let text = Avtrace::on(&program).seeing_memory().arguments([how]).run();
    let folder = tests::folder();
    let file = folder.path().join("report.json");
    let options = ["--format".as_ref(), "json".as_ref(), "-o".as_ref(), file.as_os_str()];
    let _json = Avtrace::on(&program).seeing_memory().options(options).arguments([how]).run();
    let document = std::fs::read_to_string(&file).expect("a report");
    let report: Value = serde_json::from_str(&document).expect("JSON");
    ((text.code, text.signal), text.stderr, report)
}

#[test]
fn the_region_in_which_the_program_dies_is_named() {
    require_bpf!();
    for (how, status, ending) in [
        ("abort", (None, Some(6)), "the program was killed by SIGABRT"),
        ("exit", (Some(3), None), "the program exited with status 3"),
    ] {
        let (code, text, report) = run(how);
        assert_eq!(code, status, "{text}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let note = "note: region `deposit` of T0 was cut: T1 wrote `balance` at dies.c:";
        assert!(text.contains(note), "{text}");
        let with = format!("{ending} with the region open");
        assert!(text.contains(&with) && text.contains(&format!("; {ending}")), "{text}");
        let [open] = &report["open_at_end"].as_array().expect("a list")[..] else {
            panic!("{report:#}");
        };
        assert_eq!((&open["region"], &open["class"]), (&"deposit".into(), &"possible".into()));
        assert_eq!(open["edge"]["object"]["name"], "balance");
    }
    let (code, text, report) = run("fine");
    assert_eq!((code, text.contains("was cut")), ((Some(0), None), false), "{text}");
    assert_eq!(report.get("open_at_end"), None);
}

#[test]
fn a_recording_has_the_death_of_the_program() {
    require_bpf!();
    let program = c("dies", &["-g", "-O1"]);
    let folder = tests::folder();
    let trace = folder.path().join("run.avt");
    let capture = tests::capture::options();
    let mut arguments = vec!["record".as_ref(), "--overhead".as_ref(), "1000000".as_ref()];
    arguments.extend(capture.iter().map(AsRef::<OsStr>::as_ref));
    arguments.extend(["-o".as_ref(), trace.as_os_str()]);
    arguments.extend([program.path.as_os_str(), "abort".as_ref()]);
    let ended = avtrace_with(arguments);
    assert_eq!(ended.signal, Some(6), "{}", ended.stderr);
    assert!(ended.stderr.contains("the program was killed by SIGABRT"), "{}", ended.stderr);
    let ended = avtrace_with(["check".as_ref(), trace.as_os_str()]);
    let text = format!("{} {}", ended.stdout, ended.stderr);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("note: region `deposit` of T0 was cut: T1 wrote `balance`"), "{text}");
    assert!(text.contains("1 region cut by the program's death (possible)"), "{text}");
    assert!(text.contains("; the program was killed by SIGABRT"), "{text}");
    let report = avtrace_with(["check".as_ref(), "--format=json".as_ref(), trace.as_os_str()]);
    let report: Value = serde_json::from_str(&report.stdout).expect("JSON");
    assert_eq!(report["subject"]["signal"], 6);
    assert_eq!(report["open_at_end"][0]["region"], "deposit");
}
