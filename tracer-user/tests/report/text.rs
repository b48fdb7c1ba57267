//! The text report, as people read it.

use insta::assert_snapshot;
use tracer_user::report::text::render;
use tracer_user::report::{Report, TextOptions};

use crate::fixtures::has_control;
use crate::stories;

fn text(report: &Report) -> String {
    let base_dir = Some("/home/user/bank".to_owned());
    let text = render(report, &TextOptions { base_dir, ..TextOptions::default() });
    assert!(!has_control(&text), "{text:?}");
    text
}

/// Columns of printable text in which only the listed wide characters occur.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if u32::from(c) >= 0x2e80 { 2 } else { 1 }).sum()
}

#[test]
fn lock_split() {
    assert_snapshot!(text(&stories::lock_split().report()));
}

#[test]
fn racy_data_with_values() {
    assert_snapshot!(text(&stories::racy_data().report()));
}

#[test]
fn lock_split_with_the_data_watched() {
    assert_snapshot!(text(&stories::watched_split().report()));
}

#[test]
fn what_the_data_tells_is_not_told_again_by_the_locks() {
    assert_snapshot!(text(&stories::told_twice().report()));
}

#[test]
fn atomic_operations() {
    assert_snapshot!(text(&stories::atomics().report()));
}

#[test]
fn three_threads_in_80_columns() {
    let options = TextOptions { width: 80, ..TextOptions::default() };
    assert_snapshot!(render(&stories::three_threads().report(), &options));
}

#[test]
fn three_threads_and_wrappers() {
    assert_snapshot!(text(&stories::three_threads().report()));
}

#[test]
fn text_trace() {
    assert_snapshot!(text(&stories::text_trace().report()));
}

#[test]
fn a_thread_that_is_called_like_a_label_is_not_mistaken_for_another() {
    let mut story = stories::lock_split();
    story.names.threads[0].name = Some("T1".to_owned());
    let text = text(&story.report());
    assert!(text.contains("#0 is thread `T1` (tid 4711)"), "{text}");
    assert!(text.contains("#1 is thread `auditor` (tid 4712)"), "{text}");
}

#[test]
fn unary_transaction() {
    assert_snapshot!(text(&stories::unary().report()));
}

#[test]
fn no_debug_info() {
    assert_snapshot!(text(&stories::no_debug_info().report()));
}

#[test]
fn many_violations() {
    let report = stories::many(60).report();
    let options = TextOptions { max_violations: 1, ..TextOptions::default() };
    assert_snapshot!(render(&report, &options));
}

#[test]
fn ways_of_one_kind_are_told_together() {
    assert_snapshot!(text(&stories::several_ways().report()));
}

#[test]
fn clean() {
    assert_snapshot!(text(&stories::clean().report()));
}

#[test]
fn a_busy_region_and_a_signal() {
    assert_snapshot!(text(&stories::busy().report()));
}

#[test]
fn nothing_seen() {
    assert_snapshot!(text(&stories::nothing_seen().report()));
}

#[test]
fn losses() {
    assert_snapshot!(text(&stories::losses().report()));
}

#[test]
fn cycle_without_violation() {
    assert_snapshot!(text(&stories::cycle_only().report()));
}

#[test]
fn eight_lanes() {
    assert_snapshot!(text(&stories::relay(8).report()));
}

#[test]
fn more_threads_than_lanes_and_more_steps_than_shown() {
    assert_snapshot!(text(&stories::relay(30).report()));
}

#[test]
fn wait_in_region() {
    assert_snapshot!(text(&stories::wait_in_region().report()));
}

#[test]
fn hostile_names() {
    assert_snapshot!(text(&stories::hostile().report()));
}

#[test]
fn colours() {
    let options = TextOptions { color: true, ..TextOptions::default() };
    let text = render(&stories::lock_split().report(), &options);
    assert_snapshot!(text.replace('\x1b', "<ESC>"));
}

#[test]
fn colour_changes_nothing_but_colour() {
    for mut story in
        [stories::lock_split(), stories::hostile(), stories::relay(8), stories::losses()]
    {
        let report = story.report();
        let coloured = render(&report, &TextOptions { color: true, ..TextOptions::default() });
        let mut stripped = String::new();
        let mut rest = coloured.as_str();
        while let Some(at) = rest.find("\x1b[") {
            stripped.push_str(&rest[..at]);
            let end = rest[at..].find('m').expect("only colours are written");
            rest = &rest[at + end + 1..];
        }
        stripped.push_str(rest);
        assert_eq!(stripped, render(&report, &TextOptions::default()));
    }
}

#[test]
fn lines_of_a_witness_keep_to_the_width() {
    for width in [60, 80, 100, 140] {
        for mut story in [
            stories::lock_split(),
            stories::racy_data(),
            stories::three_threads(),
            stories::no_debug_info(),
            stories::relay(8),
            stories::relay(30),
            stories::hostile(),
        ] {
            let text = render(&story.report(), &TextOptions { width, ..TextOptions::default() });
            // Whole paths and the line of counts are never cut: they are there to be copied.
            for line in
                text.lines().filter(|line| !line.contains("--> ") && !line.starts_with("avtrace: "))
            {
                assert!(columns(line) <= width, "{} columns of {width}: {line}", columns(line));
            }
        }
    }
}
