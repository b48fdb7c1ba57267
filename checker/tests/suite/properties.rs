//! Properties over random traces, against the oracle. `PROPTEST_CASES` sets how many cases each gets.

use crate::generate::{chaos, short_lived, well_formed};
use crate::oracle::Oracle;
use crate::text::run;
use checker::event::{Event, LockId, Op, ThreadId};
use checker::finding::{
    Evidence, Findings, Instance, Object, Order, Point, ReleasedLock, Violation,
};
use checker::{Checker, Davida, Options, Regions, Relation};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn options(regions: Regions, relation: Relation) -> Options {
    Options::default().regions(regions).relation(relation).instances(true)
}

fn set(findings: &Findings) -> BTreeSet<Instance> {
    let set: BTreeSet<Instance> = findings.instances.iter().copied().collect();
    assert_eq!(set.len(), findings.instances.len(), "an instance was reported twice");
    set
}

/// Returns the locks that the thread released and reacquired between two events, with the last time of
/// each.
fn splits(oracle: &Oracle, from: usize, to: usize) -> BTreeMap<LockId, (usize, usize)> {
    let mut released = BTreeMap::new();
    let mut splits = BTreeMap::new();
    for index in from..=to {
        let event = oracle.events[index];
        if let Op::Reset(lock) = event.op {
            released.remove(&lock);
        }
        if event.thread != oracle.events[from].thread || !oracle.outermost[index] {
            continue;
        }
        match event.op {
            Op::Release(lock) | Op::ReleaseShared(lock) => drop(released.insert(lock, index)),
            Op::Acquire(lock) | Op::AcquireShared(lock) => {
                if let Some(&released) = released.get(&lock) {
                    splits.insert(lock, (released, index));
                }
            }
            _ => {}
        }
    }
    splits
}

fn check_witness(oracle: &Oracle, violation: &Violation, relation: Relation) {
    let at = |number: u64| number as usize;
    let edges = &violation.edges;
    let (first, last) = (edges.first().expect("an edge"), edges.last().expect("an edge"));
    let execution = (oracle.executions.iter())
        .find(|execution| execution.begin as u64 == violation.begin.event)
        .expect("the region was opened there");
    assert_eq!(violation.region, execution.region);
    assert_eq!(violation.transaction.region, Some(execution.region));
    assert_eq!(violation.transaction.begin_event, execution.begin as u64);
    assert_eq!(violation.transaction.ordinal, oracle.tx[execution.begin].ordinal);

    // It leaves the region after its begin, and comes back into it.
    assert_eq!(first.source.thread, execution.thread);
    assert!(first.source.event >= violation.begin.event);
    assert_eq!(last.sink.thread, execution.thread);
    assert_eq!(last.sink.event, violation.trigger_event);
    assert_eq!(last.source.event, violation.source_event);
    assert!((execution.begin..=execution.end).contains(&at(last.sink.event)));

    for edge in edges {
        let (source, sink) = (at(edge.source.event), at(edge.sink.event));
        assert_eq!(oracle.dependencies.get(&(source, sink)), Some(&edge.object));
        assert_eq!(edge.source.tx, oracle.tx[source]);
        assert_eq!(edge.sink.tx, oracle.tx[sink]);
        assert_eq!(edge.source.location, oracle.events[source].location);
        let synchronised = oracle.synchronised(source, sink);
        assert_eq!(edge.order == Order::Synchronised, synchronised);
    }
    for pair in edges.windows(2) {
        assert_eq!(pair[0].sink.thread, pair[1].source.thread);
        assert!(pair[0].sink.event <= pair[1].source.event);
    }

    let mut witness = vec![violation.transaction];
    for (index, edge) in edges.iter().enumerate() {
        if index > 0 && edges[index - 1].sink.tx != edge.source.tx {
            witness.push(edge.source.tx);
        }
        witness.push(edge.sink.tx);
    }
    *witness.last_mut().expect("two at least") = violation.transaction;
    assert_eq!(violation.witness, witness);

    let racy = edges.iter().any(|edge| edge.order == Order::Racy);
    assert_eq!(violation.order == Order::Racy, racy);
    let on_data = relation == Relation::Data || violation.evidence == Evidence::Data;
    assert!(!on_data || edges.iter().all(|edge| matches!(edge.object, Object::Variable(_))));

    let expected = splits(oracle, at(first.source.event), at(violation.trigger_event));
    let locks: Vec<LockId> = violation.released_locks.iter().map(|split| split.lock).collect();
    assert_eq!(BTreeSet::from_iter(&locks), expected.keys().collect());
    assert_eq!(locks.len(), expected.len());
    for split in &violation.released_locks {
        let (released, reacquired) = (at(split.released.event), at(split.reacquired.event));
        if split.holder.is_none() {
            assert_eq!((released, reacquired), expected[&split.lock]);
        }
        check_holder(oracle, violation, split);
    }
}

/// Hold of a lock: its thread, its mode, and the events at which it begins and ends.
struct Hold {
    thread: ThreadId,
    is_shared: bool,
    acquired: usize,
    released: usize,
}

/// Returns the holds of a lock that have ended, in the order of their ends.
fn holds(oracle: &Oracle, lock: LockId) -> Vec<Hold> {
    let mut open: BTreeMap<(ThreadId, bool), usize> = BTreeMap::new();
    let mut holds = Vec::new();
    let outermost = (0..oracle.events.len()).filter(|&event| oracle.outermost[event]);
    for released in outermost {
        let Event { thread, op, .. } = oracle.events[released];
        let is_shared = matches!(op, Op::AcquireShared(_) | Op::ReleaseShared(_));
        if [Op::Acquire(lock), Op::AcquireShared(lock)].contains(&op) {
            open.insert((thread, is_shared), released);
        } else if [Op::Release(lock), Op::ReleaseShared(lock)].contains(&op)
            && let Some(acquired) = open.remove(&(thread, is_shared))
        {
            holds.push(Hold { thread, is_shared, acquired, released });
        }
    }
    holds
}

/// Checks that a transaction reported as the holder of a lock held it within its part of the witness, and that none is
/// missed.
fn check_holder(oracle: &Oracle, violation: &Violation, split: &ReleasedLock) {
    let holds = holds(oracle, split.lock);
    let (thread, trigger) = (violation.begin.thread, violation.trigger_event as usize);
    let own = (0..=trigger)
        .filter(|&event| oracle.outermost[event] && oracle.events[event].thread == thread);
    let own: Vec<(usize, Op)> = own.map(|event| (event, oracle.events[event].op)).collect();
    let releases = [Op::Release(split.lock), Op::ReleaseShared(split.lock)];
    let acquires = [Op::Acquire(split.lock), Op::AcquireShared(split.lock)];
    let of_lock = own.iter().filter(|(_, op)| releases.contains(op) || acquires.contains(op));
    let of_lock: Vec<&(usize, Op)> = of_lock.collect();
    let first = violation.edges[0].source.event as usize;
    // Times in between, and the parts of the witness in which another thread held the lock.
    let mut found = Vec::new();
    for pair in of_lock.windows(2) {
        let &[&(released, left), &(reacquired, returned)] = pair else { continue };
        if released < first || !releases.contains(&left) || !acquires.contains(&returned) {
            continue;
        }
        for edges in violation.edges.windows(2) {
            let (entered, left) = (&edges[0].sink, &edges[1].source);
            let is_within = |hold: &&Hold| {
                hold.thread == entered.thread
                    && released < hold.acquired
                    && hold.released < reacquired
                    && hold.acquired <= left.event as usize
                    && entered.event as usize <= hold.released
                    && !(hold.is_shared && returned == Op::AcquireShared(split.lock))
            };
            for hold in holds.iter().filter(is_within) {
                let covers = |point: &Point| {
                    (hold.acquired..=hold.released).contains(&(point.event as usize))
                };
                if covers(entered) || entered.tx == left.tx {
                    found.push((released, reacquired, entered.tx));
                } else if covers(left) {
                    found.push((released, reacquired, left.tx));
                }
            }
        }
    }
    let resets = oracle.events.iter().any(|event| matches!(event.op, Op::Reset(_)));
    let shown = (split.released.event as usize, split.reacquired.event as usize);
    match split.holder {
        Some(holder) => assert!(resets || found.contains(&(shown.0, shown.1, holder))),
        None => assert!(resets || found.is_empty(), "{found:?}"),
    }
}

/// Checks the verdict on the whole trace, and the cycle if only that shows that the trace is not
/// serializable.
fn check_verdict(oracle: &Oracle, findings: &Findings, relation: Relation) {
    let serializable = oracle.serializable(relation);
    assert_eq!(findings.serializable, Some(serializable));
    assert!(findings.violations.is_empty() || !serializable);
    let hidden = !serializable && findings.violations.is_empty();
    assert_eq!(findings.cycle.is_some(), hidden);
    let Some(cycle) = &findings.cycle else { return };
    assert_eq!(cycle.first(), cycle.last());
    let distinct: BTreeSet<u64> = cycle.iter().map(|tx| tx.begin_event).collect();
    assert!(distinct.len() >= 2 && distinct.len() == cycle.len() - 1);
    for pair in cycle.windows(2) {
        assert_eq!(oracle.tx[pair[0].begin_event as usize], pair[0]);
        assert!(oracle.is_edge(relation, pair[0], pair[1]));
    }
    for edge in &findings.cycle_edges {
        let (source, sink) = (edge.source.event as usize, edge.sink.event as usize);
        assert_eq!(oracle.dependencies.get(&(source, sink)), Some(&edge.object));
        assert!(cycle.windows(2).any(|pair| pair == [edge.source.tx, edge.sink.tx]));
    }
}

fn instance(violation: &Violation) -> Instance {
    Instance {
        begin_event: violation.begin.event,
        trigger_event: violation.trigger_event,
        source_event: violation.source_event,
    }
}

/// Checks every verdict, witness and count on a trace.
fn check_everything(events: &[Event]) {
    let oracle = Oracle::new(events);
    for regions in [Regions::Outermost, Regions::All] {
        let in_data = oracle.instances(Relation::Data, regions);
        for relation in [Relation::Full, Relation::Data] {
            let expected = oracle.instances(relation, regions);
            let findings = run(events, options(regions, relation));
            assert_eq!(set(&findings), expected);
            check_verdict(&oracle, &findings, relation);

            // Locations are unique, so every instance is a violation of its own.
            let shown: BTreeSet<Instance> = findings.violations.iter().map(instance).collect();
            assert_eq!(shown, expected);
            for violation in &findings.violations {
                check_witness(&oracle, violation, relation);
                let data = in_data.contains(&instance(violation));
                assert_eq!(violation.evidence == Evidence::Data, data);
            }

            let counts = findings.counts;
            assert_eq!(counts.events, events.len() as u64);
            assert_eq!(counts.dependencies, oracle.dependencies.len() as u64);
            let txs: BTreeSet<_> = oracle.tx.iter().map(|tx| tx.begin_event).collect();
            assert_eq!(counts.transactions, txs.len() as u64);
            let unary: BTreeSet<_> = oracle
                .tx
                .iter()
                .filter(|tx| tx.region.is_none())
                .map(|tx| tx.begin_event)
                .collect();
            assert_eq!(counts.unary_transactions, unary.len() as u64);
            let violating: BTreeSet<_> = (expected.iter())
                .map(|instance| oracle.tx[instance.trigger_event as usize].begin_event)
                .collect();
            assert_eq!(counts.violating_transactions, violating.len() as u64);
            assert_eq!(counts.ignored_events, 0);
        }
    }
}

proptest! {
    #[test]
    fn davida_agrees_with_the_definition(events in well_formed(160)) {
        check_everything(&events);
    }

    /// Events of ended threads are dropped, and their dependencies counted nevertheless.
    #[test]
    fn dependencies_on_ended_threads_are_counted(events in short_lived(120)) {
        let counts = run(&events, options(Regions::Outermost, Relation::Full)).counts;
        prop_assert_eq!(counts.dependencies, Oracle::new(&events).dependencies.len() as u64);
    }

    /// A cycle is found as soon as it exists: before the first violation, if need be.
    #[test]
    fn cycles_that_no_violation_shows_are_found(events in well_formed(160)) {
        for relation in [Relation::Full, Relation::Data] {
            let options = options(Regions::Outermost, relation);
            let findings = run(&events, options);
            let first = findings.instances.iter().map(|instance| instance.trigger_event).min();
            let Some(first) = first else { continue };
            let events = &events[..first as usize];
            check_verdict(&Oracle::new(events), &run(events, options), relation);
        }
    }

    /// Whichever part of a trace is lost, the reports on the rest are true of the whole.
    #[test]
    fn losing_events_reports_nothing_false(
        events in well_formed(160),
        from in any::<prop::sample::Index>(),
        count in 0..30_usize,
    ) {
        let oracle = Oracle::new(&events);
        let from = from.index(events.len() + 1);
        let to = (from + count).min(events.len());
        let kept: Vec<usize> = (0..from).chain(to..events.len()).collect();
        let mut checker = Davida::new(options(Regions::All, Relation::Full));
        for &index in &kept {
            if index == to {
                checker.gap();
            }
            checker.event(&events[index]).expect("what the gap explains is no error");
        }
        let index = |number: u64| kept[number as usize];
        for instance in checker.finish().instances {
            let begin = index(instance.begin_event);
            let source = index(instance.source_event);
            let trigger = index(instance.trigger_event);
            let execution = oracle.executions.iter().find(|e| e.begin == begin).expect("a begin");
            prop_assert!((begin..=execution.end).contains(&trigger));
            prop_assert!(oracle.happens_before(Relation::Full, begin, source));
            prop_assert!(oracle.happens_before(Relation::Full, source, trigger));
        }
    }

    /// No event makes a lenient checker fail or a strict one panic, and a strict one that continues after
    /// errors finds the same as a lenient one.
    #[test]
    fn any_events_at_all(events in chaos(200), gap in any::<prop::sample::Index>()) {
        let options = options(Regions::All, Relation::Full);
        let mut strict = Davida::new(options);
        let mut lenient = Davida::new(options.lenient(true));
        let mut errors = 0;
        let nested = |event: &Event| matches!(event.op, Op::End(Some(_)));
        for (index, event) in events.iter().filter(|event| !nested(event)).enumerate() {
            if index == gap.index(4 * events.len() + 1) {
                strict.gap();
                lenient.gap();
            }
            errors += u64::from(strict.event(event).is_err());
            prop_assert!(lenient.event(event).is_ok());
        }
        let (strict, lenient) = (strict.finish(), lenient.finish());
        prop_assert_eq!(strict.instances, lenient.instances);
        prop_assert_eq!(strict.counts.ignored_events + errors, lenient.counts.ignored_events);
    }
}
