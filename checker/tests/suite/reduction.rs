//! Trace reduction (`checker/src/reduction.rs`) against the oracle: the events kept by the definition, and the verdicts
//! on them. `PROPTEST_CASES` sets how many random traces each property gets.

use crate::generate::{long_ways, short_lived, well_formed};
use crate::oracle::Oracle;
use crate::text::{parse, run};
use checker::event::{Event, Op};
use checker::finding::{Evidence, Instance, Object, Order, Tx, Violation};
use checker::reduction::{Guarantee, ReasonToKeep, select};
use checker::{Options, Regions, Relation};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const GUARANTEES: [Guarantee; 3] =
    [Guarantee::Violations, Guarantee::Serializability, Guarantee::Witnesses];

/// Kept events of a trace, and the position of each in the whole one.
struct Reduced {
    events: Vec<Event>,
    positions: Vec<u64>,
}

impl Reduced {
    fn new(events: &[Event], guarantee: Guarantee) -> Self {
        let reasons = select(events, guarantee).expect("well-formed");
        Self::of(events, |index| reasons[index].is_some())
    }

    fn of(events: &[Event], keeps: impl Fn(usize) -> bool) -> Self {
        let kept: Vec<usize> = (0..events.len()).filter(|&index| keeps(index)).collect();
        let positions = kept.iter().map(|&index| index as u64).collect();
        Self { events: kept.into_iter().map(|index| events[index]).collect(), positions }
    }

    fn position(&self, event: u64) -> u64 {
        self.positions[event as usize]
    }

    fn instance(&self, instance: Instance) -> Instance {
        Instance {
            begin_event: self.position(instance.begin_event),
            trigger_event: self.position(instance.trigger_event),
            source_event: self.position(instance.source_event),
        }
    }

    fn dependencies(&self) -> BTreeMap<(usize, usize), Object> {
        let dependencies = Oracle::new(&self.events).dependencies;
        let position = |event: usize| self.position(event as u64) as usize;
        let renumbered = |((source, sink), object)| ((position(source), position(sink)), object);
        dependencies.into_iter().map(renumbered).collect()
    }
}

fn options(regions: Regions, relation: Relation) -> Options {
    Options::default().regions(regions).relation(relation).instances(true)
}

/// Checks that the kept events have the dependencies of all, and the violation instances, by the definition and by
/// Davida.
fn check_violations(events: &[Event], oracle: &Oracle, reduced: &Reduced) {
    assert_eq!(reduced.dependencies(), oracle.dependencies);
    let kept = Oracle::new(&reduced.events);
    for regions in [Regions::Outermost, Regions::All] {
        for relation in [Relation::Full, Relation::Data] {
            let expected = oracle.instances(relation, regions);
            let instances = kept.instances(relation, regions);
            let instances: BTreeSet<Instance> =
                instances.into_iter().map(|instance| reduced.instance(instance)).collect();
            assert_eq!(instances, expected);
            let options = options(regions, relation);
            let found = run(&reduced.events, options).instances;
            let found: Vec<Instance> =
                found.into_iter().map(|instance| reduced.instance(instance)).collect();
            assert_eq!(found, run(events, options).instances);
        }
    }
}

/// Checks that each violation has the evidence that it has in the whole trace, and that its witness is one there: with
/// the transactions of the whole trace, and linked by its dependencies. Of several witnesses it may be another one.
fn check_witnesses(events: &[Event], oracle: &Oracle, reduced: &Reduced, options: Options) {
    let expected = run(events, options).violations;
    let found = run(&reduced.events, options).violations;
    // Locations are unique, so that each instance is a separate violation.
    let evidence = |violation: &Violation, position: &dyn Fn(u64) -> u64| {
        let [begin, source, trigger] =
            [violation.begin.event, violation.source_event, violation.trigger_event].map(position);
        ((begin, source, trigger), violation.evidence == Evidence::Data)
    };
    let expected: BTreeMap<_, _> =
        expected.iter().map(|violation| evidence(violation, &|event| event)).collect();
    let evidences: BTreeMap<_, _> = (found.iter())
        .map(|violation| evidence(violation, &|event| reduced.position(event)))
        .collect();
    assert_eq!(evidences, expected);
    let position = |event: u64| reduced.position(event) as usize;
    let is_transaction = |tx: Tx, of: Tx| {
        (tx.thread, tx.region, reduced.position(tx.begin_event))
            == (of.thread, of.region, of.begin_event)
    };
    for edge in found.iter().flat_map(|violation| &violation.edges) {
        let (source, sink) = (position(edge.source.event), position(edge.sink.event));
        assert_eq!(oracle.dependencies.get(&(source, sink)), Some(&edge.object));
        assert!(is_transaction(edge.source.tx, oracle.tx[source]));
        assert!(is_transaction(edge.sink.tx, oracle.tx[sink]));
        assert_eq!(edge.order == Order::Synchronised, oracle.synchronised(source, sink));
    }
}

/// Checks all guarantees on a trace.
fn check_everything(events: &[Event]) {
    let oracle = Oracle::new(events);
    for guarantee in GUARANTEES {
        let reduced = Reduced::new(events, guarantee);
        check_violations(events, &oracle, &reduced);
        for relation in [Relation::Full, Relation::Data] {
            if guarantee >= Guarantee::Serializability {
                let serializable = oracle.serializable(relation);
                assert_eq!(Oracle::new(&reduced.events).serializable(relation), serializable);
                let options = options(Regions::Outermost, relation);
                assert_eq!(run(&reduced.events, options).serializable, Some(serializable));
            }
            if guarantee >= Guarantee::Witnesses {
                let options = options(Regions::All, relation);
                check_witnesses(events, &oracle, &reduced, options);
            }
        }
    }
}

/// Returns the regions' executions that the rule keeps, by its definition: the positions of their begins.
fn kept_by_definition(oracle: &Oracle, guarantee: Guarantee) -> BTreeSet<usize> {
    let ends = || oracle.dependencies.keys();
    let executions = oracle.executions.iter().filter(|execution| {
        let has = |event: usize| {
            oracle.events[event].thread == execution.thread
                && (execution.begin..=execution.end).contains(&event)
        };
        // Later events of others find no open region.
        let ends_thread = |event: &Event| match event.op {
            Op::Exit => event.thread == execution.thread,
            Op::Join(thread) => thread == execution.thread,
            _ => false,
        };
        let ended = oracle.events.iter().position(ends_thread).unwrap_or(usize::MAX);
        let end = execution.end.min(ended);
        let exposed = ends().any(|&(source, sink)| has(source) && sink <= end);
        let entered =
            ends().any(|&(left, _)| has(left) && ends().any(|&(_, sink)| has(sink) && left < sink));
        let named = ends().any(|&(source, sink)| has(source) || has(sink));
        let is_outermost = execution.depth == 0;
        exposed
            || guarantee >= Guarantee::Serializability && is_outermost && entered
            || guarantee >= Guarantee::Witnesses && is_outermost && named
    });
    executions.map(|execution| execution.begin).collect()
}

/// Checks that each event is kept for its reason, and that no other region is.
fn check_reasons(events: &[Event]) {
    let oracle = Oracle::new(events);
    let ends: BTreeSet<usize> =
        oracle.dependencies.keys().flat_map(|&(source, sink)| [source, sink]).collect();
    for guarantee in GUARANTEES {
        let reasons = select(events, guarantee).expect("well-formed");
        let regions = kept_by_definition(&oracle, guarantee);
        for (index, event) in events.iter().enumerate() {
            let reason = reasons[index];
            assert_eq!(reason == Some(ReasonToKeep::Dependency), ends.contains(&index));
            if matches!(event.op, Op::Begin(_)) && !ends.contains(&index) {
                let by_region = reason.filter(|&reason| reason != ReasonToKeep::Completed);
                assert_eq!(by_region.is_some(), regions.contains(&index), "{index}");
            }
        }
    }
}

proptest! {
    #[test]
    fn verdicts_depend_on_the_kept_events_alone(events in well_formed(160)) {
        check_everything(&events);
    }

    #[test]
    fn long_cycles_are_kept(events in long_ways(100)) {
        check_everything(&events);
    }

    #[test]
    fn ended_threads_are_kept(events in short_lived(100)) {
        check_everything(&events);
    }

    #[test]
    fn events_are_kept_for_their_reasons(events in well_formed(120)) {
        check_reasons(&events);
    }

    /// A tracer may keep more than the rule does, with what the rule would keep of these.
    #[test]
    fn keeping_more_changes_no_verdict(events in well_formed(120), extra in any::<u64>()) {
        let reasons = select(&events, Guarantee::Violations).expect("well-formed");
        let begins_or_ends = |op| matches!(op, Op::Begin(_) | Op::End(_));
        let is_lock = |op| {
            use Op::{Acquire, AcquireShared, Release, ReleaseShared};
            matches!(op, Acquire(_) | AcquireShared(_) | Release(_) | ReleaseShared(_))
        };
        // Halves of regions and holds go together.
        let adds = |index: usize| {
            let op = events[index].op;
            let by_place = extra >> (index % 64) & 1 == 1;
            match op {
                op if begins_or_ends(op) => false,
                op if is_lock(op) => extra & 1 == 1,
                // Lives begin and end for all that is kept, and a write may keep accesses apart.
                Op::Alloc(_) | Op::SplitVariable { .. } | Op::Reset(_) => true,
                Op::Write(_) | Op::Update(_) | Op::Free(_) => true,
                _ => by_place,
            }
        };
        let reduced = Reduced::of(&events, |index| reasons[index].is_some() || adds(index));
        check_violations(&events, &Oracle::new(&events), &reduced);
    }
}

/// Returns the kept events of a text trace as a string, one letter each: of `ReasonToKeep`, `.` for none.
fn letters(trace: &str, guarantee: Guarantee) -> String {
    let (events, _) = parse(trace);
    check_everything(&events);
    let reasons = select(&events, guarantee).expect("well-formed");
    let letter = |reason| match reason {
        None => '.',
        Some(ReasonToKeep::Dependency) => 'D',
        Some(ReasonToKeep::Exposed) => 'X',
        Some(ReasonToKeep::Entered) => 'E',
        Some(ReasonToKeep::Named) => 'N',
        Some(ReasonToKeep::Completed) => 'C',
        Some(ReasonToKeep::Structure) => 'S',
    };
    reasons.into_iter().map(letter).collect()
}

#[test]
fn sections_of_one_thread_are_dropped() {
    let trace = "t1 begin(a); t1 acq(l); t1 w(x); t1 rel(l); t1 end
                 t1 begin(a); t1 acq(l); t1 w(x); t1 rel(l); t1 end
                 t2 acq(l); t2 w(x); t2 rel(l)";
    assert_eq!(letters(trace, Guarantee::Serializability), "......CDD.DDC");
    assert_eq!(letters(trace, Guarantee::Witnesses), ".....NCDDNDDC");
}

#[test]
fn a_region_is_kept_if_something_of_it_was_taken_while_it_was_open() {
    let open = "t1 begin(a); t1 acq(l); t1 rel(l); t2 acq(l); t2 rel(l); t1 end";
    assert_eq!(letters(open, Guarantee::Violations), "XCDDCX");
    let ended = "t1 begin(a); t1 acq(l); t1 rel(l); t1 end; t2 acq(l); t2 rel(l)";
    assert_eq!(letters(ended, Guarantee::Violations), ".CD.DC");
}

/// ρ3 of AeroDrome has no increasing cycle: each region is entered after it was left, but not while the other one was
/// left.
#[test]
fn a_transaction_that_is_entered_after_it_was_left_is_kept_for_the_verdict() {
    let trace = "t1 begin(a); t1 w(x); t1 r(y); t2 w(z); t1 r(z); t1 end; t2 r(x)";
    assert_eq!(letters(trace, Guarantee::Violations), ".D.DD.D");
    assert_eq!(letters(trace, Guarantee::Serializability), "ED.DDED");
}

#[test]
fn inner_levels_are_kept_by_themselves() {
    let trace = "t1 begin(a); t1 begin(b); t1 w(x); t1 end; t1 begin(c); t1 end; t2 r(x); t1 end";
    assert_eq!(letters(trace, Guarantee::Violations), "X.D...DX");
}

/// Without the alloc, the second thread would seem to read what the first one has written.
#[test]
fn lives_are_kept_apart() {
    let trace = "t1 w(x); t2 r(x); t1 alloc(x); t3 r(x); t2 w(x)";
    assert_eq!(letters(trace, Guarantee::Violations), "DDCDD");
    let unused = "t1 w(x); t1 alloc(x); t3 r(x); t2 w(x)";
    assert_eq!(letters(unused, Guarantee::Violations), "..DD");
}

/// Only the write keeps the first read from the commuting update of the third thread.
#[test]
fn writes_before_commuting_updates_are_kept() {
    let trace = "t0 r(x); t1 add(x); t2 r(x); t2 w(x); t2 add(x); t1 r(x)";
    assert_eq!(letters(trace, Guarantee::Violations), "DDDCDD");
    let trace = "t0 add(x); t1 r(x); t2 add(x); t2 w(x); t2 r(x); t1 add(x)";
    assert_eq!(letters(trace, Guarantee::Violations), "DDDCDD");
}

#[test]
fn inner_holds_of_a_lock_are_dropped() {
    let trace = "t1 acq(l); t1 acq(l); t1 rel(l); t1 rel(l); t2 acq(l); t2 rel(l)";
    assert_eq!(letters(trace, Guarantee::Violations), "C..DDC");
}

#[test]
fn all_of_a_hold_is_kept_with_its_nested_events() {
    let trace = "t0 begin(a); t1 racq(l); t1 racq(l); t1 rrel(l); t0 join(t1); t0 end";
    assert_eq!(letters(trace, Guarantee::Violations), ".CCDD.");
}
