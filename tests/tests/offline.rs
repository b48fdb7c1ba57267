//! Recording now and checking later: the same violations, lines and names as in the run itself.

use std::path::Path;

use serde_json::Value;
use tests::tracer::avtrace_with;
use tests::{Avtrace, Ended, Program, Report, c, require_bpf};

/// Runs `avtrace check` on a recording.
fn check(trace: &Path) -> (Ended, Value) {
    let ended = avtrace_with(["check".as_ref(), "--format=json".as_ref(), trace.as_os_str()]);
    let report = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("no report ({error}): {ended:#?}"));
    (ended, report)
}

/// Records and checks in one run, and checks the recording: all that is found, and all that is said to be missing,
/// has to be the same.
fn check_same(program: &Program, options: &[&str], code: i32) -> Value {
    let folder = tests::folder();
    let (trace, file) = (folder.path().join("t.avt"), folder.path().join("report.json"));
    let ended = Avtrace::on(program)
        .options(options)
        .options(["--format=json".as_ref(), "--record".as_ref(), trace.as_os_str()])
        .options(["-o".as_ref(), file.as_os_str()])
        .run();
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    let text = std::fs::read_to_string(&file).expect("the report");
    let online: Value = serde_json::from_str(&text).expect("JSON");
    let (ended, offline) = check(&trace);
    assert_eq!((ended.code, &*ended.stderr), (Some(code), ""));
    Report::check(&offline);
    let keys: Vec<&String> = online.as_object().expect("keys").keys().collect();
    // When and where the program ran is no part of a recording.
    let of_the_run = ["subject", "summary", "capture", "time", "host", "traceparent"];
    for key in keys.into_iter().filter(|key| !of_the_run.contains(&&***key)) {
        assert_eq!(online[key], offline[key], "{key}");
    }
    offline
}

#[test]
fn the_bank_is_the_same_online_and_offline() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let flags = ["-g", level];
        let report = check_same(&c("bank", &flags), &[], 66);
        assert_eq!(report["violations"][0]["region"], "transfer");
        let report = check_same(&c("bank", &flags), &["--watch", "account.balance"], 66);
        assert_eq!(report["violations"][0]["evidence"], "data");
        assert!(report["violations"].to_string().contains(r#""after":"900""#), "values");
        check_same(&c("bank_fixed", &flags), &[], 0);
    }
    check_same(&c("bank", &["-O2"]).stripped(), &[], 66);
}

#[test]
fn a_recording_is_checked_like_a_run() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let folder = tests::folder();
    let trace = folder.path().join("t.avt");
    // A machine that stalls must not make accesses look expensive and be left out: there are two runs.
    let overhead = ["--overhead", "1000000"];
    let [option, most] = overhead.map(AsRef::as_ref);
    let ended = avtrace_with([
        "record".as_ref(),
        option,
        most,
        "-o".as_ref(),
        trace.as_os_str(),
        "--".as_ref(),
        bank.path.as_os_str(),
    ]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 900\n"), "{}", ended.stderr);
    for part in ["recorded", "3 threads", "0 lost", "avtrace check"] {
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
    // Neither says how memory is seen.
    let (_, online) = Avtrace::on(&bank).seeing_memory().options(overhead).report();
    let (ended, offline) = check(&trace);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let offline: Vec<tests::Violation> =
        serde_json::from_value(offline["violations"].clone()).expect("violations");
    let fingerprints = |all: &[tests::Violation]| {
        all.iter().map(tests::Violation::fingerprint).collect::<Vec<_>>()
    };
    assert_eq!(fingerprints(&offline), fingerprints(&online.violations));
}

#[test]
fn what_a_killed_avtrace_recorded_can_be_checked() {
    require_bpf!();
    let program = c("long_run", &["-g", "-O2"]);
    let folder = tests::folder();
    let trace = folder.path().join("t.avt");
    let options = ["record".as_ref(), "-o".as_ref(), trace.as_os_str()];
    // For so long that it still runs when avtrace is killed, also on a slow machine.
    let mut running = Avtrace::on(&program).options(options).arguments(["6"]).start();
    let written = |_| std::fs::metadata(&trace).is_ok_and(|file| file.len() > 200_000);
    running.await_that("some of the trace was written", written);
    std::process::Command::new("kill")
        .args(["-9", &running.pid().to_string()])
        .status()
        .expect("kill");
    // The program goes on, and ends by itself.
    assert!(running.await_closed_stdout().contains("done"));
    let ended = running.wait();
    assert_eq!(ended.signal, Some(9));
    let (ended, report) = check(&trace);
    assert!(ended.stderr.contains("cut short"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(3), "nothing found, but not all was seen");
    assert!(report["counts"]["events"].as_u64().is_some_and(|events| events > 4096), "{report}");
    assert_eq!(report["regions"][0]["name"], "step");
    let place = &report["regions"][0]["location"];
    assert!(place["file"].as_str().is_some_and(|file| file.ends_with("long_run.c")), "{place}");
}
