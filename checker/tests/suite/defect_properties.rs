//! Properties of defects over random traces: they partition the findings, and depend on no id.

use crate::generate::well_formed;
use crate::random::Random;
use crate::text::run;
use checker::defect::{
    Defect, Describe, Origin, PlaceInfo, RegionInfo, RegionRole, SubjectInfo, defects,
};
use checker::event::{
    Event, EventNumber, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId,
};
use checker::finding::{Findings, Object};
use checker::{Options, Regions};
use proptest::prelude::*;

/// Renumbering of each sort of id, its own inverse: ids of a block of four trade places.
#[derive(Clone, Copy, Debug)]
struct Renumbering(u32);

impl Renumbering {
    fn of(self, id: u32) -> u32 {
        id ^ self.0
    }

    fn event(self, event: &Event) -> Event {
        let variable = |id: VarId| VarId(self.of(id.0));
        let lock = |id: LockId| LockId(self.of(id.0));
        let thread = |id: ThreadId| ThreadId(self.of(id.0));
        let sync = |id: SyncId| SyncId(self.of(id.0));
        let region = |id: RegionId| RegionId(self.of(id.0));
        let op = match event.op {
            Op::Begin(id) => Op::Begin(region(id)),
            Op::End(id) => Op::End(id.map(region)),
            Op::Read(id) => Op::Read(variable(id)),
            Op::Write(id) => Op::Write(variable(id)),
            Op::Update(id) => Op::Update(variable(id)),
            Op::CommutingUpdate(id) => Op::CommutingUpdate(variable(id)),
            Op::Acquire(id) => Op::Acquire(lock(id)),
            Op::Release(id) => Op::Release(lock(id)),
            Op::AcquireShared(id) => Op::AcquireShared(lock(id)),
            Op::ReleaseShared(id) => Op::ReleaseShared(lock(id)),
            Op::Reset(id) => Op::Reset(lock(id)),
            Op::Fork(id) => Op::Fork(thread(id)),
            Op::Join(id) => Op::Join(thread(id)),
            Op::Signal(id) => Op::Signal(sync(id)),
            Op::Wait(id) => Op::Wait(sync(id)),
            Op::Arrive(id) => Op::Arrive(sync(id)),
            Op::Depart(id) => Op::Depart(sync(id)),
            Op::Alloc(id) => Op::Alloc(variable(id)),
            Op::Free(id) => Op::Free(variable(id)),
            Op::SplitVariable { from, to } => {
                Op::SplitVariable { from: variable(from), to: variable(to) }
            }
            Op::Rest(id) => Op::Rest(region(id)),
            Op::Resume(id) => Op::Resume(region(id)),
            op => op,
        };
        let location = LocationId(self.of(event.location.0));
        Event { thread: thread(event.thread), op, location }
    }
}

/// Names by ids before they were renumbered. Few, so that things of the same name meet.
struct Few {
    renumbering: Renumbering,
    /// Number added to all lines.
    moved: u32,
}

impl Describe for Few {
    fn region(&mut self, region: RegionId) -> RegionInfo {
        let id = self.renumbering.of(region.0);
        let role =
            [RegionRole::Function, RegionRole::ThreadBody, RegionRole::Named][id as usize % 3];
        RegionInfo { name: format!("region {}", id % 2), origin: Origin::Own, role }
    }

    fn place(&mut self, location: LocationId) -> PlaceInfo {
        let line = self.renumbering.of(location.0) % 12;
        PlaceInfo {
            file: Some("a.c".to_owned()),
            line: Some(line + self.moved),
            text: format!("text {}", line % 8),
            function: Some(format!("function {}", line % 3)),
            ..PlaceInfo::default()
        }
    }

    fn subject(&mut self, object: Object) -> SubjectInfo {
        let name = match object {
            Object::Variable(id) => format!("variable {}", self.renumbering.of(id.0) % 3),
            Object::Lock(id) => format!("lock {}", self.renumbering.of(id.0) % 2),
            Object::Sync(id) => format!("sync {}", self.renumbering.of(id.0)),
            _ => "thread".to_owned(),
        };
        SubjectInfo {
            is_set_of_waiters: name == "variable 1",
            is_lock_word: name == "variable 2",
            name,
            container: None,
        }
    }

    fn changed_value(&mut self, event: EventNumber) -> Option<bool> {
        [None, Some(true), Some(false)][event as usize % 3]
    }
}

/// Makes locations recur, as in a program.
fn with_few_locations(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        event.location.0 %= 16;
    }
    events
}

/// Returns everything about defects that has no id.
fn readable(found: &[Defect], names: &mut Few) -> Vec<String> {
    let line = |defect: &Defect| {
        let region = names.region(defect.region).name;
        let outer: Vec<_> = defect.outer_regions.iter().map(|&id| names.region(id).name).collect();
        let mut of = |objects: &[Object]| -> Vec<_> {
            objects.iter().map(|&object| names.subject(object).name).collect()
        };
        let (objects, others) = (of(&defect.objects), of(&defect.other_objects));
        let Defect { fingerprint, class, pattern, evidence, order, gap, reasons, .. } = defect;
        let Defect { runs, cut_runs, occurrences, ways, transactions, violations, .. } = defect;
        format!(
            "{fingerprint:x} {class:?} {region} {outer:?} {pattern:?} {objects:?} {others:?} {evidence:?} {order:?}
             {:?} {reasons:?} {runs} {cut_runs} {occurrences} {ways} {transactions} {}",
            gap.kind, violations.len()
        )
    };
    found.iter().map(line).collect()
}

fn found(findings: &Findings, renumbering: Renumbering, moved: u32) -> Vec<String> {
    let mut names = Few { renumbering, moved };
    let found = defects(findings, &mut names);
    readable(&found, &mut names)
}

const AS_IT_IS: Renumbering = Renumbering(0);

/// Checks that each violation and each exemplar belongs to exactly one defect.
fn check_partition(findings: &Findings) {
    let found = defects(findings, &mut Few { renumbering: AS_IT_IS, moved: 0 });
    let mut numbers: Vec<usize> =
        found.iter().flat_map(|defect| defect.violations.clone()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(0..findings.violations.len() + findings.exemplars.len()));
    if findings.counts.uncut_violations == 0 {
        let occurrences: u64 = found.iter().map(|defect| defect.occurrences).sum();
        assert_eq!(occurrences, findings.counts.violations);
    }
    for defect in &found {
        assert!(defect.cut_runs <= defect.runs && defect.ways > 0);
        let shown = findings.violation(defect.violations[0]).expect("a violation");
        assert_eq!((shown.region, shown.evidence), (defect.region, defect.evidence));
        assert_eq!(shown.edges[0].source, defect.gap.left);
    }
    let mut fingerprints: Vec<u64> = found.iter().map(|defect| defect.fingerprint).collect();
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), found.len());
    assert!(found.is_sorted_by_key(|defect| defect.class));
}

proptest! {
    #[test]
    fn defects_partition_the_findings(events in well_formed(200), cuts in prop_oneof![Just(0), 1..4_usize, Just(1000)]) {
        for events in [events.clone(), with_few_locations(events)] {
            for regions in [Regions::Outermost, Regions::All] {
                check_partition(&run(&events, Options::default().regions(regions).cuts(cuts)));
            }
        }
    }

    #[test]
    fn defects_do_not_depend_on_ids(events in well_formed(200), mask in 1..64_u32) {
        let events = with_few_locations(events);
        let renumbering = Renumbering(mask);
        let renumbered: Vec<Event> = events.iter().map(|event| renumbering.event(event)).collect();
        let (plain, other) =
            (run(&events, Options::default()), run(&renumbered, Options::default()));
        prop_assert_eq!(found(&plain, AS_IT_IS, 0), found(&other, renumbering, 0));
    }

    #[test]
    fn defects_do_not_depend_on_the_order_of_the_facts(events in well_formed(200), seed in any::<u64>()) {
        let findings = run(&with_few_locations(events), Options::default());
        let expected = found(&findings, AS_IT_IS, 0);
        let mut shuffled = findings;
        let mut random = Random::new(seed);
        for last in (1..shuffled.cuts.len()).rev() {
            shuffled.cuts.swap(last, random.below(last + 1));
        }
        for cut in &mut shuffled.cuts {
            cut.violations.reverse();
            cut.outer_regions.reverse();
        }
        prop_assert_eq!(found(&shuffled, AS_IT_IS, 0).len(), expected.len());
        let without_outer = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().map(|line| line.split('[').next().unwrap_or("").to_owned()).collect()
        };
        prop_assert_eq!(without_outer(found(&shuffled, AS_IT_IS, 0)), without_outer(expected));
    }

    #[test]
    fn fingerprints_do_not_depend_on_line_numbers(events in well_formed(200)) {
        let findings = run(&with_few_locations(events), Options::default());
        let (plain, moved) = (found(&findings, AS_IT_IS, 0), found(&findings, AS_IT_IS, 10));
        let fingerprints = |lines: &[String]| -> Vec<String> {
            lines.iter().map(|line| line.split(' ').next().unwrap_or("").to_owned()).collect()
        };
        prop_assert_eq!(fingerprints(&plain), fingerprints(&moved));
    }
}
