//! The text report, as people read it.

use insta::assert_snapshot;
use report::text::render;
use report::{Class, NotSeen, Report, SkippedProbes, TextOptions};

use crate::fixtures::has_control;
use crate::stories;

/// The report with all its defects in full, whatever class the facts of a story give them.
fn in_full(report: &Report) -> Report {
    let mut report = report.clone();
    report.defects.iter_mut().for_each(|defect| defect.class = Class::Likely);
    report
}

/// The report of an algorithm without witnesses.
fn without_defects(mut report: Report) -> Report {
    report.defects.clear();
    report
}

fn text(report: &Report) -> String {
    let base_dir = Some("/home/user/bank".to_owned());
    let text = render(&in_full(report), &TextOptions { base_dir, ..TextOptions::default() });
    assert!(!has_control(&text), "{text:?}");
    text
}

/// Columns of printable text in which only the listed wide characters occur.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if u32::from(c) >= 0x2e80 { 2 } else { 1 }).sum()
}

#[test]
fn regions_that_were_left_out_are_in_the_first_line() {
    let first_line = |names: &[&str], reason_kind: &str| {
        let skipped = |name: &&str| SkippedProbes {
            what: format!("region `{name}`"),
            reason: "not all of its exits could be probed".to_owned(),
            count: 1,
            kind: Some("region".to_owned()),
            reason_kind: Some(reason_kind.to_owned()),
        };
        let skipped_probes = names.iter().map(skipped).collect();
        let mut story = stories::clean();
        story.context.not_seen = NotSeen { skipped_probes, ..NotSeen::default() };
        let text = text(&story.report());
        text.lines().next().unwrap_or_default().to_owned()
    };
    let nothing = first_line(&[], "");
    let exits = "(not all of its exits could be probed)";
    let of = |names: &[&str]| first_line(names, "unprobed_exits");
    assert_eq!(of(&["turn"]), format!("{nothing}; not checked: region `turn` {exits}"));
    let long = "x".repeat(80);
    let named = format!("{nothing}; not checked: region `turn` and 1 other region {exits}");
    assert_eq!(of(&[&long, "turn"]), named);
    assert_eq!(of(&[&long, &long]), format!("{nothing}; not checked: 2 regions {exits}"));
    assert_eq!(first_line(&["turn"], "thread_local"), nothing);
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
    assert_snapshot!(text(&without_defects(stories::reported_twice().report())));
}

#[test]
fn atomic_operations() {
    assert_snapshot!(text(&stories::atomics().report()));
}

#[test]
fn three_threads_in_80_columns() {
    let options = TextOptions { width: 80, ..TextOptions::default() };
    assert_snapshot!(render(&in_full(&stories::three_threads().report()), &options));
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
fn transactions_outside_every_region_are_listed_with_one_comma_between() {
    let text = text(&stories::several_unary().report());
    assert!(!text.contains(",,") && !text.contains(", ,"), "{text}");
    let listed = "T1 writes `account.limit` (bank.c:90); T1 reads `account.limit`";
    let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.contains(listed), "{text}");
}

/// Returns the remark of that kind, on one line.
fn remark(text: &str, kind: &str) -> String {
    let start = format!(" = {kind}: ");
    let from = text.find(&start).unwrap_or_else(|| panic!("no {kind}: {text}")) + start.len();
    let lines = text[from..].lines().enumerate();
    let of_it = lines.take_while(|(index, line)| *index == 0 || line.starts_with("       "));
    let words = of_it.flat_map(|(_, line)| line.split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_known_of_the_data_is_told_as_it_is() {
    let evidence = |change: &dyn Fn(&mut crate::fixtures::Story)| {
        let mut story = stories::lock_split();
        change(&mut story);
        remark(&text(&story.report()), "evidence")
    };
    assert_eq!(
        evidence(&|_| {}),
        "synchronisation only: no access to shared data was seen in these transactions by then: name the data with \
         --watch to find out whether it met"
    );
    assert_eq!(
        evidence(&|story| story.findings.violations[0].data.without.truncate(1)),
        "synchronisation only: no access to shared data was seen in `transfer` by then: name the data with --watch to \
         find out whether it met"
    );
    assert_eq!(
        evidence(&|story| story.findings.violations[0].data.without.clear()),
        "synchronisation only: accesses to data were seen in each of the transactions, and data alone makes no cycle \
         in this run"
    );
    assert_eq!(
        evidence(&|story| {
            story.variable(0, "account.balance");
            story.findings.violations[0].data.without.clear();
            story.findings.violations[0].data.met = vec![checker::event::VarId(0)];
        }),
        "synchronisation only: the transactions met on `account.balance`, but data alone makes no cycle"
    );
}

/// Another lock was released and reacquired as well, which the other transaction never held.
#[test]
fn no_lock_is_named_that_the_other_side_never_held() {
    for mut story in [stories::lock_split(), stories::watched_split()] {
        let lock = story.mutex(7, "stats_lock");
        let split = story.findings.violations[0].released_locks[0];
        story.split(lock, split.released, split.reacquired, None);
        let text = text(&story.report());
        assert!(!text.contains("stats_lock"), "{text}");
        assert!(remark(&text, "fix").starts_with("hold mutex `account.lock` "), "{text}");
        story.findings.violations[0].released_locks.remove(0);
        let text = self::text(&story.report());
        assert!(!text.contains("stats_lock"), "{text}");
        assert!(!text.contains("do not release it"), "{text}");
    }
}

/// Each violation is there twice: by its data, and by its locks.
#[test]
fn what_is_not_shown_takes_one_line_and_the_summary_is_last() {
    let mut story = stories::many(40);
    let mut echoes = story.findings.violations.clone();
    echoes.iter_mut().for_each(|echo| echo.evidence = checker::finding::Evidence::Sync);
    story.findings.violations.extend(echoes);
    let text = text(&without_defects(story.report()));
    let (notes, last) = (text.matches("\nnote: ").count(), text.lines().last());
    assert_eq!(notes, 2, "{text}");
    assert!(
        text.contains("note: 20 more violations are not shown here, of `handler_20`"),
        "{text}"
    );
    assert!(text.contains("note: 40 more violations are others once more"), "{text}");
    assert!(last.is_some_and(|line| line.starts_with("avtrace: 80 violations")), "{text}");
    // With few of them, each is named; not by one that is not shown.
    let report = without_defects(stories::reported_twice().report());
    assert!(self::text(&report).contains("note: v2 is v1 once more"));
    let options = TextOptions { max_violations: 0, ..TextOptions::default() };
    let text = render(&report, &options);
    assert!(!text.contains("v2 is v1") && text.contains("1 more violation is another"), "{text}");
}

#[test]
fn how_the_program_ended_is_always_told() {
    let last = |exit_code, signal, replaced| {
        let mut story = stories::lock_split();
        let argv = vec!["./bank".to_owned()];
        let (pid, parent, program, name) = (4711, None, 1, None);
        let subject = report::Subject::Process {
            pid,
            argv,
            exit_code,
            signal,
            parent,
            program,
            replaced,
            name,
        };
        story.context.subject = subject;
        text(&story.report()).lines().last().expect("a summary").to_owned()
    };
    for (exit_code, signal, replaced, ending) in [
        (Some(0), None, false, "; the program exited with status 0"),
        (Some(3), None, false, "; the program exited with status 3"),
        (None, Some(6), false, "; the program was killed by SIGABRT"),
        (None, None, true, "; the process replaced the program"),
        (None, None, false, "; how the program ended was not seen"),
    ] {
        let summary = last(exit_code, signal, replaced);
        assert!(summary.starts_with("avtrace: 1 likely defect;"), "{summary}");
        assert!(summary.ends_with(ending), "{summary}");
    }
}

#[test]
fn no_debug_info() {
    assert_snapshot!(text(&stories::no_debug_info().report()));
}

#[test]
fn many_violations() {
    let report = without_defects(stories::many(60).report());
    let options = TextOptions { max_violations: 1, ..TextOptions::default() };
    assert_snapshot!(render(&report, &options));
}

#[test]
fn ways_of_one_kind_are_told_together() {
    assert_snapshot!(text(&without_defects(stories::several_ways().report())));
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
    let text = render(&in_full(&stories::lock_split().report()), &options);
    assert_snapshot!(text.replace('\x1b', "<ESC>"));
}

#[test]
fn colour_changes_nothing_but_colour() {
    for mut story in
        [stories::lock_split(), stories::hostile(), stories::relay(8), stories::losses()]
    {
        let report = in_full(&story.report());
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
            let report = in_full(&story.report());
            let text = render(&report, &TextOptions { width, ..TextOptions::default() });
            // Whole paths and the line of counts are never cut: they are there to be copied.
            for line in
                text.lines().filter(|line| !line.contains("--> ") && !line.starts_with("avtrace: "))
            {
                assert!(columns(line) <= width, "{} columns of {width}: {line}", columns(line));
            }
        }
    }
}
