//! Cycles through thousands of threads: what is done for each violation grows with the length of its witness alone, and
//! what is stored is bounded. Work that grew with the cube of the length would not end.

use checker::event::{Event, LocationId, LockId, Op, RegionId, ThreadId, VarId};
use checker::finding::{Evidence, Findings};
use checker::{Checker, Davida, Options, Velodrome};

const THREADS: u32 = 2_000;

/// Returns a trace in which the first thread closes `closing` cycles by a lock. They go through all others, each of
/// which takes over a lock and a variable from the one before. Each event has a location of its own.
fn ring(closing: u32) -> Vec<Event> {
    let mut steps = Vec::new();
    let section = |thread: u32, lock: u32| {
        [Op::Acquire(LockId(lock)), Op::Release(LockId(lock))].map(|op| (thread, op))
    };
    for thread in 0..THREADS {
        steps.push((thread, Op::Begin(RegionId(thread))));
        if let Some(before) = thread.checked_sub(1) {
            steps.extend(section(thread, before));
            steps.push((thread, Op::Read(VarId(before))));
        }
        steps.push((thread, Op::Write(VarId(thread))));
        steps.extend(section(thread, thread));
    }
    for lock in THREADS..THREADS + closing {
        steps.extend(section(THREADS - 1, lock));
    }
    for lock in THREADS..THREADS + closing {
        steps.extend(section(0, lock));
    }
    let event = |(location, (thread, op)): (u32, (u32, Op))| Event {
        thread: ThreadId(thread),
        op,
        location: LocationId(location),
    };
    (0..).zip(steps).map(event).collect()
}

fn run(mut checker: impl Checker, events: &[Event]) -> Findings {
    checker.events(events).expect("well-formed");
    checker.finish()
}

#[test]
fn violations_are_described_in_linear_time() {
    let closing = 200;
    let findings = run(Davida::new(Options::default()), &ring(closing));
    assert_eq!(findings.counts.violations, u64::from(closing));
    assert_eq!(findings.counts.unshown_violations, 0);
    for violation in &findings.violations {
        assert_eq!(violation.evidence, Evidence::Sync);
        assert_eq!(violation.edges.len(), THREADS as usize);
        let met: Vec<u32> = violation.data.met.iter().map(|variable| variable.0).collect();
        assert_eq!((met.len(), &violation.data.without[..]), (THREADS as usize - 1, &[][..]));
    }
    let [cut] = &findings.cuts[..] else { panic!("{} cuts", findings.cuts.len()) };
    assert_eq!((cut.occurrences, cut.executions), (u64::from(closing), 1));
}

#[test]
fn the_length_of_all_witnesses_is_bounded() {
    let closing = 200;
    // There is room for 8,000 dependencies.
    let options = Options::default().witnesses(500);
    let findings = run(Davida::new(options), &ring(closing));
    assert_eq!(findings.violations.len(), 3);
    let counts = findings.counts;
    assert_eq!((counts.violations, counts.unshown_violations), (200, 197));
    assert_eq!((counts.distinct_witnesses, counts.uncut_violations), (3, 0));
    // One witness is there, however long.
    let findings = run(Davida::new(options.witnesses(1)), &ring(closing));
    assert_eq!((findings.violations.len(), findings.counts.unshown_violations), (1, 199));
}

#[test]
fn other_checkers_come_to_an_end() {
    let findings = run(Velodrome::new(Options::default()), &ring(1));
    assert_eq!((findings.counts.violations, findings.serializable), (1, Some(false)));
    assert_eq!(findings.violations[0].edges.len(), THREADS as usize);
}
