//! Predictions against all interleavings of small traces.

use crate::interleavings::{Interleavings, Mistake};
use crate::small_traces::{Shape, trace};
use crate::text::parse;
use checker::event::{Event, Op, ThreadId};
use checker::predict::{Observer, Prediction};

fn predict(events: &[Event]) -> Vec<Prediction> {
    let mut observer = Observer::default();
    events.iter().for_each(|event| observer.event(event));
    observer.predictions()
}

/// Checks the predictions of a trace, each by its three events: left, remote, returned. Reads on which one depends
/// follow.
#[track_caller]
fn check(text: &str, expected: &[&[u64]]) {
    let (events, _) = parse(text);
    let found = predict(&events);
    let shown: Vec<Vec<u64>> = (found.iter())
        .map(|found| {
            let steps = [found.left, found.remote, found.returned].map(|step| step.event);
            steps.into_iter().chain(found.depends_on.iter().map(|step| step.event)).collect()
        })
        .collect();
    assert_eq!(shown, expected, "{found:#?}");
}

const UPDATE: &str = "t1 begin(a); t1 r(x); t1 w(x); t1 end;";

#[test]
fn an_access_before_or_after_could_have_come_in() {
    check(&format!("{UPDATE} t2 w(x)"), &[&[1, 4, 2]]);
    // The first read would find another value then.
    check(&format!("t2 w(x); {UPDATE}"), &[&[2, 0, 3, 2]]);
    check(&format!("{UPDATE} t2 r(x)"), &[]);
    check(&format!("{UPDATE} t1 w(x)"), &[]);
}

#[test]
fn what_was_seen_is_no_prediction() {
    check("t1 begin(a); t1 r(x); t2 w(x); t1 w(x); t1 end", &[]);
}

#[test]
fn only_regions_have_gaps() {
    check("t1 r(x); t1 w(x); t2 w(x)", &[]);
    check("t1 begin(a); t1 r(x); t1 end; t1 begin(a); t1 w(x); t1 end; t2 w(x)", &[]);
}

#[test]
fn locks_keep_out_what_they_guard() {
    let text = "t1 begin(a); t1 acq(l); t1 r(x); {} t1 w(x); t1 rel(l); t1 end; t2 acq(l); t2 w(x); t2 rel(l)";
    check(&text.replace("{}", ""), &[]);
    check(&text.replace("{}", "t1 rel(l); t1 acq(l);"), &[&[2, 9, 5]]);
    let other =
        text.replace("{}", "").replace("t2 acq(l)", "t2 acq(m)").replace("t2 rel(l)", "t2 rel(m)");
    check(&other, &[&[2, 7, 3]]);
    let shared = text.replace("{}", "").replace("acq", "racq").replace("rel", "rrel");
    check(&shared, &[&[2, 7, 3]]);
}

#[test]
fn forks_joins_signals_and_barriers_keep_out() {
    check(&format!("{UPDATE} t1 fork(t2); t2 w(x)"), &[]);
    check(&format!("t2 w(x); t1 join(t2); {UPDATE}"), &[]);
    check(&format!("{UPDATE} t1 signal(s); t2 wait(s); t2 w(x)"), &[]);
    check(
        &format!("{UPDATE} t1 arrive(b); t2 arrive(b); t2 depart(b); t2 w(x); t1 depart(b)"),
        &[],
    );
    check(&format!("t1 fork(t2); {UPDATE} t2 w(x)"), &[&[2, 5, 3]]);
}

/// The second thread signals while it holds the lock that the first one needs on its way to the gap.
#[test]
fn locks_and_order_together_keep_out() {
    let text = "t2 acq(l); t2 signal(s); t2 w(x); t2 rel(l); t1 wait(s); t1 {} t1 begin(a); t1 r(x); t1 w(x); t1 end";
    check(&text.replace("{}", "acq(l); t1 rel(l);"), &[]);
    check(&text.replace("{}", "acq(m); t1 rel(m);"), &[&[8, 2, 9, 8]]);
}

/// A thread that is delayed in a section keeps others out of earlier ones: it has to be delayed before it.
#[test]
fn a_thread_is_delayed_before_its_section() {
    let text = "t1 begin(a); t1 acq(l); t1 r(x); t1 w(x); t1 rel(l); t1 end; t2 acq(l); t2 r(y); t2 rel(l); t2 w(x)";
    check(text, &[&[2, 9, 3]]);
}

#[test]
fn reads_that_find_something_else_are_listed() {
    // The second thread would not have seen the flag.
    check(
        "t1 begin(a); t1 r(x); t1 w(x); t1 end; t1 w(flag); t2 r(flag); t2 w(x)",
        &[&[1, 6, 2, 5]],
    );
}

#[test]
fn another_life_of_the_memory_is_another_variable() {
    check(&format!("{UPDATE} t1 free(x); t2 alloc(x); t2 w(x)"), &[]);
}

#[test]
fn a_place_is_predicted_once() {
    let (mut events, _) = parse(&format!("{UPDATE} t2 w(x);").repeat(30));
    events.iter_mut().for_each(|event| event.location.0 %= 5);
    assert_eq!(predict(&events).len(), 1);
}

/// The trace is longer than a window.
#[test]
fn long_traces_are_searched_window_by_window() {
    let (events, _) =
        parse(&format!("{} {UPDATE} t2 w(x)", "t3 begin(b); t3 w(z); t3 end;".repeat(30_000)));
    let found = predict(&events);
    assert_eq!(found.iter().map(|found| found.left.event).collect::<Vec<_>>(), [90_001]);
}

const SHAPE: Shape = Shape {
    threads: 3,
    units: 2,
    accesses: 3,
    variables: 2,
    locks: 2,
    is_wild: true,
    has_order: false,
    is_transactional: false,
};

/// Returns the outermost region execution of an event, by its begin.
fn execution(events: &[Event], at: usize) -> Option<usize> {
    let own = |thread: ThreadId| {
        events.iter().enumerate().filter(move |(_, event)| event.thread == thread)
    };
    let mut begin = None;
    for (index, event) in own(events[at].thread).take_while(|(index, _)| *index <= at) {
        match event.op {
            Op::Begin(_) => begin = Some(index),
            Op::End(_) => begin = None,
            _ => {}
        }
    }
    begin
}

fn access(op: Op) -> Option<(u32, bool)> {
    match op {
        Op::Read(x) => Some((x.0, false)),
        Op::Write(x) | Op::Update(x) => Some((x.0, true)),
        _ => None,
    }
}

/// Returns all triples of left, remote and returned steps that the definition allows and the trace does not show.
fn possible(events: &[Event], all: &Interleavings) -> Vec<[usize; 3]> {
    let mut found = Vec::new();
    for returned in 0..events.len() {
        let Some((x, second)) = access(events[returned].op) else { continue };
        let own = |at: &usize| {
            events[*at].thread == events[returned].thread
                && access(events[*at].op).is_some_and(|(y, _)| x == y)
        };
        let before: Vec<usize> = (0..returned).filter(own).collect();
        let last = before.last().copied();
        let last_write = before
            .iter()
            .rfind(|at| access(events[**at].op).is_some_and(|(_, writes)| writes))
            .copied();
        let mut lefts = vec![last, last_write];
        lefts.dedup();
        for left in lefts.into_iter().flatten() {
            let is_one = execution(events, left).is_some()
                && execution(events, left) == execution(events, returned);
            if !is_one {
                continue;
            }
            let first = access(events[left].op).is_some_and(|(_, writes)| writes);
            for remote in 0..events.len() {
                let conflicts = access(events[remote].op)
                    .is_some_and(|(y, writes)| x == y && (writes || (first && second)));
                let is_other = events[remote].thread != events[left].thread;
                let is_seen = left < remote && remote < returned;
                if is_other && conflicts && !is_seen && all.can_come_between(left, remote, returned)
                {
                    found.push([left, remote, returned]);
                }
            }
        }
    }
    found
}

/// Returns the numbers of predictions, of those possible, and the seeds of wrong ones.
fn compare(
    seeds: std::ops::Range<u64>,
    has_order: bool,
    mistake: Mistake,
) -> (usize, usize, Vec<u64>) {
    let (mut predicted, mut possible_ones, mut wrong) = (0, 0, Vec::new());
    for seed in seeds {
        let Some(events) = trace(seed, Shape { has_order, ..SHAPE }) else { continue };
        let all = Interleavings::new(&events, mistake);
        let expected = possible(&events, &all);
        let found: Vec<[usize; 3]> = (predict(&events).iter())
            .map(|found| [found.left, found.remote, found.returned].map(|step| step.event as usize))
            .collect();
        if !found.iter().all(|found| expected.contains(found)) {
            wrong.push(seed);
        }
        predicted += found.len();
        possible_ones += expected.len();
    }
    (predicted, possible_ones, wrong)
}

/// Every prediction is feasible, and few feasible ones are missed.
#[test]
fn predictions_agree_with_all_interleavings() {
    for has_order in [false, true] {
        let (predicted, possible, wrong) = compare(0..2000, has_order, Mistake::None);
        println!("{predicted} of {possible}");
        assert_eq!(wrong, [0; 0]);
        assert!(predicted > 1000 && 100 * predicted >= 95 * possible, "{predicted} of {possible}");
    }
}

#[test]
#[ignore = "takes minutes"]
fn predictions_agree_with_all_interleavings_of_twenty_thousand_traces() {
    for has_order in [false, true] {
        let (predicted, possible, wrong) = compare(10_000..20_000, has_order, Mistake::None);
        println!("{predicted} of {possible}");
        assert_eq!(wrong, [0; 0]);
    }
}

#[test]
fn mistakes_are_noticed() {
    let (_, _, wrong) = compare(0..500, false, Mistake::SharedExcludes);
    assert!(!wrong.is_empty());
    for (has_order, mistake) in [(false, Mistake::NoLocks), (true, Mistake::NoOrder)] {
        let (predicted, possible, _) = compare(0..500, has_order, mistake);
        let (same, fewer, _) = compare(0..500, has_order, Mistake::None);
        assert!(
            predicted == same && possible > fewer,
            "{mistake:?}: {predicted} of {possible}, {same} of {fewer}"
        );
    }
}

#[test]
fn the_innermost_region_that_spans_the_gap_has_it() {
    let text =
        "t1 begin(a); t1 begin(b); t1 begin(c); t1 r(x); t1 end; t1 w(x); t1 end; t1 end; t2 w(x)";
    let (events, names) = parse(text);
    let found = predict(&events);
    assert_eq!(names.name('r', found[0].region.0), "b");
}
