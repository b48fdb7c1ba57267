//! Potential deadlocks against all interleavings of small traces.

use crate::interleavings::{Interleavings, Mistake, Ring};
use crate::small_traces::{Shape, trace};
use crate::text::parse;
use checker::deadlock::{Deadlocks, Observer};
use checker::event::{Event, LocationId};
use std::collections::BTreeSet;

fn observe(events: &[Event]) -> Deadlocks {
    let mut observer = Observer::default();
    events.iter().for_each(|event| observer.event(event));
    observer.deadlocks()
}

/// Checks the potential deadlocks of a trace, each as the events of its acquisitions.
#[track_caller]
fn check(text: &str, expected: &[&[u64]]) -> Deadlocks {
    let (events, _) = parse(text);
    let found = observe(&events);
    let shown: Vec<Vec<u64>> = (found.found.iter())
        .map(|deadlock| deadlock.acquisitions.iter().map(|acquisition| acquisition.event).collect())
        .collect();
    assert_eq!(shown, expected, "{found:#?}");
    found
}

const TWO: &str =
    "t1 acq(a); t1 acq(b); t1 rel(b); t1 rel(a); t2 acq(b); t2 acq(a); t2 rel(a); t2 rel(b)";

#[test]
fn two_locks_in_opposite_order() {
    let found = check(TWO, &[&[1, 5]]);
    let [first, second] = &found.found[0].acquisitions[..] else { panic!("two threads") };
    assert_eq!((first.lock, second.lock), (second.holds.lock, first.holds.lock));
    assert_eq!((first.holds.location, second.holds.location), (LocationId(0), LocationId(4)));
    assert!(first.others.is_empty());
}

#[test]
fn a_gate_lock_excludes_it() {
    let gated = "t1 acq(g); t1 acq(a); t1 acq(b); t1 rel(b); t1 rel(a); t1 rel(g)
         t2 {}acq(g); t2 acq(b); t2 acq(a); t2 rel(a); t2 rel(b); t2 {}rel(g)";
    check(&gated.replace("{}", ""), &[]);
    // A gate that both pass at a time excludes neither.
    let shared = gated
        .replace("{}", "r")
        .replace("t1 acq(g)", "t1 racq(g)")
        .replace("t1 rel(g)", "t1 rrel(g)");
    let found = check(&shared, &[&[2, 8]]);
    assert_eq!(found.found[0].acquisitions[0].others.len(), 1);
}

#[test]
fn forks_joins_and_signals_exclude_it() {
    check(&TWO.replace("t2 acq(b);", "t1 fork(t2); t2 acq(b);"), &[]);
    check(&TWO.replace("t2 acq(b);", "t2 join(t1); t2 acq(b);"), &[]);
    check(&TWO.replace("t2 acq(b);", "t1 signal(s); t2 wait(s); t2 acq(b);"), &[]);
    check(&format!("t1 signal(s); t2 wait(s); {TWO}"), &[&[3, 7]]);
}

#[test]
fn readers_wait_for_writers_only() {
    let text = TWO.replace("t1 acq(b)", "t1 racq(b)").replace("t1 rel(b)", "t1 rrel(b)");
    check(&text, &[&[1, 5]]);
    let text = text.replace("t2 acq(b)", "t2 racq(b)").replace("t2 rel(b)", "t2 rrel(b)");
    check(&text, &[]);
    let upgrade = "t1 racq(a); t1 acq(a); t1 rel(a); t1 rrel(a); t2 racq(a); t2 acq(a); t2 rel(a); t2 rrel(a)";
    check(upgrade, &[&[1, 5]]);
}

#[test]
fn the_outermost_acquisition_of_a_reentrant_lock_counts() {
    check(&TWO.replace("t1 acq(b);", "t1 acq(b); t1 acq(a); t1 rel(a);"), &[&[1, 7]]);
    check(
        "t1 acq(a); t1 acq(b); t1 acq(a); t1 rel(a); t1 rel(b); t1 rel(a)
         t2 acq(a); t2 acq(b); t2 rel(b); t2 rel(a)",
        &[],
    );
}

#[test]
fn three_threads_in_a_ring() {
    check(
        "t1 acq(a); t1 acq(b); t1 rel(b); t1 rel(a); t2 acq(b); t2 acq(c); t2 rel(c); t2 rel(b)
         t3 acq(c); t3 acq(a); t3 rel(a); t3 rel(c)",
        &[&[1, 5, 9]],
    );
    // The third acquisition comes before the second one, always.
    check(
        "t1 acq(a); t1 acq(b); t1 rel(b); t1 rel(a); t3 acq(c); t3 acq(a); t3 rel(a); t3 rel(c)
         t3 signal(s); t2 wait(s); t2 acq(b); t2 acq(c); t2 rel(c); t2 rel(b)",
        &[],
    );
}

#[test]
fn one_thread_alone_and_another_lock_of_the_same_id_are_no_deadlock() {
    check(&TWO.replace("t2", "t1"), &[]);
    check(&TWO.replace("t2 acq(b);", "t3 reset(a); t2 acq(b);"), &[]);
}

#[test]
fn deadlocks_at_the_same_places_are_one() {
    let (mut events, _) = parse(&TWO.repeat(30).replace("rel(b)t1", "rel(b); t1"));
    events.iter_mut().for_each(|event| event.location.0 %= 8);
    let mut more = events.clone();
    more.iter_mut().for_each(|event| event.thread.0 += 2);
    events.extend(more);
    let found = observe(&events);
    assert_eq!((found.found.len(), found.found[0].occurrences), (1, 4));
}

const SHAPE: Shape = Shape {
    threads: 3,
    units: 2,
    accesses: 3,
    variables: 1,
    locks: 3,
    is_wild: true,
    has_order: false,
    is_transactional: false,
};

/// Returns the number of rings in traces, the number found, and the missed rings.
fn compare(
    seeds: std::ops::Range<u64>,
    has_order: bool,
    mistake: Mistake,
) -> (usize, usize, Vec<u64>) {
    let (mut real, mut found, mut missed) = (0, 0, Vec::new());
    for seed in seeds {
        let Some(events) = trace(seed, Shape { has_order, ..SHAPE }) else { continue };
        let rings = Interleavings::new(&events, mistake).rings();
        let all: BTreeSet<Ring> = (observe(&events).found.iter())
            .map(|deadlock| {
                deadlock.acquisitions.iter().map(|acquisition| acquisition.thread).collect()
            })
            .collect();
        real += rings.len();
        found += all.len();
        if !rings.is_subset(&all) {
            missed.push(seed);
        }
    }
    (real, found, missed)
}

/// Without orders, every deadlock found is possible, except rings that earlier sections exclude.
#[test]
fn every_ring_of_any_interleaving_is_found() {
    for has_order in [false, true] {
        let (real, found, missed) = compare(0..1000, has_order, Mistake::None);
        println!("{real} real, {found} found");
        assert_eq!(missed, [0; 0]);
        assert!(real > 50 && 10 * found <= 11 * real, "{real} real, {found} found");
    }
}

#[test]
fn mistakes_are_noticed() {
    let (_, _, missed) = compare(0..600, false, Mistake::SharedExcludes);
    assert!(!missed.is_empty());
    let (_, _, missed) = compare(0..600, true, Mistake::NoOrder);
    assert!(!missed.is_empty());
    let (real, found, _) = compare(0..300, false, Mistake::NoLocks);
    assert!(real == 0 && found > 0);
}
