//! Deferred accesses change nothing: with a source that defers accesses of threads to variables that no
//! other thread accesses, by the rules of `DeferredChecker::insert_deferred_access`, the same violations are found
//! in the same transactions.

use crate::generate::{long_ways, well_formed};
use checker::event::{Event, EventNumber, LocationId, LockId, Op, RegionId, ThreadId, VarId};
use checker::finding::{Cut, Evidence, Findings, Instance, OtherLocks, Violation};
use checker::{Checker, Davida, DeferredChecker, Options, Regions, Relation, Timestamp};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A variable that one thread owns: its reported events, and the accesses deferred since.
#[derive(Default)]
struct Owned {
    thread: Option<ThreadId>,
    /// Set if the thread has reported a read or a write, and not only commuting updates.
    read_or_written: bool,
    written: bool,
    write: Option<(Timestamp, LocationId)>,
    read: Option<(Timestamp, LocationId)>,
}

/// A source that defers events. If `coarse`, timestamps are those of the last event that another event can
/// depend on, in another thread or by a region of this one.
struct Source {
    davida: Davida,
    owned: BTreeMap<VarId, Owned>,
    /// Numbers in the whole trace of the events that are passed on.
    numbers: Vec<EventNumber>,
    coarse: bool,
    timestamps: BTreeMap<ThreadId, Timestamp>,
    /// Points at which accesses were inserted.
    inserted: BTreeSet<(ThreadId, EventNumber)>,
    /// Several accesses were inserted at one point: which of them came first is known no more.
    has_ties: bool,
}

impl Source {
    fn pass_on(&mut self, number: usize, event: &Event) {
        self.davida.event(event).expect("well-formed");
        self.numbers.push(number as EventNumber);
        let follows_nothing = matches!(
            event.op,
            Op::End(_) | Op::Release(_) | Op::ReleaseShared(_) | Op::Signal(_) | Op::Fork(_)
        );
        let is_first = !self.timestamps.contains_key(&event.thread);
        if let Some(timestamp) = self.davida.timestamp(event.thread)
            && (is_first || !self.coarse || !follows_nothing)
        {
            self.timestamps.insert(event.thread, timestamp);
        }
    }

    fn insert_deferred(&mut self, variable: VarId) {
        let Some(owned) = self.owned.remove(&variable) else { return };
        let accesses = [(owned.write, true), (owned.read, false)];
        for (access, writes) in accesses {
            let (Some((timestamp, location)), Some(thread)) = (access, owned.thread) else {
                continue;
            };
            self.has_ties |= !self.inserted.insert((thread, timestamp.event()));
            self.davida.insert_deferred_access(&timestamp, variable, writes, location);
        }
    }

    fn access(&mut self, number: usize, event: &Event, variable: VarId, writes: bool) {
        let thread = event.thread;
        let timestamp = self.timestamps.get(&thread).copied();
        let owned = self.owned.entry(variable).or_default();
        let is_own = owned.thread == Some(thread);
        if is_own && (owned.written || !writes && owned.read_or_written) {
            let now = timestamp.expect("it has accessed the variable");
            if writes {
                (owned.write, owned.read) = (Some((now, event.location)), None);
            } else {
                owned.read = Some((now, event.location));
            }
            return;
        }
        if is_own {
            owned.read_or_written = true;
            owned.written |= writes;
        } else {
            self.insert_deferred(variable);
            let owned = Owned {
                thread: Some(thread),
                read_or_written: true,
                written: writes,
                ..Owned::default()
            };
            self.owned.insert(variable, owned);
        }
        self.pass_on(number, event);
    }

    /// A commuting update or a free is never deferred.
    fn undeferred(&mut self, number: usize, event: &Event, variable: VarId) {
        if self.owned.get(&variable).is_some_and(|owned| owned.thread != Some(event.thread)) {
            self.insert_deferred(variable);
        }
        let owned = self.owned.entry(variable).or_default();
        owned.thread = Some(event.thread);
        self.pass_on(number, event);
    }

    fn event(&mut self, number: usize, event: &Event) {
        match event.op {
            Op::Read(variable) => self.access(number, event, variable, false),
            Op::Write(variable) | Op::Update(variable) => {
                self.access(number, event, variable, true);
            }
            Op::CommutingUpdate(variable) | Op::Free(variable) => {
                self.undeferred(number, event, variable);
            }
            Op::Alloc(variable) => {
                self.owned.remove(&variable);
                self.pass_on(number, event);
            }
            Op::SplitVariable { from, to } => {
                self.insert_deferred(from);
                self.owned.remove(&to);
                self.pass_on(number, event);
            }
            _ => self.pass_on(number, event),
        }
    }
}

/// Results that must agree: the begins of the violated regions, in the numbers of the whole trace; the
/// trace-level verdict; and the evidence of the violations of each region.
type Found = (BTreeSet<EventNumber>, Option<bool>, BTreeSet<(RegionId, Evidence)>);

fn found(findings: &Findings, number: impl Fn(EventNumber) -> EventNumber) -> Found {
    let begin = |instance: &Instance| number(instance.begin_event);
    let rests_on = |violation: &Violation| (violation.region, violation.evidence);
    (
        findings.instances.iter().map(begin).collect(),
        findings.serializable,
        findings.violations.iter().map(rests_on).collect(),
    )
}

/// Facts of cuts that must agree, in the order of their regions and places.
fn cuts(findings: &Findings) -> Vec<Cut> {
    let facts = |cut: &Cut| {
        let mut cut = cut.clone();
        (cut.exemplar, cut.violations) = (0, Vec::new());
        // They are of the exemplar, which may be any of equally clear violations.
        cut.others = OtherLocks::default();
        cut
    };
    let mut cuts: Vec<Cut> = findings.cuts.iter().map(facts).collect();
    cuts.sort_by_key(|cut| (cut.region, cut.left, cut.returned));
    cuts
}

fn check(events: &[Event], options: Options, coarse: bool) {
    let mut whole = Davida::new(options);
    whole.events(events).expect("well-formed");
    let mut source = Source {
        davida: Davida::new(options),
        owned: BTreeMap::new(),
        numbers: Vec::new(),
        coarse,
        timestamps: BTreeMap::new(),
        inserted: BTreeSet::new(),
        has_ties: false,
    };
    for (number, event) in events.iter().enumerate() {
        source.event(number, event);
    }
    let Source { mut davida, numbers, has_ties, .. } = source;
    let (deferred, expected) = (davida.finish(), whole.finish());
    assert_eq!(found(&deferred, |event| numbers[event as usize]), found(&expected, |event| event));
    if !coarse && !has_ties {
        let (mut deferred, expected) = (cuts(&deferred), cuts(&expected));
        // Of writes that nobody else has seen it is not known.
        for (cut, expected) in deferred.iter_mut().zip(&expected) {
            cut.section_writes |= expected.section_writes;
        }
        assert_eq!(deferred, expected);
    }
}

/// The first write after a read that closes a cycle is one of a variable that others use: writes of a variable that the
/// thread owns are deferred.
#[test]
fn a_write_that_may_be_deferred_is_not_what_follows_a_read() {
    let (own, other) = (ThreadId(0), ThreadId(1));
    let (shared, owned) = (VarId(0), VarId(1));
    let operations = [
        (own, Op::Begin(RegionId(0))),
        (own, Op::Read(shared)),
        (own, Op::Write(owned)),
        (other, Op::Write(shared)),
        (own, Op::Read(shared)),
        (own, Op::Write(owned)),
        (own, Op::CommutingUpdate(owned)),
        (own, Op::Write(owned)),
        (own, Op::Write(shared)),
    ];
    let events: Vec<Event> = (0..)
        .zip(operations)
        .map(|(place, (thread, op))| Event { thread, op, location: LocationId(place) })
        .collect();
    check(&events, Options::default().instances(true), false);
    let mut davida = Davida::new(Options::default());
    davida.events(&events).expect("well-formed");
    let findings = davida.finish();
    assert_eq!(findings.cuts[0].written_at, Some(LocationId(8)));
}

/// A write in a critical section that has ended is one of the section, also if it was deferred.
#[test]
fn a_section_has_written_what_was_deferred() {
    let (own, other) = (ThreadId(0), ThreadId(1));
    let (lock, variable) = (LockId(0), VarId(0));
    let mut davida = Davida::new(Options::default());
    let mut place = 0..;
    let mut event = |davida: &mut Davida, thread, op| {
        let location = LocationId(place.next().expect("a place"));
        davida.event(&Event { thread, op, location }).expect("well-formed");
    };
    event(&mut davida, own, Op::Begin(RegionId(0)));
    event(&mut davida, own, Op::Update(variable));
    event(&mut davida, own, Op::Acquire(lock));
    let deferred = davida.timestamp(own).expect("it runs");
    event(&mut davida, own, Op::Release(lock));
    davida.insert_deferred_access(&deferred, variable, true, LocationId(9));
    event(&mut davida, other, Op::Write(variable));
    event(&mut davida, own, Op::Read(variable));
    let cuts = davida.finish().cuts;
    assert!(cuts[0].section_writes, "{cuts:#?}");
}

proptest! {
    #[test]
    fn accesses_that_are_told_late_lose_no_violation(
        events in well_formed(80),
        all in any::<bool>(),
        data in any::<bool>(),
        coarse in any::<bool>(),
    ) {
        let regions = if all { Regions::All } else { Regions::Outermost };
        let relation = if data { Relation::Data } else { Relation::Full };
        check(&events, Options::default().regions(regions).relation(relation).instances(true), coarse);
    }

    #[test]
    fn nor_on_long_ways(events in long_ways(80), coarse in any::<bool>()) {
        check(&events, Options::default().instances(true), coarse);
    }
}
