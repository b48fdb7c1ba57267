//! Velodrome against the oracle and Davida: the results that it must find, those that it may miss, and its
//! garbage collection.

use crate::generate::{chaos, short_lived, well_formed};
use crate::oracle::Oracle;
use crate::text::{parse, run, run_on};
use checker::event::{Event, ThreadId};
use checker::finding::{Evidence, Findings, Instance, Object, Order, Tx, Violation};
use checker::{Checker, Davida, Options, Relation, Velodrome};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[track_caller]
fn check(trace: &str, expect: &[&str], cycle: &str) {
    let (events, names) = parse(trace);
    let findings = run_on(Velodrome::new(Options::default()), &events);
    let names = |txs: &[Tx]| txs.iter().map(|&tx| names.tx(tx)).collect::<Vec<_>>().join(" ");
    let found: Vec<_> = findings.violations.iter().map(|v| names(&v.witness)).collect();
    assert_eq!(found, expect);
    assert_eq!(names(&findings.cycle.unwrap_or_default()), cycle);
    let serializable = expect.is_empty() && cycle.is_empty();
    assert_eq!(findings.serializable, Some(serializable));
}

/// Figure 2 of the paper on Davida: tx4 is blamed, by a cycle without tx6; tx1 is missed.
#[test]
fn davida_figure_2() {
    check(
        "t3 begin(m3); t3 end; t4 begin(m4); t2 begin(m2)
         t4 w(a); t2 r(a); t2 w(b); t2 end; t2 begin(m6); t3 begin(m5)
         t2 w(c); t3 r(c); t1 begin(m1); t1 w(d); t3 w(b); t2 w(d); t3 r(d); t3 w(e)
         t4 r(b); t1 r(e)",
        &["m4 m2 m5 m4"],
        "",
    );
}

#[test]
fn aerodrome_rho_1_to_4() {
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

#[test]
fn order_inherited_through_an_earlier_transaction() {
    check(
        "t1 begin(m); t1 w(a); t2 begin(p); t2 r(a); t2 end; t2 begin(q); t2 w(b); t2 end
         t1 r(b); t1 end",
        &["m p q m"],
        "",
    );
    check("t1 begin(m); t1 w(a); t2 r(a); t2 w(c); t2 w(b); t1 r(b)", &["m t2 t2 m"], "");
    check("t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end", &["m t2 m"], "");
}

/// Only the first dependency between two transactions is stored: here it does not show the violation.
#[test]
fn a_second_dependency_between_two_transactions_is_not_kept() {
    check(
        "t2 begin(b); t3 begin(c); t2 w(x); t3 r(x); t1 begin(a); t1 w(y); t2 r(y); t2 w(z)
         t3 r(z); t3 w(w); t1 r(w)",
        &[],
        "a b c a",
    );
}

#[test]
fn what_can_be_on_no_cycle_is_forgotten() {
    let (events, _) = parse(
        "t1 begin(m); t1 w(x); t1 w(y); t1 end; t2 begin(n); t2 r(x); t2 w(y); t2 end; t2 w(x); t1 r(y)
         t3 begin(m); t3 acq(l); t3 r(y); t3 rel(l); t3 end; t1 acq(l); t1 rel(l)",
    );
    let mut checker = Velodrome::new(Options::default());
    let mut most = 0;
    for _ in 0..10_000 {
        checker.events(&events).expect("well-formed");
        assert_eq!(checker.live_transactions(), 0);
    }
    // A transaction that stays active retains those that follow from it, unary ones only if a dependency
    // leads to them: here the read before the loop, and that of its first turn.
    let (before, _) = parse("t9 begin(m); t9 w(q); t8 r(q); t9 w(q)");
    let rename = |event: &Event| Event { thread: ThreadId(100 + event.thread.0), ..*event };
    checker.events(&before.iter().map(rename).collect::<Vec<_>>()).expect("well-formed");
    for _ in 0..10_000 {
        let (unary, _) = parse("t1 r(a); t1 w(a); t2 r(b)");
        let rename = |event: &Event| Event { thread: ThreadId(101 - event.thread.0), ..*event };
        checker.events(&unary.iter().map(rename).collect::<Vec<_>>()).expect("well-formed");
        most = most.max(checker.live_transactions());
    }
    assert!(most <= 3, "{most} transactions");
}

/// Every edge is a dependency, and every step an edge of the graph of transactions.
pub fn check_cycle(oracle: &Oracle, relation: Relation, cycle: &[Tx]) {
    assert_eq!(cycle.first(), cycle.last());
    let distinct: BTreeSet<u64> = cycle.iter().map(|tx| tx.begin_event).collect();
    assert!(distinct.len() >= 2 && distinct.len() == cycle.len() - 1);
    for pair in cycle.windows(2) {
        assert_eq!(oracle.tx[pair[0].begin_event as usize], pair[0]);
        assert!(oracle.is_edge(relation, pair[0], pair[1]));
    }
}

pub fn check_witness(oracle: &Oracle, relation: Relation, violation: &Violation) {
    check_cycle(oracle, relation, &violation.witness);
    assert_eq!(violation.witness.first(), Some(&violation.transaction));
    assert_eq!(violation.transaction.region, Some(violation.region));
    let (first, last) = (&violation.edges[0], &violation.edges[violation.edges.len() - 1]);
    assert_eq!(first.source.tx, violation.transaction);
    assert_eq!((last.sink.tx, last.sink.event), (violation.transaction, violation.trigger_event));
    assert_eq!(last.source.event, violation.source_event);
    for edge in &violation.edges {
        let (source, sink) = (edge.source.event as usize, edge.sink.event as usize);
        assert_eq!(oracle.dependencies.get(&(source, sink)), Some(&edge.object));
        assert_eq!((edge.source.tx, edge.sink.tx), (oracle.tx[source], oracle.tx[sink]));
        assert_eq!(edge.order == Order::Synchronised, oracle.synchronised(source, sink));
        assert!(oracle.happens_before(relation, violation.begin.event as usize, source));
    }
    let data = violation.edges.iter().all(|edge| matches!(edge.object, Object::Variable(_)));
    assert_eq!(violation.evidence == Evidence::Data, data);
}

pub fn instance(violation: &Violation) -> Instance {
    Instance {
        begin_event: violation.begin.event,
        trigger_event: violation.trigger_event,
        source_event: violation.source_event,
    }
}

/// Returns the first and the last transaction of that thread on a witness.
fn projection(violation: &Violation, thread: ThreadId) -> Option<(u64, u64)> {
    let mut ordinals =
        violation.witness.iter().filter(|tx| tx.thread == thread).map(|tx| tx.ordinal);
    let first = ordinals.next()?;
    Some((first, ordinals.next_back().unwrap_or(first)))
}

/// Theorem 4 of the paper on Davida, its first condition: on each thread but the violating one that both witnesses pass
/// through, Davida's comes in no later than Velodrome's.
fn check_theorem_4(velodrome: &Violation, davida: &Violation) {
    let threads: BTreeSet<_> = velodrome.witness.iter().map(|tx| tx.thread).collect();
    for thread in threads.into_iter().filter(|&w| w != velodrome.transaction.thread) {
        let projections = (projection(velodrome, thread), projection(davida, thread));
        let (Some((a, _)), Some((c, _))) = projections else { continue };
        assert!(c <= a, "Davida's witness comes into {thread:?} later");
    }
}

/// The second condition of the theorem, that Velodrome's witness then leaves no later than Davida's, does
/// not hold for a depth-first search that tries dependencies before program order, as the paper's own Fig.
/// 2 does: it finds the path through a later transaction of a thread.
#[test]
fn the_second_condition_of_theorem_4_depends_on_the_search() {
    let trace =
        "t1 begin(m); t1 r(x); t3 w(x); t3 r(x); t4 w(x); t3 r(x); t4 w(x); t1 r(x); t1 end";
    check(trace, &["m t3 t3 t4 t3 t4 m"], "");
    crate::text::check(trace, &["data: m t3 t3 t4 t4 m"]);
    let (events, _) = parse(trace);
    let found = run_on(Velodrome::new(Options::default()), &events);
    let shown = run(&events, Options::default());
    let thread = events[2].thread;
    assert_eq!(projection(&found.violations[0], thread), Some((0, 2)));
    assert_eq!(projection(&shown.violations[0], thread), Some((0, 1)));
}

/// Checks Velodrome's verdict and reports against the oracle and Davida.
fn check_everything(events: &[Event]) {
    let oracle = Oracle::new(events);
    for relation in [Relation::Full, Relation::Data] {
        let options = Options::default().relation(relation).instances(true);
        let findings: Findings = run_on(Velodrome::new(options), events);
        assert_eq!(findings.serializable, Some(oracle.serializable(relation)));
        let davida = run(events, options);
        assert_eq!(findings.counts.transactions, davida.counts.transactions);
        assert_eq!(findings.counts.dependencies, davida.counts.dependencies);
        let of_davida: BTreeSet<_> = davida.instances.iter().collect();
        assert!(findings.instances.iter().all(|instance| of_davida.contains(instance)));
        assert_eq!(findings.violations.len(), findings.instances.len());
        let blamed: BTreeSet<_> = findings.violations.iter().map(|v| v.begin.event).collect();
        assert_eq!(findings.counts.violating_transactions, blamed.len() as u64);
        let hidden = findings.serializable == Some(false) && findings.violations.is_empty();
        assert_eq!(findings.cycle.is_some(), hidden);
        if let Some(cycle) = &findings.cycle {
            check_cycle(&oracle, relation, cycle);
        }
        for violation in &findings.violations {
            check_witness(&oracle, relation, violation);
            // Davida shows another witness than that of the relation asked for if there is one in the data
            // relation.
            let same = |other: &&Violation| instance(other) == instance(violation);
            let shown = davida.violations.iter().find(same).expect("Davida's");
            if shown.evidence == Evidence::Sync || relation == Relation::Data {
                check_theorem_4(violation, shown);
            }
        }
    }
}

proptest! {
    #[test]
    fn velodrome_agrees_with_the_definition(events in well_formed(160)) {
        check_everything(&events);
    }

    #[test]
    fn velodrome_agrees_with_the_definition_on_short_traces(events in well_formed(40)) {
        check_everything(&events);
    }

    #[test]
    fn velodrome_agrees_with_davida_on_any_events(
        events in chaos(60),
        gap in any::<prop::sample::Index>(),
    ) {
        let options = Options::live().instances(true);
        let mut velodrome = Velodrome::new(options);
        let mut davida = Davida::new(options);
        for (index, event) in events.iter().enumerate() {
            if index == gap.index(2 * events.len() + 1) {
                velodrome.gap();
                davida.gap();
            }
            prop_assert!(velodrome.event(event).is_ok());
            prop_assert!(davida.event(event).is_ok());
        }
        let (velodrome, davida) = (velodrome.finish(), davida.finish());
        prop_assert_eq!(velodrome.serializable, davida.serializable);
        prop_assert!(velodrome.instances.iter().all(|found| davida.instances.contains(found)));
    }

    #[test]
    fn velodrome_agrees_with_davida_on_short_lived_threads(events in short_lived(200)) {
        for relation in [Relation::Full, Relation::Data] {
            let options = Options::default().relation(relation).instances(true);
            let (findings, davida) = (run_on(Velodrome::new(options), &events), run(&events, options));
            prop_assert_eq!(findings.serializable, davida.serializable);
            prop_assert!(findings.instances.iter().all(|found| davida.instances.contains(found)));
        }
    }
}
