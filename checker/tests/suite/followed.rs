//! Regions that are followed for cuts alone, such as bodies of threads: they change no verdict, and an execution is one
//! iteration.

use std::collections::{BTreeMap, BTreeSet};

use checker::event::{Event, LocationId, Op, RegionId, VarId};
use checker::finding::{Cut, Evidence, Findings, GapKind, Instance, Point, Tx, Violation};
use checker::{AeroDrome, DoubleChecker, Options, RegionTrack, Regions, Relation, Velodrome};
use proptest::prelude::*;

use crate::generate::well_formed;
use crate::oracle::Oracle;
use crate::text::{parse, run, run_on};

/// Reads a trace in which the same operation of a thread is always at the same place.
fn places(trace: &str) -> Vec<Event> {
    let (mut events, _) = parse(trace);
    for index in 0..events.len() {
        let same =
            |other: &&Event| (other.thread, other.op) == (events[index].thread, events[index].op);
        events[index].location = events.iter().find(same).expect("itself").location;
    }
    events
}

/// Returns the cuts of a trace without violations.
#[track_caller]
fn cuts(trace: &str) -> (Findings, Vec<Cut>) {
    cuts_of(&places(trace))
}

#[track_caller]
fn cuts_of(events: &[Event]) -> (Findings, Vec<Cut>) {
    let findings = run(events, Options::default());
    assert_eq!(findings.violations, []);
    assert_eq!(findings.serializable, Some(true));
    let cuts = findings.cuts.clone();
    (findings, cuts)
}

const OTHER: &str = "t2 acq(l); t2 r(x); t2 w(x); t2 rel(l);";

#[test]
fn an_update_that_a_body_loses_is_a_cut() {
    let trace = format!(
        "t1 follow(body); t1 acq(l); t1 r(x); t1 rel(l); {OTHER} t1 acq(l); t1 w(x); t1 rel(l);
         t1 follow; t1 exit"
    );
    let (findings, cuts) = cuts_of(&parse(&trace).0);
    let [cut] = &cuts[..] else { panic!("{cuts:?}") };
    assert_eq!((cut.executions, cut.occurrences, cut.kind), (1, 0, GapKind::OneActivation));
    assert_eq!(findings.executions, [1]);
    let violation = findings.violation(cut.exemplar).expect("an exemplar");
    assert_eq!(violation.evidence, Evidence::Data);
    assert_eq!((violation.begin.event, violation.trigger_event), (1, 9));
    let [lock] = &violation.released_locks[..] else { panic!("{violation:?}") };
    assert!(lock.holder.is_some() && cut.split_by_itself == [lock.lock]);
}

#[test]
fn a_body_may_lose_an_update_through_its_callees() {
    let (_, cuts) = cuts(
        "t1 follow(body); t1 begin(get); t1 r(x); t1 end; t2 r(x); t2 w(x);
         t1 begin(set); t1 w(x); t1 end; t1 exit",
    );
    let [cut] = &cuts[..] else { panic!("{cuts:?}") };
    assert_eq!(cut.kind, GapKind::Callees);
    let chain = |chain: &Option<Vec<RegionId>>| chain.as_ref().map(Vec::len);
    assert_eq!((chain(&cut.left_end.chain), chain(&cut.returned_end.chain)), (Some(1), Some(1)));
}

#[test]
fn iterations_and_waits_end_an_execution() {
    let body = "t1 acq(l); t1 r(x); t1 w(x); t1 rel(l);";
    assert_eq!(cuts(&format!("t1 follow(body); {body} {OTHER} {body} {OTHER} {body}")).1, []);
    assert_eq!(
        cuts(&format!("t1 follow(body); t1 r(x); {OTHER} t2 signal(s); t1 wait(s); t1 w(x)")).1,
        []
    );
    assert_eq!(
        cuts(&format!("t1 fork(t2); t1 follow(b); t1 r(x); {OTHER} t1 join(t2); t1 w(x)")).1,
        []
    );
}

#[test]
fn a_loop_in_a_critical_section_does_not_end_an_execution() {
    let trace = format!(
        "t1 follow(body); t1 acq(l); t1 r(x); t1 rel(l); {OTHER}
         t1 acq(l); t1 r(node); t1 r(node); t1 w(x); t1 rel(l)"
    );
    let (mut events, _) = parse(&trace);
    let first = events.iter().position(|event| event.op == Op::Read(VarId(1))).expect("a read");
    events[first + 1].location = events[first].location;
    let (_, cuts) = cuts_of(&events);
    assert_eq!(cuts.len(), 1, "{cuts:?}");
}

#[test]
fn locks_alone_are_no_cut_of_a_body() {
    assert_eq!(cuts("t1 follow(b); t1 acq(l); t1 rel(l); t2 acq(l); t2 rel(l); t1 racq(l)").1, []);
}

#[test]
fn what_another_region_has_is_not_the_bodys() {
    let trace = "t1 follow(body); t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end";
    let findings = run(&places(trace), Options::default());
    let [cut] = &findings.cuts[..] else { panic!("{findings:?}") };
    assert_eq!((cut.region, findings.violations.len()), (RegionId(1), 1));
}

#[test]
fn a_thread_that_is_followed_no_more_has_no_cut() {
    assert_eq!(cuts("t1 follow(body); t1 r(x); t2 w(x); t1 follow; t1 w(x)").1, []);
    assert_eq!(cuts("t1 follow(body); t1 r(x); t2 w(x); t1 follow(loop); t1 w(x)").1, []);
}

/// Returns the cuts' regions, by id, and where each has the second half of an update.
fn updates(trace: &str) -> BTreeMap<(u32, u32), Option<u32>> {
    let cuts = run(&parse(trace).0, Options::default()).cuts;
    let update = |cut: &Cut| cut.updated_at.map(|location| location.0);
    cuts.iter().map(|cut| ((cut.region.0, cut.left.0), update(cut))).collect()
}

/// A read depends on the commuting updates of several threads, and each of them may close another cut.
#[test]
fn one_read_may_be_half_an_update_in_several_cuts() {
    let (body, m) = (0, 1);
    for others in ["t1 add(x); t3 add(x);", "t3 add(x); t1 add(x);"] {
        // The region reaches t1, and the body around it t3.
        let steps = "t2 w(y); t3 r(y); t2 begin(m); t2 w(z); t1 r(z);";
        let rest = format!("{others} t2 r(x); t2 w(x); t2 end");
        let without = updates(&format!("t4 follow(body); {steps} {rest}"));
        assert_eq!(without, BTreeMap::from([((m, 4), Some(9))]));
        let followed = updates(&format!("t2 follow(body); {steps} {rest}"));
        assert_eq!(followed, BTreeMap::from([((m, 4), Some(9)), ((body, 1), Some(9))]));
        // The region reaches both, from different places.
        let steps = "t4 follow(body); t2 begin(m); t2 w(y); t3 r(y); t2 w(z); t1 r(z);";
        let both = updates(&format!("{steps} {rest}"));
        assert_eq!(both, BTreeMap::from([((m, 2), Some(9)), ((m, 4), Some(9))]));
    }
}

#[test]
fn cuts_of_bodies_take_no_room_from_others() {
    let trace =
        "t1 follow(body); t1 r(x); t2 w(x); t1 w(x); t1 begin(m); t1 r(y); t2 w(y); t1 w(y)";
    let findings = run(&parse(trace).0, Options::default().cuts(1));
    assert_eq!(findings.cuts.iter().map(|cut| cut.region.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((findings.counts.violations, findings.counts.uncut_violations), (1, 0));
}

/// Ids of the regions that are followed in random traces.
const FOLLOWED: u32 = 100;

/// Number of each event, without counting events that name the followed region.
struct Numbers(Vec<u64>);

impl Numbers {
    fn tx(&self, tx: &mut Tx) {
        tx.begin_event = self.0[tx.begin_event as usize];
    }

    fn point(&self, point: &mut Point) {
        point.event = self.0[point.event as usize];
        self.tx(&mut point.tx);
    }

    fn violation(&self, violation: &Violation) -> Violation {
        let mut violation = violation.clone();
        self.tx(&mut violation.transaction);
        self.point(&mut violation.begin);
        for event in [&mut violation.trigger_event, &mut violation.source_event] {
            *event = self.0[*event as usize];
        }
        violation.witness.iter_mut().for_each(|tx| self.tx(tx));
        for edge in &mut violation.edges {
            self.point(&mut edge.source);
            self.point(&mut edge.sink);
        }
        for lock in &mut violation.released_locks {
            self.point(&mut lock.released);
            self.point(&mut lock.reacquired);
            lock.holder.iter_mut().for_each(|tx| self.tx(tx));
        }
        violation.data.without.iter_mut().for_each(|tx| self.tx(tx));
        violation
    }

    fn instance(&self, instance: &Instance) -> Instance {
        let of = |event: u64| self.0[event as usize];
        Instance {
            begin_event: of(instance.begin_event),
            trigger_event: of(instance.trigger_event),
            source_event: of(instance.source_event),
        }
    }
}

/// Inserts events that name the followed region.
fn with_followed(events: &[Event], places: &[(usize, u32)]) -> (Vec<Event>, Numbers) {
    let (mut all, mut numbers) = (Vec::new(), Vec::new());
    for (number, event) in events.iter().enumerate() {
        for &(_, region) in places.iter().filter(|(at, _)| at % events.len() == number) {
            let region = region.checked_sub(1).map(|region| RegionId(FOLLOWED + region));
            let (thread, location) = (event.thread, LocationId(0));
            all.push(Event { thread, op: Op::Follow(region), location });
            numbers.push(number as u64);
        }
        all.push(*event);
        numbers.push(number as u64);
    }
    (all, Numbers(numbers))
}

fn is_followed(region: RegionId) -> bool {
    region.0 >= FOLLOWED
}

/// Checks that the findings are the same but for cuts of regions that are followed.
fn check_same(plain: &Findings, followed: &Findings, numbers: &Numbers, added: u64) {
    let mut counts = followed.counts;
    counts.events -= added;
    assert_eq!(plain.counts, counts);
    assert_eq!(
        (plain.serializable, &plain.executions[..]),
        (followed.serializable, {
            let regions = plain.executions.len();
            &followed.executions[..regions.min(followed.executions.len())]
        })
    );
    let violations = followed.violations.iter().map(|violation| numbers.violation(violation));
    assert_eq!(plain.violations, violations.collect::<Vec<_>>());
    let instances = followed.instances.iter().map(|instance| numbers.instance(instance));
    assert_eq!(plain.instances, instances.collect::<Vec<_>>());
    let others = || followed.cuts.iter().filter(|cut| !is_followed(cut.region));
    assert_eq!(plain.cuts.len(), others().count());
    for (cut, other) in plain.cuts.iter().zip(others()) {
        let same = |cut: &Cut| {
            let mut cut = cut.clone();
            (cut.exemplar, cut.others.followed) = (0, None);
            cut
        };
        assert_eq!(same(cut), same(other));
        let exemplar = followed.violation(other.exemplar).expect("an exemplar");
        assert_eq!(plain.violation(cut.exemplar), Some(&numbers.violation(exemplar)));
    }
    let open = followed.open_at_end.iter().map(|open| (open.region, open.begin.location));
    let plain_open = plain.open_at_end.iter().map(|open| (open.region, open.begin.location));
    assert_eq!(plain_open.collect::<Vec<_>>(), open.collect::<Vec<_>>());
}

/// Checks that cuts of regions that are followed are cycles of the data relation, within one iteration each.
fn check_cycles(oracle: &Oracle, findings: &Findings, numbers: &Numbers) {
    for cut in findings.cuts.iter().filter(|cut| is_followed(cut.region)) {
        let violation = numbers.violation(findings.violation(cut.exemplar).expect("an exemplar"));
        let (begin, trigger) = (violation.begin.event, violation.trigger_event);
        assert_eq!(violation.evidence, Evidence::Data);
        for edge in &violation.edges {
            assert!(oracle.is_dependency(&violation, edge), "{edge:?}");
        }
        for pair in violation.edges.windows(2) {
            assert_eq!(pair[0].sink.thread, pair[1].source.thread);
            assert!(pair[0].sink.event <= pair[1].source.event);
        }
        let first = &violation.edges[0].source;
        assert!(begin <= first.event && first.thread == violation.begin.thread);
        let own = (begin..=trigger).map(|event| oracle.events[event as usize]);
        let own: Vec<Event> = own.filter(|event| event.thread == first.thread).collect();
        let waits = |event: &Event| matches!(event.op, Op::Wait(_) | Op::Depart(_) | Op::Join(_));
        let inside = |event: &Event| {
            oracle.executions.iter().any(|execution| {
                execution.thread == event.thread
                    && (execution.begin as u64 + 1..=execution.end as u64)
                        .contains(&u64::from(event.location.0))
            })
        };
        let outside: Vec<&Event> = own.iter().filter(|event| !inside(event)).collect();
        assert!(!outside.iter().any(|event| waits(event)));
        let places: BTreeSet<LocationId> = outside.iter().map(|event| event.location).collect();
        assert_eq!(places.len(), outside.len());
    }
}

proptest! {
    #[test]
    fn followed_regions_change_no_verdict(
        events in well_formed(160),
        places in prop::collection::vec((0..160_usize, 0..3_u32), 0..12),
        all in any::<bool>(),
        data in any::<bool>(),
        cuts in prop_oneof![3 => Just(10_000_usize), 1 => 1..4_usize],
    ) {
        prop_assume!(!events.is_empty());
        let regions = if all { Regions::All } else { Regions::Outermost };
        let relation = if data { Relation::Data } else { Relation::Full };
        let options = Options::default().regions(regions).relation(relation).instances(true).cuts(cuts);
        // Locations are numbers of events, to find the events again.
        let number = |(number, event): (usize, &Event)| {
            Event { location: LocationId(number as u32), ..*event }
        };
        let events: Vec<Event> = events.iter().enumerate().map(number).collect();
        let (followed, numbers) = with_followed(&events, &places);
        let added = (followed.len() - events.len()) as u64;
        let findings = run(&followed, options);
        check_same(&run(&events, options), &findings, &numbers, added);
        check_cycles(&Oracle::new(&events), &findings, &numbers);
        let others = |events: &[Event]| {
            let track = run_on(RegionTrack::new(options), events);
            let aero = run_on(AeroDrome::new(options), events);
            let velodrome = run_on(Velodrome::new(options), events);
            let double = run_on(DoubleChecker::new(options), events);
            let mut counts = [track.counts, aero.counts, velodrome.counts, double.counts];
            counts.iter_mut().for_each(|counts| counts.events = 0);
            (counts, aero.serializable)
        };
        prop_assert_eq!(others(&events), others(&followed));
    }
}
