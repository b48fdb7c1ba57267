//! DoubleChecker against the oracle, Velodrome and Davida; the worked examples of its paper; and its garbage
//! collection.

use crate::generate::{chaos, long_ways, short_lived, well_formed};
use crate::oracle::Oracle;
use crate::text::{parse, run, run_on};
use crate::velodrome::{check_cycle, check_witness, instance};
use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
use checker::finding::Tx;
use checker::{
    Checker, Davida, DoubleChecker, FirstPass, Options, Relation, Suspects, Velodrome, Work,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Checks the witnesses found and the cycle shown; returns the counts of the replay.
#[track_caller]
fn check(trace: &str, expect: &[&str], cycle: &str) -> Work {
    let (events, names) = parse(trace);
    let mut checker = DoubleChecker::new(Options::default());
    checker.events(&events).expect("well-formed");
    let work = checker.finish_replay();
    let findings = checker.finish();
    let names = |txs: &[Tx]| txs.iter().map(|&tx| names.tx(tx)).collect::<Vec<_>>().join(" ");
    let found: Vec<_> = findings.violations.iter().map(|v| names(&v.witness)).collect();
    assert_eq!(found, expect);
    assert_eq!(names(&findings.cycle.unwrap_or_default()), cycle);
    let serializable = expect.is_empty() && cycle.is_empty();
    assert_eq!(findings.serializable, Some(serializable));
    work
}

/// Figure 3 up to the last access of T1. An object is a variable here: o has no fields.
const FIGURE_3: &str = "t1 begin(Tx1i); t2 begin(Tx2j); t3 begin(Tx3k); t4 begin(Tx4l)
     t5 begin(Tx5m); t6 begin(Tx6n); t7 begin(Tx7)
     t7 w(p); t6 r(p); t5 r(p); t1 w(o); t2 r(o); t3 r(o); t4 r(o); t4 r(p)
     t7 end; t6 end; t5 end; t4 end; t2 end; t3 end";

/// Figure 3 of the paper: the component has four of the seven transactions. Without fields, all three reads of o are
/// on precise cycles.
#[test]
fn figure_3_a_component_of_four() {
    let expect = ["Tx1i Tx2j Tx1i", "Tx1i Tx3k Tx1i", "Tx1i Tx4l Tx1i"];
    let work = check(&format!("{FIGURE_3}; t1 w(o); t1 end"), &expect, "");
    assert_eq!((work.components, work.transactions), (1, 4));
}

/// Figure 3 of the paper with a variable for each field, so that only T3's accesses conflict with T1's last one: a
/// component of four transactions, and a precise cycle of two of them. Without T3's read there is no cycle in it.
#[test]
fn figure_3_a_cycle_of_two_in_a_component_of_four() {
    let trace = "t1 w(f); t8 r(f); t9 r(f)
         t1 begin(Tx1i); t2 begin(Tx2j); t3 begin(Tx3k); t4 begin(Tx4l)
         t1 w(e); t1 w(g); t1 w(h); t2 r(g); t3 r(e); t3 r(f); t4 r(h); t2 end; t3 end; t4 end
         t1 w(f); t1 end";
    let work = check(trace, &["Tx1i Tx3k Tx1i"], "");
    assert_eq!((work.components, work.transactions), (1, 4));
    let work = check(&trace.replace("t3 r(f); ", ""), &[], "");
    assert_eq!((work.components, work.transactions), (1, 4));
}

/// Figure 3 without the write that closes its cycles: neither analysis finds any.
#[test]
fn figure_3_without_its_last_write_has_no_component() {
    assert_eq!(check(&format!("{FIGURE_3}; t1 end"), &[], ""), Work::default());
}

/// The example of section 3.2.3: both edges are there before the last access, and only that closes the precise cycle. A
/// search at an edge instead of an end would be too early.
#[test]
fn section_3_2_3_a_cycle_that_the_last_access_closes() {
    check(
        "t1 begin(a); t2 begin(b); t1 w(x); t2 w(x); t2 w(y); t1 w(y); t1 end; t2 end",
        &["a b a"],
        "",
    );
    // The edges are imprecise: T1 owns a variable that it last used before its transaction.
    let imprecise =
        "t1 w(x); t2 w(y); t1 begin(a); t2 begin(b); t2 w(x); t1 w(y); {last} t1 end; t2 end";
    let work = check(&imprecise.replace("{last}", ""), &[], "");
    assert_eq!((work.components, work.transactions), (1, 2));
    // Now the last access reads the other thread's write.
    let work = check(&imprecise.replace("{last}", "t1 w(z); t2 r(z); t1 w(z);"), &["a b a"], "");
    assert_eq!((work.components, work.transactions), (1, 2));
}

/// The dependency from the write of p to the read by t4 has no transition of its own: it is implied by the order of
/// transitions to RdSh, as in the paper's Figures 2 and 3.
#[test]
fn figure_2_a_read_without_a_fence_is_part_of_a_cycle() {
    check(
        "t7 begin(w); t7 w(p); t6 r(p); t5 r(p); t1 w(o); t2 r(o); t3 r(o)
         t4 begin(r); t4 r(o); t4 r(p); t4 w(back); t7 r(back); t7 end; t4 end",
        &["w r w"],
        "",
    );
    check(
        "t7 begin(w); t7 w(p); t6 r(p); t5 r(p); t1 w(o); t2 r(o); t3 r(o)
         t4 r(o); t4 r(p); t4 w(back); t7 r(back); t7 end",
        &["w t4 t4 w"],
        "",
    );
}

/// A fence brings the transitions to RdSh until now, and not later ones.
#[test]
fn a_fence_does_not_spare_the_next_one() {
    check(
        "t2 r(o); t3 r(o); t4 r(o); t1 begin(w); t1 w(p); t5 r(p); t6 r(p)
         t4 begin(r); t4 r(p); t4 w(back); t1 r(back); t1 end; t4 end",
        &["w r w"],
        "",
    );
}

/// RdEx of t2, reached from a write of t1, is upgraded by t3: `lastRdEx` carries the dependency on.
#[test]
fn an_upgrading_transition_carries_the_dependency_on_the_write() {
    check(
        "t1 begin(a); t1 w(x); t2 r(x); t3 begin(c); t3 r(x); t3 w(y); t1 r(y); t1 end; t3 end",
        &["a c a"],
        "",
    );
}

#[test]
fn rho_1_to_4_of_aerodrome() {
    check(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 end
         t3 begin(c); t3 w(z); t3 end; t1 r(z); t1 end",
        &[],
        "",
    );
    check(
        "t1 begin(a); t2 begin(b); t1 w(x); t2 r(x); t2 w(y); t2 end; t1 r(y); t1 end",
        &["a b a"],
        "",
    );
    check(
        "t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 r(y); t2 r(x); t1 end; t2 end",
        &[],
        "b a b",
    );
    check(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 w(y); t2 end
         t3 begin(c); t3 w(z); t3 r(y); t3 end; t1 r(z); t1 end",
        &[],
        "a b c a",
    );
}

/// The operations that begin or end the life of a variable cut its dependencies, though an earlier life is in the
/// log of the same component; a part of a variable has its history.
#[test]
fn lives_of_variables_are_told_apart() {
    let cycle = "t1 begin(a); t1 w(x); t2 begin(b); t2 w(y); t1 w(y); {} t2 r(x); t1 end; t2 end";
    check(&cycle.replace("{}", ""), &[], "b a b");
    check(&cycle.replace("{}", "t3 alloc(x);"), &[], "");
    // Here the imprecise edges are there without x too: t1 owns a variable that it last used before.
    let component = "t1 w(p); t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 w(y); t2 w(p); {} t2 r(x); t1 end; t2 end";
    assert_eq!(check(&component.replace("{}", ""), &[], "b a b").transactions, 2);
    assert_eq!(check(&component.replace("{}", "t3 alloc(x);"), &[], "").transactions, 2);
    let cycle = "t1 begin(a); t1 w(x); t2 begin(b); t2 w(y); t1 w(y); {} t2 r(z); t1 end; t2 end";
    check(&cycle.replace("{}", ""), &[], "");
    check(&cycle.replace("{}", "t3 split(x,z);"), &[], "b a b");
    check(&cycle.replace("{}", "t3 split(x,z); t3 alloc(z);"), &[], "");
}

/// A component that grows after each of its transactions has ended is replayed once.
#[test]
fn a_component_that_grows_is_replayed_once() {
    let mut trace = "t1 begin(m); t1 w(x0); t2 begin(n0); t2 r(x0); ".to_owned();
    for turn in 0..20 {
        trace += &format!("t2 w(y); t1 w(y); t2 end; t2 begin(n{}); ", turn + 1);
    }
    let (events, _) = parse(&format!("{trace} t1 end; t2 end"));
    let mut checker = DoubleChecker::new(Options::default());
    checker.events(&events).expect("well-formed");
    let work = checker.finish_replay();
    assert_eq!((work.components, work.transactions), (1, 21));
    assert_eq!(work.accesses, 2 + 40);
    let serializable = checker.finish().serializable;
    assert_eq!(serializable, Some(false));
}

/// Limit of the live transactions: the number below which no garbage is searched for, and the last event's.
const MOST: usize = 4100;

#[test]
fn what_can_be_on_no_cycle_is_forgotten() {
    let (events, _) = parse(
        "t1 begin(m); t1 w(x); t1 w(y); t1 end; t2 begin(n); t2 r(x); t2 w(y); t2 end; t2 w(x); t1 r(y)
         t3 begin(m); t3 acq(l); t3 r(y); t3 rel(l); t3 end; t1 acq(l); t1 rel(l)",
    );
    let mut checker = DoubleChecker::new(Options::default());
    for _ in 0..10_000 {
        checker.events(&events).expect("well-formed");
        assert_eq!((checker.live_transactions(), checker.live_entries()), (0, 0));
    }
}

/// Cycles are garbage that no count of edges finds. The long trace has a hundred times as many of them as may be alive.
#[test]
fn cycles_are_forgotten_once_nothing_active_leads_to_them() {
    let (events, _) = parse(
        "t1 begin(m); t1 r(x); t2 begin(n); t2 w(x); t1 w(x); t1 end; t2 r(x); t2 end; t3 r(x); t1 w(z)",
    );
    let mut checker = DoubleChecker::new(Options::default());
    let mut most = 0;
    for _ in 0..50_000 {
        checker.events(&events).expect("well-formed");
        most = most.max(checker.live_transactions() + checker.live_entries());
    }
    assert!((1000..MOST).contains(&most), "{most}");
    let work = checker.finish_replay();
    assert_eq!((work.components, checker.live_transactions()), (50_000, 0));
    assert_eq!(checker.finish().counts.violations, 50_000);
}

/// A cycle that is garbage, in whose threads only unary transactions follow, does not grow without end.
#[test]
fn unary_transactions_after_a_cycle_are_forgotten() {
    let (events, _) = parse("t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end");
    let mut checker = DoubleChecker::new(Options::default());
    checker.events(&events).expect("well-formed");
    assert_eq!(checker.live_transactions(), 2);
    let last = *events.last().expect("not empty");
    for number in 0..20_000 {
        let op = Op::Write(VarId(0));
        checker.event(&Event { op, ..last }).expect("well-formed");
        assert!(checker.live_entries() < MOST, "after {number}");
    }
    assert_eq!((checker.live_transactions(), checker.live_entries()), (0, 0));
}

/// A transaction that stays active retains only its successors.
#[test]
fn an_old_transaction_retains_what_it_leads_to() {
    let event = |thread, op| Event { thread: ThreadId(thread), op, location: LocationId(0) };
    let mut checker = DoubleChecker::new(Options::default());
    let old = [event(9, Op::Begin(RegionId(0))), event(9, Op::Write(VarId(9)))];
    checker.events(&old).expect("well-formed");
    for turn in 0..10_000 {
        let variable = VarId(turn % 2);
        let events = [
            event(1, Op::Begin(RegionId(1))),
            event(1, Op::Write(variable)),
            event(1, Op::End(None)),
            event(2, Op::Read(variable)),
        ];
        checker.events(&events).expect("well-formed");
        assert_eq!(checker.live_transactions(), 1);
    }
    checker.event(&event(1, Op::Read(VarId(9)))).expect("well-formed");
    for _ in 0..10 {
        checker.event(&event(1, Op::Begin(RegionId(1)))).expect("well-formed");
        checker.event(&event(1, Op::End(None))).expect("well-formed");
    }
    assert_eq!(checker.live_transactions(), 12);
    checker.event(&event(9, Op::End(None))).expect("well-formed");
    assert_eq!(checker.live_transactions(), 0);
}

/// Checks DoubleChecker's verdict and reports against the oracle, Davida and Velodrome.
fn check_everything(events: &[Event]) {
    let oracle = Oracle::new(events);
    for relation in [Relation::Full, Relation::Data] {
        let options = Options::default().relation(relation).instances(true);
        let findings = run_on(DoubleChecker::new(options), events);
        assert_eq!(findings.serializable, Some(oracle.serializable(relation)));
        let (davida, velodrome) = (run(events, options), run_on(Velodrome::new(options), events));
        assert_eq!(findings.serializable, velodrome.serializable);
        let counts = [findings.counts, davida.counts]
            .map(|c| (c.events, c.threads, c.transactions, c.unary_transactions, c.ignored_events));
        assert_eq!(counts[0], counts[1]);
        assert!(findings.counts.dependencies <= davida.counts.dependencies);
        let of_davida: BTreeSet<_> = davida.instances.iter().collect();
        assert!(findings.instances.iter().all(|instance| of_davida.contains(instance)));
        let distinct: BTreeSet<_> = findings.instances.iter().collect();
        assert_eq!(distinct.len(), findings.instances.len(), "an instance is found once");
        assert_eq!(findings.violations.len(), findings.instances.len());
        let shown =
            |instance_of| findings.violations.iter().map(instance_of).collect::<BTreeSet<_>>();
        assert_eq!(shown(instance).iter().collect::<BTreeSet<_>>(), distinct);
        let blamed: BTreeSet<_> = findings.violations.iter().map(|v| v.begin.event).collect();
        assert_eq!(findings.counts.violating_transactions, blamed.len() as u64);
        let hidden = findings.serializable == Some(false) && findings.violations.is_empty();
        assert_eq!(findings.cycle.is_some(), hidden);
        if let Some(cycle) = &findings.cycle {
            check_cycle(&oracle, relation, cycle);
        }
        for violation in &findings.violations {
            check_witness(&oracle, relation, violation);
        }
    }
}

proptest! {
    #[test]
    fn doublechecker_agrees_with_the_definition(events in well_formed(160)) {
        check_everything(&events);
    }

    #[test]
    fn doublechecker_agrees_with_the_definition_on_short_traces(events in well_formed(40)) {
        check_everything(&events);
    }

    #[test]
    fn doublechecker_agrees_with_davida_on_any_events(
        events in chaos(60),
        gap in any::<prop::sample::Index>(),
    ) {
        let options = Options::live().instances(true);
        let mut doublechecker = DoubleChecker::new(options);
        let mut davida = Davida::new(options);
        for (index, event) in events.iter().enumerate() {
            if index == gap.index(2 * events.len() + 1) {
                doublechecker.gap();
                davida.gap();
            }
            prop_assert!(doublechecker.event(event).is_ok());
            prop_assert!(davida.event(event).is_ok());
        }
        let (found, davida) = (doublechecker.finish(), davida.finish());
        prop_assert_eq!(found.serializable, davida.serializable);
        prop_assert_eq!(found.counts.ignored_events, davida.counts.ignored_events);
        prop_assert!(found.instances.iter().all(|found| davida.instances.contains(found)));
    }

    #[test]
    fn doublechecker_agrees_with_davida_on_short_lived_threads(events in short_lived(200)) {
        for relation in [Relation::Full, Relation::Data] {
            let options = Options::default().relation(relation).instances(true);
            let found = run_on(DoubleChecker::new(options), &events);
            let davida = run(&events, options);
            prop_assert_eq!(found.serializable, davida.serializable);
            prop_assert!(found.instances.iter().all(|found| davida.instances.contains(found)));
        }
    }
}

proptest! {
    /// Cycles that only appear with the ends of several transactions are rare: hence the large number at once.
    #[test]
    fn doublechecker_agrees_with_davida_on_long_ways(
        traces in prop::collection::vec(long_ways(60), 1..=64),
    ) {
        for events in traces {
            let options = Options::default();
            let found = run_on(DoubleChecker::new(options), &events).serializable;
            prop_assert_eq!(found, run(&events, options).serializable);
        }
    }
}

/// Returns the regions that a first pass names, each with its locations.
fn suspected(events: &[Event]) -> BTreeMap<RegionId, u64> {
    let mut pass = FirstPass::default();
    events.iter().for_each(|event| pass.event(event));
    let found = pass.finish();
    assert_eq!(pass.finish(), Suspects::default());
    found.regions
}

/// Figure 3: the first of two runs names the regions of the component, and no other one.
#[test]
fn a_first_pass_names_the_regions_of_the_component() {
    let component = &["Tx1i", "Tx2j", "Tx3k", "Tx4l"][..];
    for (last, expected) in [("; t1 w(o); t1 end", component), ("; t1 end", &[])] {
        let (events, names) = parse(&format!("{FIGURE_3}{last}"));
        let found: Vec<_> = suspected(&events).into_keys().map(|id| names.region(id)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_first_pass_counts_locations_for_the_inner_regions_of_a_thread_body() {
    let regions = |trace: &str| {
        let (events, names) = parse(trace);
        let found = suspected(&events).into_iter();
        found.map(|(id, count)| format!("{} {count}", names.region(id))).collect::<Vec<_>>()
    };
    let trace =
        "t1 begin(body); t1 begin(outer); t1 begin(deposit); t1 r(x); t2 w(x); t1 w(x); t1 end
         t1 begin(other); t1 w(y); t1 end; t1 end; t1 end";
    // `other` is in the transaction of the body, as all of it is.
    assert_eq!(regions(trace), ["body 0", "outer 3", "deposit 2", "other 1"]);
    let deeper = trace.replace("t1 begin(other)", "t1 begin(helper); t1 begin(other)");
    let deeper = deeper.replace("t1 w(y); t1 end;", "t1 w(y); t1 end; t1 end;");
    assert_eq!(regions(&deeper), ["body 0", "outer 2", "deposit 2", "helper 1", "other 1"]);
    assert!(regions(&trace.replace("t2 w(x); ", "")).is_empty());
}

proptest! {
    /// A second run of the code that the first names finds all violations that the first had.
    #[test]
    fn a_first_pass_names_both_ends_of_all_edges_of_violations(events in well_formed(160)) {
        let mut pass = FirstPass::default();
        // The location of an event is its number.
        for (event, number) in events.iter().zip(0..) {
            pass.event(&Event { location: LocationId(number), ..*event });
        }
        let suspects = pass.finish();
        let found = run(&events, Options::default());
        prop_assert!(found.serializable != Some(false) || suspects.components > 0);
        for edge in found.violations.iter().flat_map(|violation| &violation.edges) {
            for end in [edge.source.event, edge.sink.event] {
                prop_assert!(suspects.locations.contains(&LocationId(end as u32)), "{end}");
            }
        }
    }
}
