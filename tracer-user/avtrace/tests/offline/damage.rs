//! Binary traces that lost a part or were altered: never taken for whole ones, and read as far as they go.

use std::path::Path;

use avtrace::offline::algorithms::ALGORITHMS;
use avtrace::offline::{Checked, Input, InputError, Request, check};
use avtrace::progress::ReadBar;

use crate::support::Folder;

fn check_file(path: &Path, lenient: bool) -> Result<Checked, InputError> {
    let options = checker::Options::default().lenient(lenient);
    let request = Request {
        algorithm: &ALGORITHMS[0],
        options,
        gaps: false,
        deadlocks: false,
        predict: false,
    };
    check(&Input::open(path)?, &request, &mut ReadBar::hidden())
}

#[test]
fn a_trace_that_was_cut_short_says_so() {
    let folder = Folder::new();
    let whole = folder.binary_bank();
    let path = folder.path().join("cut.avt");
    let mut events = 0;
    for length in 0..whole.len() {
        folder.write("cut.avt", &whole[..length]);
        match check_file(&path, false) {
            Ok(checked) => {
                let why =
                    checked.incomplete.unwrap_or_else(|| panic!("{length} bytes are not all"));
                assert!(why.contains("cut.avt: cut short"), "{why}");
                assert!(checked.report.not_seen.limitations[0].to_string().contains(&why));
                assert!(checked.report.counts.events >= events, "{length} bytes");
                events = checked.report.counts.events;
            }
            Err(error) => {
                assert!(length < 32, "the header is whole: {error}");
                assert!(error.to_string().contains("cut.avt"), "{error}");
            }
        }
    }
    assert_eq!(events, 20, "all events are there before the footer is");
    assert!(check_file(&folder.path().join("bank.avt"), false).unwrap().incomplete.is_none());
}

#[test]
fn what_was_found_in_a_part_counts() {
    let folder = Folder::new();
    let whole = folder.binary_bank();
    folder.write("cut.avt", &whole[..whole.len() - 1]);
    let ended = folder.run(&["check", "cut.avt"]);
    ended.check_error(66, &["cut.avt", "cut short", "20 events"]);
    assert!(ended.stdout.contains(" in `transfer`, by `audit`"));
    assert!(ended.stdout.contains("the trace is incomplete"), "{}", ended.stdout);
    // With nothing found, a part is no proof.
    folder.write("cut.avt", &whole[..40]);
    let ended = folder.run(&["check", "cut.avt"]);
    ended.check_error(3, &["cut.avt", "cut short", "0 events"]);
    folder.run(&["convert", "cut.avt", "cut.std"]).check_error(3, &["cut.avt", "cut short"]);
}

#[test]
fn a_flipped_bit_is_noticed() {
    let folder = Folder::new();
    let whole = folder.binary_bank();
    let path = folder.path().join("flipped.avt");
    let report = check_file(&folder.path().join("bank.avt"), false).unwrap().report;
    let mut refused = 0;
    for byte in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[byte] ^= 1 << (byte % 8);
        folder.write("flipped.avt", &bytes);
        match check_file(&path, false) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("flipped.avt"), "{error}");
            }
            // Bytes that only align blocks mean nothing.
            Ok(checked) => assert!(
                checked.incomplete.is_some() || checked.report.violations == report.violations,
                "a bit of byte {byte} changed the result"
            ),
        }
        // Nor does anything panic when damage is tolerated.
        drop(check_file(&path, true));
    }
    assert!(refused > whole.len() * 9 / 10, "{refused} of {} bytes", whole.len());
}

#[test]
fn damage_is_told_with_its_place() {
    let folder = Folder::new();
    let mut bytes = folder.binary_bank();
    let last = bytes.len() - 200;
    bytes[last] ^= 1;
    folder.write("flipped.avt", &bytes);
    folder.run(&["check", "flipped.avt"]).check_error(3, &["flipped.avt: block ", " at byte "]);
}
