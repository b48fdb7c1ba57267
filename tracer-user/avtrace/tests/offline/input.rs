//! Input that is no trace, or a bad one: an error with file, line and reason, and the defects that are
//! tolerated.

use crate::support::Folder;

#[track_caller]
fn refused(contents: impl AsRef<[u8]>, parts: &[&str]) {
    let folder = Folder::new();
    folder.write("t.std", &contents);
    let ended = folder.run(&["check", "t.std"]);
    ended.check_error(3, parts);
    assert_eq!(ended.stdout, "", "no report on a part of it");
    let ended = folder.run_with(&["check", "-"], contents.as_ref());
    let parts: Vec<String> = parts.iter().map(|part| part.replace("t.std", "<stdin>")).collect();
    ended.check_error(3, &parts.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn files_that_are_no_traces() {
    refused("", &["t.std: ", "empty"]);
    refused("# nothing but a comment\n\n", &["t.std: ", "no event"]);
    refused(b"\x7fELF\x02\x01\x01\0\0\0", &["t.std: ", "neither a text trace nor"]);
    refused(b"\x89PNG\r\n\x1a\n", &["t.std: ", "neither a text trace nor"]);
    refused(b"\x89AV", &["t.std: ", "inside its header", "3 of 32"]);
    // The result of a transfer as text.
    refused(b"\x89AVT\n\x1a\n\x01\0\0\0", &["t.std: ", "damaged .avt header"]);
    refused("some prose\n", &["t.std:1: ", "THREAD|OP(OBJECT)|LOCATION"]);
}

#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new();
    folder.run(&["check", "no-such-file"]).check_error(3, &["`no-such-file`", "No such file"]);
    folder.run(&["check", "."]).check_error(3, &["no segment of a recording", "name traces"]);
    folder.run(&["convert", "no-such-file", "x"]).check_error(3, &["`no-such-file`"]);
    folder.run(&["report", "no-such-file"]).check_error(3, &["`no-such-file`"]);
}

#[test]
fn events_that_do_not_fit() {
    refused("T1|begin|1\nT1|end|2\nT1|end|3\n", &["t.std:3: ", "end", "T1"]);
    refused("T1|begin(a)|1\nT1|begin(b)|2\nT1|end(a)|3\n", &["t.std:3: ", "a", "b"]);
    refused("\n# c\nT1|acq(m)|1\nT2|rel(m)|2\n", &["t.std:4: ", "release of lock m", "T2"]);
    refused("T1|fork(T2)|1\nT2|w(x)|2\nT1|join(T2)|3\nT2|w(x)|4\n", &["t.std:4: ", "T2", "joined"]);
    refused("T2|exit|1\nT2|w(x)|2\n", &["t.std:2: ", "T2", "has ended"]);
}

#[test]
fn lines_that_are_no_events() {
    refused("T1|w(x)|1\nT1|write(x)|2\n", &["t.std:2: ", "no such operation", "write"]);
    refused("T1|w|1\n", &["t.std:1: ", "without an object"]);
    refused("T1|w(x|1\n", &["t.std:1: ", "not closed"]);
}

#[test]
fn text_that_is_not_utf_8() {
    refused(b"T1|w(x)|1\nT1|w(\xff)|2\n", &["t.std:2: ", "not UTF-8"]);
}

#[test]
fn a_line_of_ten_megabytes() {
    let mut trace = b"T1|w(x)|1\nT1|w(".to_vec();
    trace.resize(10 << 20, b'x');
    trace.extend(b")|2\n");
    refused(trace, &["t.std:2: ", "longer than"]);
}

#[test]
fn line_ends_of_other_systems() {
    let folder = Folder::new();
    let trace = b"T1|begin(m)|1\r\n\r\nT1|r(x)|2\r\nT2|w(x)|3\r\nT1|w(x)|4\r\nT1|end(m)|5";
    let ended = folder.run_with(&["check", "--format", "json", "-"], trace);
    let report = &ended.reports()[0];
    assert_eq!((ended.code, &report["violations"][0]["region"]), (Some(66), &"m".into()));
    assert_eq!(report["counts"]["events"], 5);
}

#[test]
fn what_is_wrong_can_be_left_out() {
    let folder = Folder::new();
    folder.write(
        "t.std",
        "T1|begin(m)|1\nT1|rel(l)|2\nT1|r(x)|3\nT2|w(x)|4\nT1|w(x)|5\nT1|end|6\nno line\n",
    );
    folder.run(&["check", "t.std"]).check_error(3, &["t.std:2: "]);
    let ended = folder.run(&["check", "--lenient", "--format", "json", "t.std"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(66), ""));
    let report = &ended.reports()[0];
    let notes = report["not_seen"]["notes"].to_string();
    assert!(notes.contains("line 7 is no event"), "{notes}");
    assert!(notes.contains("1 event did not fit"), "{notes}");
    assert_eq!(report["not_seen"]["gaps"], 1);
    let text = folder.run(&["check", "--lenient", "t.std"]).stdout;
    assert!(text.contains("an unknown number of events was lost, in 1 gap"), "{text}");
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let folder = Folder::new();
    let step = "T1|begin(m)|1\nT1|acq(l)|2\nT1|w(x)|3\nT1|rel(l)|4\nT1|end|5\nT2|acq(l)|6\nT2|r(x)|7\nT2|rel(l)|8\n";
    let peak = |repeat: usize| {
        let ended = folder.run_with(&["check", "--stats", "-"], step.repeat(repeat).as_bytes());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let line = ended.stderr.lines().find_map(|line| line.trim().strip_prefix("memory"));
        let mib = line.expect("memory").split_whitespace().next().expect("a number");
        mib.parse::<usize>().expect("MiB")
    };
    // 100 KB, and 20 MB.
    let (short, long) = (peak(1_000), peak(200_000));
    assert!(long <= short + 8, "{short} MiB and {long} MiB");
}
