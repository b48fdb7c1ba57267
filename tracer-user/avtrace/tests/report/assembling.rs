//! Assembling of a report from findings: merging, numbering, order and counts.

use checker::finding::Action::{Acquire, Read, Release, Write};
use checker::finding::Point;
use report::{Action, LostEvents, Role, SourceFrame};

use crate::fixtures::{Story, edge, point, tx};
use crate::stories;

/// Two violations that differ in ids only (inlined twice, say), then one on other lines.
fn twins() -> Story {
    let mut s = Story::new();
    let (one, two) = (s.thread("one", 1), s.thread("two", 2));
    let (region, begin) = s.region("work", "work.c", 10, "");
    let lock = s.mutex(0, "m");
    let data = s.variable(0, "x");
    for copy in 0..3_u64 {
        let line = if copy == 2 { 50 } else { 20 };
        let at = [line, line + 1].map(|line| s.place("work.c", line, "work", ""));
        let base = copy * 10;
        let (a, b) = (tx(one, copy, Some(region), base), tx(two, copy, Some(region), base + 2));
        let object = if copy == 2 { data } else { lock };
        let actions = if copy == 2 {
            [Read, Write, Write, Read]
        } else {
            [Release, Acquire, Release, Acquire]
        };
        let edges = vec![
            edge(
                object,
                point(a, base + 1, actions[0], at[0]),
                point(b, base + 3, actions[1], at[1]),
            ),
            edge(
                object,
                point(b, base + 4, actions[2], at[0]),
                point(a, base + 5, actions[3], at[1]),
            ),
        ];
        s.violation(begin, &[a, b, a], edges, copy + 1);
    }
    s
}

#[test]
fn what_is_the_same_in_the_source_is_merged_and_data_comes_first() {
    let report = twins().report();
    let shown: Vec<_> = report
        .violations
        .iter()
        .map(|violation| (violation.id.as_str(), violation.occurrences, violation.trigger_event))
        .collect();
    assert_eq!(shown, [("v1", 3, 25), ("v2", 1 + 2, 5)]);
    assert_eq!(report.counts.distinct_witnesses, 2);
    assert_eq!(report.counts.violations, 6);
}

#[test]
fn unknown_places_are_not_taken_for_one_another() {
    let mut story = twins();
    for frames in &mut story.names.places {
        frames.clear();
    }
    let report = story.report();
    assert_eq!(report.violations.len(), 3);
    assert_eq!(report.not_seen.unresolved_locations, 7, "each place is counted once");
}

#[test]
fn lines_without_columns_decide() {
    let mut story = twins();
    for (column, frame) in story.names.places.iter_mut().flatten().enumerate() {
        frame.column = Some(column as u32 + 1);
    }
    assert_eq!(story.report().violations.len(), 2);
}

#[test]
fn steps_are_in_time_order_and_know_their_roles() {
    let report = stories::lock_split().report();
    let steps: Vec<_> = report.violations[0]
        .steps
        .iter()
        .map(|step| (step.event, step.thread, step.action, step.roles.clone()))
        .collect();
    assert_eq!(
        steps,
        [
            (20, 0, Action::Begin, vec![Role::Begin]),
            (24, 0, Action::Release, vec![Role::Source, Role::Released]),
            (27, 1, Action::Begin, vec![Role::Begin]),
            (28, 1, Action::Acquire, vec![Role::Sink]),
            (31, 1, Action::Release, vec![Role::Source]),
            (33, 0, Action::Acquire, vec![Role::Sink, Role::Reacquired, Role::Closes]),
        ]
    );
    assert_eq!(
        report.violations[0].steps[1].source_text.as_deref(),
        Some("pthread_mutex_unlock(&from->lock);")
    );
}

#[test]
fn one_event_is_one_step_though_two_edges_meet_in_it() {
    let report = stories::racy_data().report();
    let events: Vec<_> = report.violations[0].steps.iter().map(|step| step.event).collect();
    assert_eq!(events, [10, 11, 12, 14, 15]);
    assert_eq!(report.violations[0].steps[3].roles, [Role::Source, Role::Sink]);
}

#[test]
fn deferred_accesses_after_one_event_are_steps_of_their_own_without_its_value() {
    let mut s = Story::new();
    let (one, two) = (s.thread("one", 1), s.thread("two", 2));
    let (region, begin) = s.region("work", "work.c", 10, "");
    let [x, y] = [(0, "x"), (1, "y")].map(|(id, name)| s.variable(id, name));
    let [first, last, read_x, read_y] =
        [20, 21, 30, 31].map(|line| s.place("work.c", line, "work", ""));
    let (a, b) = (tx(one, 0, Some(region), 0), tx(two, 0, Some(region), 1));
    let deferred = |place| Point { deferred: true, ..point(b, 3, Read, place) };
    let edges = vec![
        edge(x, point(a, 2, Write, first), deferred(read_x)),
        edge(y, deferred(read_y), point(a, 4, Write, last)),
    ];
    s.violation(begin, &[a, b, a], edges, 1);
    s.value(3, None, Some("7"));
    s.value(4, Some("8"), Some("9"));
    let report = s.report();
    let steps = &report.violations[0].steps;
    let read = steps.iter().filter(|step| step.action == Action::Read);
    let read: Vec<_> = read.map(|step| (step.label.as_str(), step.value.is_some())).collect();
    assert_eq!(read, [("work.c:30", false), ("work.c:31", false)]);
    assert!(steps.last().is_some_and(|step| step.value.is_some()));
}

#[test]
fn the_place_is_the_innermost_frame_that_the_user_wrote() {
    let report = stories::three_threads().report();
    let step = &report.violations[0].steps[2];
    assert_eq!(step.label, "/home/user/shop/src/orders/checkout_service.cpp:118");
    assert_eq!(
        step.via,
        ["std::lock_guard<std::mutex>::~lock_guard()", "std::mutex::lock", "__gthread_mutex_lock"]
    );
    assert_eq!(step.frames.len(), 4);
}

#[test]
fn frames_that_are_all_wrappers_show_the_innermost() {
    let mut story = stories::lock_split();
    for frame in story.names.places.iter_mut().flatten() {
        frame.is_wrapper = true;
    }
    let report = story.report();
    assert_eq!(report.violations[0].steps[1].label, "/home/user/bank/src/bank.c:45");
    assert_eq!(report.violations[0].steps[1].via, Vec::<String>::new());
}

#[test]
fn two_calls_on_one_line_are_no_wait() {
    assert!(stories::wait_in_region().report().violations[0].hint.starts_with("the wait at"));
    let mut story = stories::lock_split();
    let split = story.findings.violations[0].released_locks[0];
    let released = story.names.places[split.released.location.index()].clone();
    story.names.places[split.reacquired.location.index()] = released;
    let report = story.report();
    let violation = &report.violations[0];
    assert_eq!(violation.splits[0].released, violation.splits[0].reacquired);
    assert!(violation.hint.starts_with("hold mutex `account.lock` over"), "{}", violation.hint);
}

/// The region is a crate's function: of the frames, its caller alone is the user's own.
#[test]
fn a_step_is_shown_in_its_region_and_not_in_a_caller() {
    let mut story = stories::lock_split();
    let unlock = story.findings.violations[0].edges[0].source.location;
    let frame = |function: &str, file: &str, is_wrapper| report::SourceFrame {
        function: Some(function.to_owned()),
        file: Some(file.to_owned()),
        line: Some(7),
        is_wrapper,
        ..Default::default()
    };
    story.names.places[unlock.index()] = vec![
        frame(
            "core::sync::atomic::AtomicU32::store",
            "/rustc/1/library/core/src/sync/atomic.rs",
            true,
        ),
        frame("transfer", "/home/user/.cargo/registry/src/index/bank-1.0.0/src/lib.rs", true),
        frame("main", "/home/user/bank/src/main.rs", false),
    ];
    let report = story.report();
    let steps = &report.violations[0].steps;
    let step = steps.iter().find(|step| step.label.ends_with(":7")).expect("the unlock");
    assert_eq!(step.label, "/home/user/.cargo/registry/src/index/bank-1.0.0/src/lib.rs:7");
    assert_eq!(step.via, ["core::sync::atomic::AtomicU32::store"]);
    assert_eq!(report.violations[0].edges[0].source_label, step.label);
}

#[test]
fn a_nested_region_begins_under_its_own_name() {
    let mut story = stories::lock_split();
    let (inner, place) = story.region("inner", "bank.c", 44, "");
    let violation = &mut story.findings.violations[0];
    let outer = violation.transaction;
    violation.region = inner;
    violation.transaction = tx(outer.thread, outer.ordinal, Some(inner), 23);
    violation.begin = point(outer, 23, checker::finding::Action::Begin, place);
    violation.witness = vec![violation.transaction, violation.witness[1], violation.transaction];
    let report = story.report();
    assert_eq!(report.violations[0].region, "inner");
    assert_eq!(report.violations[0].steps[0].event, 23);
    assert_eq!(report.violations[0].steps[0].region.as_deref(), Some("inner"));
}

#[test]
fn lost_events_are_summed_and_gaps_added() {
    let report = stories::losses().report();
    assert_eq!(report.counts.lost_events, 1_203);
    assert_eq!(report.not_seen.gaps, 2);
    let mut story = stories::clean();
    story.context.not_seen.lost_events = vec![LostEvents { class: "lock".to_owned(), count: 0 }];
    assert_eq!(story.report().counts.lost_events, 0);
}

#[test]
fn a_violation_decides_what_the_algorithm_left_open() {
    let mut story = stories::lock_split();
    story.findings.serializable = None;
    assert_eq!(story.report().serializable, Some(false));
    let mut story = stories::clean();
    story.findings.serializable = None;
    let report = story.report();
    assert_eq!(report.serializable, None);
    assert!(!report.has_findings());
    assert!(stories::cycle_only().report().has_findings());
}

#[test]
fn threads_and_regions_of_the_findings_are_in_the_tables() {
    let report = stories::three_threads().report();
    let threads: Vec<_> = report.threads.iter().map(|thread| (thread.id, thread.tid)).collect();
    assert_eq!(threads, [(0, Some(900)), (1, Some(901)), (2, Some(902))]);
    let regions: Vec<_> = report.regions.iter().map(|region| region.name.as_str()).collect();
    assert_eq!(regions, ["place_order", "reserve", "book"]);
}

#[test]
fn labels_of_traces_are_read_as_far_as_they_go() {
    let read = |label: &str| {
        let frame = SourceFrame::from_label(label);
        (frame.file, frame.line, frame.column, frame.function)
    };
    let file = |name: &str| Some(name.to_owned());
    assert_eq!(read("a/b.c:7"), (file("a/b.c"), Some(7), None, None));
    assert_eq!(read("a/b.c:7:3"), (file("a/b.c"), Some(7), Some(3), None));
    assert_eq!(read("C:7:x"), (None, None, None, file("C:7:x")));
    assert_eq!(read("17"), (None, None, None, file("17")));
    assert_eq!(read(":7"), (None, None, None, file(":7")));
    assert_eq!(read("a.c:0"), (None, None, None, file("a.c:0")));
}

/// Lines without their text, by their distance from the function: inserted lines above do not count.
#[test]
fn a_fingerprint_needs_no_source_text_and_no_line_numbers() {
    let fingerprint = |moved: u32, apart: u32| {
        let mut story = stories::lock_split();
        story.names.lines.clear();
        for frame in story.names.places.iter_mut().flatten() {
            frame.line = frame.line.map(|line| line + moved + if line == 48 { apart } else { 0 });
            frame.declared = Some(moved + 40);
        }
        story.report().defects[0].fingerprint.clone()
    };
    assert_eq!(fingerprint(0, 0), fingerprint(10, 0));
    assert_ne!(fingerprint(0, 0), fingerprint(0, 1));
}
