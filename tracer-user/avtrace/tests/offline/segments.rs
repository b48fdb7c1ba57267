//! Recordings in segments, of which some are damaged: the others are checked, and what is missing is said.

use std::path::Path;

use avtrace::offline::algorithms::ALGORITHMS;
use avtrace::offline::{Checked, InputError, Recording, Request, check_recording};
use avtrace::progress::ReadBar;
use checker::event::{Event, LocationId, Op, ThreadId, VarId};
use checker::format::{
    Descriptions, Frame, Location, LocationKind, Lost, Module, ModuleId, Object, ObjectKind,
    Region, Segment, SegmentWriter, Space, Thread,
};

use crate::support::{Folder, gzip};

struct Nameless;

impl Descriptions for Nameless {
    fn thread(&mut self, _: ThreadId) -> Thread {
        Thread::default()
    }

    fn region(&mut self, _: checker::event::RegionId) -> Region {
        Region::default()
    }

    fn object(&mut self, space: Space, _: u32) -> Object {
        Object::new(ObjectKind::unknown(space))
    }

    fn location(&mut self, _: LocationId) -> Location {
        Location { label: None, kind: LocationKind::Other, stack: Vec::new() }
    }

    fn module(&mut self, _: ModuleId) -> Module {
        Module::default()
    }
}

/// Returns a segment with two events; those of one with a later number follow.
fn segment(recording: u64, number: u32, lost: u64) -> Vec<u8> {
    let place = Segment { recording, number, first_event: 2 * u64::from(number) };
    let mut writer = SegmentWriter::new(Vec::new(), place, number > 0).expect("memory");
    for op in [Op::Read(VarId(0)), Op::Write(VarId(0))] {
        let event = Event { thread: ThreadId(0), op, location: LocationId(0) };
        writer.event(&event, &mut Nameless).expect("memory");
    }
    if lost > 0 {
        writer.lost(&Lost { class: "lock".to_owned(), count: lost }).expect("memory");
    }
    writer.finish().expect("memory")
}

#[test]
fn events_have_names_in_text_that_were_written_after_them() {
    let folder = Folder::new();
    let place = Segment { recording: 7, number: 0, first_event: 0 };
    let mut writer = SegmentWriter::new(Vec::new(), place, false).expect("memory");
    for op in [Op::Read(VarId(0)), Op::Write(VarId(0))] {
        let event = Event { thread: ThreadId(0), op, location: LocationId(0) };
        writer.event(&event, &mut Nameless).expect("memory");
        writer.flush().expect("memory");
    }
    let frame = Frame { file: Some("late.c"), line: Some(7), ..Frame::default() };
    writer.frames(LocationId(0), &[frame]).expect("memory");
    let segment = writer.finish().expect("memory");
    folder.write("t.avt", &segment);
    std::fs::create_dir(folder.path().join("kept")).expect("a folder");
    folder.write("kept/1-000000.avt", &segment);
    let expected = "T0|r(v0)|late.c:7\nT0|w(v0)|late.c:7\n";
    for trace in ["t.avt", "kept"] {
        let text = folder.run(&["convert", trace, "-"]);
        assert_eq!((text.code, &*text.stdout, &*text.stderr), (Some(0), expected, ""), "{trace}");
    }
    for piped in [segment.clone(), gzip(&segment)] {
        let text = folder.run_with(&["convert", "-", "-"], &piped);
        assert_eq!((text.code, &*text.stdout, &*text.stderr), (Some(0), expected, ""));
    }
}

fn check_all(folder: &Path, lenient: bool) -> Vec<Checked> {
    let options = checker::Options::default().lenient(lenient);
    let request = Request {
        algorithm: &ALGORITHMS[0],
        options,
        gaps: false,
        deadlocks: false,
        predict: false,
    };
    let recordings = Recording::find(folder).expect("recordings");
    let check = |recording| check_recording(recording, &request, &mut ReadBar::hidden());
    recordings.iter().map(|recording| check(recording).expect("a report")).collect()
}

fn why(checked: &Checked) -> &str {
    checked.incomplete.as_deref().unwrap_or_default()
}

#[test]
fn losses_of_the_run_are_in_the_report_and_in_one_file() {
    let folder = Folder::new();
    folder.write("7-000000.avt", segment(1, 0, 0));
    folder.write("7-000001.avt", segment(1, 1, 10_000));
    let checked = &check_all(folder.path(), false)[0];
    assert_eq!((why(checked), checked.stats.counts.events), ("", 4));
    let [lost] = &*checked.report.not_seen.lost_events else { panic!("of one class") };
    assert_eq!((&*lost.class, lost.count), ("lock", 10_000));
    let whole = folder.path().join("whole");
    let ended = folder.run(&["convert", "--to", "avt", ".", whole.to_str().expect("text")]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let ended = folder.run(&["check", "--format", "json", "whole"]);
    let lost = &ended.reports()[0]["not_seen"]["lost_events"];
    assert_eq!((&lost[0]["class"], &lost[0]["count"]), (&"lock".into(), &10_000.into()));
}

#[test]
fn segments_without_a_beginning_are_left_out() {
    let whole = segment(1, 1, 0);
    for (damaged, part) in [
        (Vec::new(), "the file is empty"),
        (vec![0; whole.len()], "7-000001.avt"),
        (whole[..whole.len().min(33)].to_vec(), "cut short before its first event"),
    ] {
        let folder = Folder::new();
        folder.write("7-000000.avt", segment(1, 0, 0));
        folder.write("7-000001.avt", &damaged);
        folder.write("7-000002.avt", segment(1, 2, 0));
        folder.write("8-000000.avt", segment(2, 0, 0));
        for lenient in [false, true] {
            let checked = check_all(folder.path(), lenient);
            let [of_damaged, other] = &*checked else { panic!("two recordings") };
            let found = why(of_damaged);
            assert!(found.contains(part) && found.contains("7-000001.avt"), "{found}");
            assert!(found.ends_with("; this segment is left out"), "{found}");
            let counts = (of_damaged.stats.counts.events, of_damaged.report.not_seen.gaps);
            assert_eq!(counts, (4, 1));
            assert_eq!((why(other), other.stats.counts.events), ("", 2));
        }
        // None of them can be read.
        for name in ["7-000000.avt", "7-000002.avt", "8-000000.avt"] {
            std::fs::remove_file(folder.path().join(name)).expect("removed");
        }
        let error = Recording::find(folder.path()).expect_err("nothing is left").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_first_damage_is_named() {
    let folder = Folder::new();
    let cut = segment(1, 0, 0);
    folder.write("7-000000.avt", &cut[..cut.len() - 1]);
    folder.write("7-000001.avt", segment(1, 1, 0));
    let checked = &check_all(folder.path(), false)[0];
    assert!(why(checked).contains("7-000000.avt: cut short"), "{}", why(checked));
    assert!(checked.stats.read.truncated.is_some());
    assert_eq!(checked.report.not_seen.gaps, 1);
}

#[test]
fn other_traces_in_the_directory_are_no_segments() {
    let folder = Folder::new();
    folder.write("7-000000.avt", segment(1, 0, 0));
    folder.write("other.avt", folder.binary_bank());
    let error = Recording::find(folder.path()).expect_err("another trace");
    assert!(matches!(error, InputError::Join { .. }), "{error}");
}
