//! RegionTrack's test against Davida and the oracle.

use crate::generate::{chaos, short_lived, well_formed};
use crate::oracle::Oracle;
use crate::text::{parse, run, run_on};
use checker::finding::{Counts, Evidence, Findings, Instance};
use checker::{Checker, Davida, Options, RegionTrack, Regions, Relation};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Returns the part of each violation that both report: the instance and its evidence.
fn shown(findings: &Findings) -> BTreeSet<(Instance, Evidence)> {
    let instance = |violation: &checker::finding::Violation| Instance {
        begin_event: violation.begin.event,
        trigger_event: violation.trigger_event,
        source_event: violation.source_event,
    };
    findings.violations.iter().map(|v| (instance(v), v.evidence)).collect()
}

/// Returns the counts without the counts of witnesses, which RegionTrack lacks.
fn comparable(mut counts: Counts) -> Counts {
    (counts.distinct_witnesses, counts.unshown_violations) = (0, 0);
    counts
}

#[track_caller]
fn check(trace: &str, expect: &[(u64, u64)]) {
    let (events, _) = parse(trace);
    let findings = run_on(RegionTrack::new(Options::default()), &events);
    let found: Vec<_> =
        findings.violations.iter().map(|v| (v.begin.event, v.trigger_event)).collect();
    assert_eq!(found, expect);
    assert!(findings.violations.iter().all(|v| v.witness.is_empty() && v.edges.is_empty()));
    assert_eq!(findings.serializable, (!expect.is_empty()).then_some(false));
}

#[test]
fn davida_figure_2() {
    check(
        "t3 begin(m3); t3 end; t4 begin(m4); t2 begin(m2)
         t4 w(a); t2 r(a); t2 w(b); t2 end; t2 begin(m6); t3 begin(m5)
         t2 w(c); t3 r(c); t1 begin(m1); t1 w(d); t3 w(b); t2 w(d); t3 r(d); t3 w(e)
         t4 r(b); t1 r(e)",
        &[(2, 18), (12, 19)],
    );
}

#[test]
fn aerodrome_rho_1_to_4() {
    check(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 end
         t3 begin(c); t3 w(z); t3 end; t1 r(z); t1 end",
        &[],
    );
    check(
        "t1 begin(a); t2 begin(b); t1 w(x); t2 r(x); t2 w(y); t2 end; t1 r(y); t1 end",
        &[(0, 6)],
    );
    check("t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 r(y); t2 r(x); t1 end; t2 end", &[]);
    check(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 w(y); t2 end
         t3 begin(c); t3 w(z); t3 r(y); t3 end; t1 r(z); t1 end",
        &[],
    );
}

#[test]
fn order_inherited_and_lost_updates() {
    check(
        "t1 begin(m); t1 w(a); t2 begin(p); t2 r(a); t2 end; t2 begin(q); t2 w(b); t2 end
         t1 r(b); t1 end",
        &[(0, 8)],
    );
    check("t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end", &[(0, 3)]);
    check("t3 r(x); t1 r(x); t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end", &[(2, 5)]);
}

/// Clocks of earlier events are distinguished regardless of their number, and forgotten when no region
/// needs them.
#[test]
fn earlier_clocks_are_kept_while_a_region_can_tell_them_apart() {
    let mut trace = String::from("t1 begin(m); t2 w(early); t1 w(x); t2 r(x); t2 w(late);");
    for index in 0..500 {
        trace += &format!("t3 w(v{index}); t2 r(v{index});");
    }
    check(&(trace.clone() + "t1 r(early); t1 end"), &[]);
    check(&(trace + "t1 r(late); t1 end"), &[(0, 1005)]);
}

proptest! {
    #[test]
    fn regiontrack_agrees_with_davida_and_the_definition(events in well_formed(160)) {
        let oracle = Oracle::new(&events);
        for regions in [Regions::Outermost, Regions::All] {
            for relation in [Relation::Full, Relation::Data] {
                let options = Options::default().regions(regions).relation(relation).instances(true);
                let findings = run_on(RegionTrack::new(options), &events);
                let davida = run(&events, options);
                prop_assert_eq!(&findings.instances, &davida.instances);
                let expected: Vec<_> = oracle.instances(relation, regions).into_iter().collect();
                prop_assert_eq!(&findings.instances, &expected);
                // Locations are unique, so every instance is a violation of its own.
                prop_assert_eq!(shown(&findings), shown(&davida));
                prop_assert_eq!(comparable(findings.counts), comparable(davida.counts));
                for violation in &findings.violations {
                    let (source, sink) = (violation.source_event, violation.trigger_event);
                    let synchronised = oracle.synchronised(source as usize, sink as usize);
                    let racy = violation.order == checker::finding::Order::Racy;
                    prop_assert_eq!(racy, !synchronised);
                }
            }
        }
    }

    /// Whichever the events are, and wherever some are lost, the two agree.
    #[test]
    fn regiontrack_agrees_with_davida_on_any_events(
        events in chaos(200),
        gap in any::<prop::sample::Index>(),
    ) {
        let options = Options::live().regions(Regions::All).instances(true);
        let mut regiontrack = RegionTrack::new(options);
        let mut davida = Davida::new(options);
        for (index, event) in events.iter().enumerate() {
            if index == gap.index(2 * events.len() + 1) {
                regiontrack.gap();
                davida.gap();
            }
            prop_assert!(regiontrack.event(event).is_ok());
            prop_assert!(davida.event(event).is_ok());
        }
        let (regiontrack, davida) = (regiontrack.finish(), davida.finish());
        prop_assert_eq!(regiontrack.instances, davida.instances);
        prop_assert_eq!(comparable(regiontrack.counts), comparable(davida.counts));
    }

    /// The two agree on many short-lived threads, whose rows are reused.
    #[test]
    fn regiontrack_agrees_with_davida_on_short_lived_threads(events in short_lived(400)) {
        for relation in [Relation::Full, Relation::Data] {
            let options = Options::default().relation(relation).instances(true);
            let findings = run_on(RegionTrack::new(options), &events);
            prop_assert_eq!(findings.instances, run(&events, options).instances);
        }
    }
}
