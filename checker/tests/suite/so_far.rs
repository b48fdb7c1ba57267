//! Findings in the middle of a trace: the findings of the events until then. Asking for them has no effect.

use crate::generate::{long_ways, well_formed};
use checker::event::Event;
use checker::{Checker, Davida, DeferredChecker, Options};
use proptest::prelude::*;

fn check(events: &[Event], at: usize) {
    let options = Options::default().instances(true);
    let new = || Davida::new(options);
    let (mut looked_at, mut cut_off, mut whole) = (new(), new(), new());
    let (before, after) = events.split_at(at);
    looked_at.events(before).expect("well-formed");
    cut_off.events(before).expect("well-formed");
    whole.events(events).expect("well-formed");
    let so_far = looked_at.findings();
    assert_eq!(so_far, cut_off.finish());
    looked_at.events(after).expect("well-formed");
    assert_eq!(looked_at.finish(), whole.finish());
}

proptest! {
    #[test]
    fn findings_so_far_are_those_of_the_trace_so_far(
        events in prop_oneof![well_formed(80), long_ways(80)],
        at in any::<prop::sample::Index>(),
    ) {
        check(&events, at.index(events.len() + 1));
    }
}
