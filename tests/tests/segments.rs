//! Recordings of which the last events are kept: `--record DIR --keep SIZE`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tests::{
    Avtrace, Service, c,
    process::{Ended, Running, TIME_LIMIT},
    require_bpf,
    tracer::{avtrace, avtrace_with},
};

/// Size that is kept, in bytes.
const KEPT: u64 = 1 << 20;

/// Returns the segments in a directory, by their names.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory").flatten();
    let mut segments: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    segments.sort();
    segments
}

fn bytes(segments: &[PathBuf]) -> u64 {
    segments.iter().map(|path| fs::metadata(path).expect("a segment").len()).sum()
}

/// Returns the number in the name of a segment, and whether it is complete.
fn number(path: &Path) -> (u64, bool) {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let (stem, end) = name.split_once('.').expect("an end");
    let (_, number) = stem.split_once('-').expect("a process and a number");
    (number.parse().expect("a number"), end == "avt")
}

fn check(path: &Path) -> (Ended, Vec<Value>) {
    let options = ["check", "--format", "json"].map(AsRef::as_ref);
    let ended = avtrace_with(options.into_iter().chain([path.as_os_str()]));
    let reports = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let reports = reports.collect();
    (ended, reports)
}

fn regions_of_defects(report: &Value) -> Vec<&str> {
    let defects = report["defects"].as_array().expect("defects");
    defects.iter().map(|defect| defect["region"].as_str().expect("a name")).collect()
}

/// Checks segments of a run without defects: they are the last ones, and stay below the size.
#[track_caller]
fn check_kept(directory: &Path) -> Vec<PathBuf> {
    let kept = segments(directory);
    assert!(bytes(&kept) < KEPT, "{} bytes", bytes(&kept));
    assert!(bytes(&kept) > KEPT / 2, "{} bytes", bytes(&kept));
    let numbers: Vec<(u64, bool)> = kept.iter().map(|path| number(path)).collect();
    let first = numbers[0].0;
    assert!(first > 0, "the oldest were removed: {numbers:?}");
    let expected: Vec<(u64, bool)> =
        (first..first + kept.len() as u64).map(|n| (n, true)).collect();
    assert_eq!(numbers, expected);
    kept
}

/// Variable by which code is looked up for so many microseconds between two batches, in a debug build; of one location
/// at least.
const LOOK_UP: &str = "AVTRACE_TEST_LOOK_UP_US";

#[test]
fn the_last_events_of_a_run_are_kept() {
    require_bpf!();
    last_events_are_kept("5000");
}

#[test]
fn segments_that_wait_for_their_names_are_as_others() {
    require_bpf!();
    last_events_are_kept("0");
    // All of a run that is the same each time.
    let program = c("lockloop", &["-g", "-O2"]);
    let recorded = ["0", "60000000"].map(|time| {
        let folder = tests::folder();
        let [directory, text] = ["traces", "t.std"].map(|name| folder.path().join(name));
        let ended = Avtrace::on(&program)
            .at_same_addresses()
            .environment(LOOK_UP, time)
            .options(["record", "--keep", "2M", "-o"])
            .options([&directory])
            .arguments(["1", "60000"])
            .run();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(segments(&directory).len() > 3, "{:?}", segments(&directory));
        let ended = avtrace_with(["convert".as_ref(), directory.as_os_str(), text.as_os_str()]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        let (_, reports) = check(&directory);
        let regions = reports[0]["regions"].clone();
        (fs::read_to_string(text).expect("a trace"), regions)
    });
    let [(text, regions), (other, other_regions)] = &recorded;
    let lines = text.lines().zip(other.lines()).enumerate();
    let different = lines.filter(|(_, (one, other))| one != other).take(3).collect::<Vec<_>>();
    assert!(
        different.is_empty(),
        "the same events, in the same order, with the same names: {different:#?}"
    );
    assert_eq!(text.lines().count(), other.lines().count());
    assert_eq!(regions, other_regions);
}

fn last_events_are_kept(look_up: &str) {
    let program = c("lockloop", &["-g", "-O2"]);
    let folder = tests::folder();
    let directory = folder.path().join("traces");
    let ended = Avtrace::on(&program)
        .environment(LOOK_UP, look_up)
        .options(["record", "--keep", "1M", "-o"])
        .options([&directory])
        .arguments(["2", "40000"])
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("recorded "), "{}", ended.stderr);
    let kept = check_kept(&directory);
    let mut events = 0;
    for segment in &kept {
        let (ended, reports) = check(segment);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", segment.display());
        let report = &reports[0];
        assert_eq!(report["not_seen"]["gaps"], 1, "what came before is not known");
        assert_eq!(report["regions"][0]["name"], "step");
        let place = &report["regions"][0]["location"];
        assert!(place["file"].as_str().is_some_and(|file| file.ends_with("lockloop.c")), "{place}");
        events += report["counts"]["events"].as_u64().expect("a number");
    }
    let (ended, reports) = check(&directory);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0]["counts"]["events"], events, "one trace");
    assert_eq!(reports[0]["not_seen"]["gaps"], 1, "nothing is lost between segments");
    assert_eq!(reports[0]["counts"]["threads"], 3, "{:#}", reports[0]["counts"]);

    // One file holds the same.
    let whole = folder.path().join("whole.avt");
    let ended = avtrace_with(["convert".as_ref(), directory.as_os_str(), whole.as_os_str()]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let (ended, of_whole) = check(&whole);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    for key in ["counts", "regions", "not_seen"] {
        assert_eq!(of_whole[0][key], reports[0][key], "{key}");
    }

    // Without a segment in the middle there is a gap.
    fs::remove_file(&kept[kept.len() / 2]).expect("removed");
    let (ended, reports) = check(&directory);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert_eq!(reports[0]["not_seen"]["gaps"], 2);
}

#[test]
fn a_short_recording_is_whole() {
    require_bpf!();
    let program = c("bank", &["-g", "-O2"]);
    let folder = tests::folder();
    let directory = folder.path().join("traces");
    let file = folder.path().join("report.json");
    let ended = Avtrace::on(&program)
        .options(["--format", "json", "--keep", "1M", "--record"])
        .options([&directory])
        .options(["-o".as_ref(), file.as_os_str()])
        .run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(segments(&directory).len(), 1);
    let online: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("a report")).expect("JSON");
    for path in [&directory, &segments(&directory)[0]] {
        let (ended, reports) = check(path);
        assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
        for key in ["counts", "defects", "violations", "not_seen", "regions"] {
            assert_eq!(reports[0][key], online[key], "{key}");
        }
    }
}

/// Starts avtrace on processes, with segments in a directory.
fn attach(pids: &[u32], directory: &Path, size: &str) -> Running {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let mut command = Command::new(avtrace());
    command.args(["attach", "--capture", "kernel", "--accesses", "probe"]);
    command.args(["--pid", &pids.join(","), "--keep", size, "--record"]).arg(directory);
    let mut avtrace = Running::start(&mut command, None, TIME_LIMIT);
    for pid in &pids {
        avtrace.await_stderr(&format!("attached to process {pid}"));
    }
    avtrace
}

/// Returns whether the defect of `transfer` is in the kept segments.
fn has_transfer(path: &Path) -> bool {
    let (_, reports) = check(path);
    reports.iter().any(|report| regions_of_defects(report) == ["transfer"])
}

/// Returns whether a file is an incomplete segment with events.
fn is_cut(path: &Path) -> bool {
    if number(path).1 {
        return false;
    }
    let (_, reports) = check(path);
    reports.iter().any(|report| report["counts"]["events"].as_u64() > Some(0))
}

#[test]
fn a_defect_of_the_last_seconds_is_in_the_segments() {
    require_bpf!();
    let mut service = Service::start();
    let directory = service.folder().join("traces");
    let avtrace = attach(&[service.pid()], &directory, "1M");
    service.does("bbbt");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    check_kept(&directory);
    let (ended, reports) = check(&directory);
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    assert_eq!(regions_of_defects(&reports[0]), ["transfer"]);
    let names = reports[0]["defects"].to_string();
    assert!(names.contains("account.balance") && names.contains("service.c"), "{names}");
    service.end();
}

#[test]
fn segments_of_a_killed_avtrace_can_be_checked() {
    require_bpf!();
    let mut service = Service::start();
    let directory = service.folder().join("traces");
    let mut avtrace = attach(&[service.pid()], &directory, "1M");
    service.does("bbbt");
    avtrace.await_that("the defect was recorded", |_| has_transfer(&directory));
    if !segments(&directory).iter().any(|path| is_cut(path)) {
        // A segment has ended with the very last event.
        service.does("t");
        avtrace.await_that("the next one has events", |_| {
            segments(&directory).iter().any(|path| is_cut(path))
        });
    }
    avtrace.signal("KILL");
    assert_eq!(avtrace.wait().signal, Some(9));
    let kept = segments(&directory);
    assert!(bytes(&kept) < KEPT, "{} bytes", bytes(&kept));
    // The last segment, and segments that wait for their names.
    let incomplete = kept.iter().filter(|path| !number(path).1).count();
    assert!(incomplete <= 3, "{kept:?}");
    for complete in kept.iter().filter(|path| number(path).1) {
        let (ended, reports) = check(complete);
        // The defect may be in one of them.
        let has_defects = !regions_of_defects(&reports[0]).is_empty();
        let code = if has_defects { 66 } else { 0 };
        assert_eq!((ended.code, &*ended.stderr), (Some(code), ""), "{}", complete.display());
    }
    let (ended, reports) = check(&directory);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    // No segment is cut where the last event ends a segment.
    let is_cut = kept.iter().any(|path| is_cut(path));
    assert_eq!(ended.stderr.contains("cut short"), is_cut, "{}", ended.stderr);
    assert_eq!(regions_of_defects(&reports[0]), ["transfer"]);
    service.end();
}

#[test]
fn several_processes_share_what_is_kept() {
    require_bpf!();
    let (mut one, mut other) = (Service::start(), Service::start());
    let directory = one.folder().join("traces");
    let pids = [one.pid(), other.pid()];
    let small = avtrace_with([
        "attach".as_ref(),
        "--pid".as_ref(),
        format!("{},{}", pids[0], pids[1]).as_ref(),
        "--keep".as_ref(),
        "1M".as_ref(),
        "--record".as_ref(),
        directory.as_os_str(),
    ]);
    assert_eq!(small.code, Some(2), "{}", small.stderr);
    assert!(small.stderr.contains("2M or more is needed for 2 processes"), "{}", small.stderr);
    let avtrace = attach(&pids, &directory, "2M");
    one.does("bbb");
    other.does("bbbt");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let kept = segments(&directory);
    assert!(bytes(&kept) < 2 * KEPT, "{} bytes", bytes(&kept));
    let (ended, reports) = check(&directory);
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    assert_eq!(reports.len(), 2, "one for each process");
    assert!(has_transfer(&directory));
    let ended = avtrace_with(["convert".as_ref(), directory.as_os_str(), "-".as_ref()]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("recordings of 2 programs"), "{}", ended.stderr);
    one.end();
    other.end();
}

#[test]
fn directories_with_files_are_refused() {
    require_bpf!();
    let program = c("bank", &["-g", "-O2"]);
    let folder = tests::folder();
    let other = folder.path().join("notes.txt");
    fs::write(&other, "mine").expect("written");
    let run = |directory: &Path, size: &str| {
        let options = ["record", "--keep", size, "-o"].map(AsRef::as_ref);
        let options = options.into_iter().chain([directory.as_os_str()]);
        Avtrace::on(&program).options(options).run()
    };
    let ended = run(folder.path(), "1M");
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("it is not empty: name a new or an empty directory"));
    let ended = run(&other, "1M");
    assert!(ended.stderr.contains("it is a file, and --keep needs a directory"), "{ended:?}");
    let ended = run(&folder.path().join("new"), "500K");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--keep 500K is too small: 1M or more"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "mine");
    assert_eq!(segments(folder.path()), [other]);
    let ended = avtrace_with(["check".as_ref(), folder.path().as_os_str()]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no segment of a recording in it"), "{ended:?}");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    require_bpf!();
    let program = c("lockloop", &["-g", "-O2"]);
    let folder = tests::folder();
    let mounted = folder.path().join("small");
    fs::create_dir(&mounted).expect("made");
    // In a new mount namespace, so that the file system does not stay mounted.
    let script = "mount -t tmpfs -o size=512k none \"$1\" && shift && exec \"$@\"";
    let file = folder.path().join("report.json");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&mounted).arg(avtrace());
    command.args(["--capture", "kernel", "--accesses", "sync", "--keep", "64M", "--record"]);
    command.arg(mounted.join("traces")).args(["--format", "json", "-o"]).arg(&file);
    command.arg(&program.path).args(["2", "100000"]);
    let ended = tests::process::run(&mut command);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
    assert!(ended.stderr.contains("make room there, or name another place"), "{}", ended.stderr);
    let report: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("a report")).expect("JSON");
    assert_eq!(report["subject"]["exit_code"], 0, "the program ran to its end");
    let limitations = report["not_seen"]["limitations"].as_array().expect("limitations");
    let failed = |limitation: &&Value| limitation["kind"] == "recording_failed";
    assert_eq!(limitations.iter().filter(failed).count(), 1, "{limitations:#?}");
}
