//! Accesses that are left out for a time: what a region did between two steps is then no fact.

use crate::defect_names::Program;
use crate::generate::well_formed;
use crate::text::run;
use checker::Options;
use checker::defect::{Class, Reason};
use checker::event::{Event, LocationId, Op, RegionId, ThreadId};
use checker::finding::{Cut, Evidence, Findings};
use proptest::prelude::*;

/// The region `f` loses an update, with something before, within and behind its gap.
fn lost_update(before: &str, within: &str, behind: &str) -> String {
    format!(
        "{before} t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
         {within} t2 acq(l) @8; t2 r(x) @9; t2 w(x) @9; t2 rel(l) @10
         t1 acq(l) @4; t1 w(x) @5; t1 rel(l) @6; t1 end; {behind}"
    )
}

/// Returns the class of the first defect, and whether its reasons say that a part was not seen.
fn judged(trace: &str) -> (Class, bool) {
    let found = Program::new(trace).changed(true).defects();
    (found[0].class, found[0].reasons.contains(&Reason::PartlySeen))
}

#[test]
fn a_gap_that_was_partly_seen_is_possible_at_most() {
    assert_eq!(judged(&lost_update("", "", "")), (Class::Likely, false));
    for within in ["t2 rest(f);", "t2 rest(f); t2 resume(f);", "t1 rest(f); t1 resume(f);"] {
        assert_eq!(judged(&lost_update("", within, "")), (Class::Possible, true), "{within}");
    }
    // They rest from before the gap, until it or after it.
    assert_eq!(judged(&lost_update("t1 rest(f);", "", "")), (Class::Possible, true));
    assert_eq!(judged(&lost_update("t1 rest(f);", "t2 resume(f);", "")), (Class::Possible, true));
    assert_eq!(judged(&lost_update("t1 rest(f);", "", "t1 resume(f);")), (Class::Possible, true));
}

#[test]
fn times_outside_the_gap_and_other_regions_hide_nothing() {
    assert_eq!(judged(&lost_update("t1 rest(f); t2 resume(f);", "", "")), (Class::Likely, false));
    assert_eq!(judged(&lost_update("", "", "t2 rest(f);")), (Class::Likely, false));
    assert_eq!(judged(&lost_update("", "t1 rest(g);", "")), (Class::Likely, false));
}

#[test]
fn an_execution_that_was_seen_as_a_whole_is_shown() {
    let hidden = lost_update("", "t2 rest(f);", "t2 resume(f);");
    let seen = lost_update("", "", "");
    for trace in [format!("{hidden}\n{seen}"), format!("{seen}\n{hidden}")] {
        assert_eq!(judged(&trace), (Class::Likely, false), "{trace}");
    }
}

#[test]
fn locks_do_not_rest() {
    let trace = "t1 begin(f); t1 acq(l) @1; t1 rel(l) @3; t1 rest(f)
         t2 acq(l) @8; t2 rel(l) @10; t1 acq(l) @4; t1 rel(l) @6; t1 end";
    let found = Program::new(trace).defects();
    assert!(found.iter().all(|defect| !defect.reasons.contains(&Reason::PartlySeen)), "{found:?}");
}

#[test]
fn a_followed_region_rests_as_others_do() {
    let trace = |within: &str| {
        format!("t1 follow(body); t1 r(x) @1; t2 r(x) @9; t2 w(x) @9; {within} t1 w(x) @2; t1 exit")
    };
    assert_eq!(judged(&trace("")), (Class::Likely, false));
    assert_eq!(judged(&trace("t2 rest(body); t2 resume(body);")), (Class::Possible, true));
}

/// Inserts these events of rests before events of a trace: place, number of the region, and which of the two.
fn with_rests(events: &[Event], rests: &[(usize, u32, bool)]) -> Vec<Event> {
    let mut all = Vec::new();
    for (number, event) in events.iter().enumerate() {
        for &(_, region, rest) in rests.iter().filter(|(at, ..)| at % events.len() == number) {
            let region = RegionId(region);
            let op = if rest { Op::Rest(region) } else { Op::Resume(region) };
            // A thread that has no part in the trace.
            all.push(Event { thread: ThreadId(9), op, location: LocationId(0) });
        }
        all.push(*event);
    }
    all
}

/// Returns whether accesses of a region were left out at some time from one event to another.
fn rested(events: &[Event], region: RegionId, from: u64, to: u64) -> bool {
    let mut rests = false;
    for (number, event) in (0..).zip(&events[..to as usize]) {
        match event.op {
            Op::Rest(id) if id == region => rests = true,
            Op::Resume(id) if id == region => {
                if number > from {
                    return true;
                }
                rests = false;
            }
            _ => {}
        }
    }
    rests
}

fn keys(findings: &Findings) -> Vec<(RegionId, LocationId, LocationId, u64, u64)> {
    let key = |cut: &Cut| (cut.region, cut.left, cut.returned, cut.occurrences, cut.executions);
    findings.cuts.iter().map(key).collect()
}

proptest! {
    /// Rests change nothing but the facts of cuts, and each exemplar has the true one of its gap.
    #[test]
    fn rests_are_facts_of_exemplars_alone(
        events in well_formed(160),
        rests in prop::collection::vec((0..160_usize, 0..4_u32, any::<bool>()), 0..8),
    ) {
        prop_assume!(!events.is_empty());
        let all = with_rests(&events, &rests);
        let (plain, found) =
            (run(&events, Options::default()), run(&all, Options::default()));
        prop_assert_eq!(plain.counts.violations, found.counts.violations);
        prop_assert_eq!(plain.serializable, found.serializable);
        prop_assert_eq!(&plain.executions, &found.executions);
        prop_assert_eq!(keys(&plain), keys(&found));
        for cut in &found.cuts {
            let exemplar = found.violation(cut.exemplar).expect("an exemplar");
            let left = exemplar.edges.first().expect("a dependency").source.event;
            let is_data = exemplar.evidence == Evidence::Data;
            let hidden = rested(&all, cut.region, left, exemplar.trigger_event);
            prop_assert_eq!(cut.partly_seen, is_data && hidden, "{:?}", cut);
        }
    }
}
