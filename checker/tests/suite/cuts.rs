//! Cuts against the oracle: each closing dependency belongs to the innermost region that it violates, and the facts
//! are those of the trace.

use crate::generate::well_formed;
use crate::oracle::{Execution, Oracle};
use crate::text::{parse, run};
use checker::event::{Event, LocationId, LockId, Op, RegionId, ThreadId, VarId};
use checker::finding::{Cut, Evidence, Findings, GapEnd, Point, Violation};
use checker::{Options, Regions, Relation};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn options(regions: Regions, relation: Relation) -> Options {
    Options::default().regions(regions).relation(relation)
}

/// Checks whether the region waited within the gap of the exemplar: an event that waits depends on one of another
/// thread, or a lock was released and acquired again at one place, as by a wait for a condition.
fn check_waited(oracle: &Oracle, cut: &Cut, violation: &Violation) {
    let thread = violation.begin.thread;
    let ends = violation.edges.first().zip(violation.edges.last());
    let (first, closing) = ends.expect("edges");
    let waits = |event: &u64| {
        let at = *event as usize;
        let Event { thread: of, op, .. } = oracle.events[at];
        of == thread
            && matches!(op, Op::Wait(_) | Op::Join(_) | Op::Depart(_))
            && oracle.dependencies.keys().any(|(_, sink)| *sink == at)
    };
    let by_event = (first.source.event + 1..=closing.sink.event).any(|event| waits(&event));
    let mut locks = violation.released_locks.iter();
    let by_lock = locks.any(|lock| lock.released.location == lock.reacquired.location);
    assert_eq!(cut.waited, by_event || by_lock);
}

/// Returns the executions that a dependency violates, outermost first.
fn violated(oracle: &Oracle, relation: Relation, source: usize, sink: usize) -> Vec<&Execution> {
    let of_sink = |execution: &&Execution| {
        execution.thread == oracle.events[sink].thread
            && (execution.begin..=execution.end).contains(&sink)
            && oracle.happens_before(relation, execution.begin, source)
    };
    let mut violated: Vec<&Execution> = oracle.executions.iter().filter(of_sink).collect();
    violated.sort_by_key(|execution| execution.depth);
    violated
}

/// Checks the exemplar of a cut: it is a violation of the innermost region, in its evidence's relation.
fn check_exemplar(oracle: &Oracle, cut: &Cut, violation: &Violation, relation: Relation) {
    let (first, closing) = (&violation.edges[0], &violation.edges[violation.edges.len() - 1]);
    assert_eq!((cut.left, cut.returned), (first.source.location, closing.sink.location));
    let at = |point: &Point| point.event as usize;
    let (source, sink) = (at(&closing.source), at(&closing.sink));
    assert_eq!((source as u64, sink as u64), (violation.source_event, violation.trigger_event));
    let data = violation.evidence == Evidence::Data;
    let of_evidence = if data { Relation::Data } else { relation };
    let exact = violated(oracle, of_evidence, source, sink);
    // Otherwise others have made their accesses in one section, in the other order.
    let by_sections = data && exact.is_empty();
    let levels = if by_sections { violated(oracle, relation, source, sink) } else { exact };
    let innermost = levels.last().expect("a violated region");
    assert_eq!(innermost.begin as u64, violation.begin.event);
    assert_eq!((innermost.region, violation.region), (cut.region, cut.region));
    assert!(first.source.event > violation.begin.event);
    for edge in &violation.edges {
        assert!(oracle.is_dependency(violation, edge), "{edge:?}");
    }
    for pair in violation.edges.windows(2) {
        assert_eq!(pair[0].sink.thread, pair[1].source.thread);
        let (entered, left) = (at(&pair[0].sink), at(&pair[1].source));
        let in_one_section =
            || is_in_one_hold(oracle, left, entered) || may_rely(oracle, left, entered);
        assert!(entered <= left || by_sections && in_one_section());
    }
    if !data && relation == Relation::Full {
        assert!(
            violated(oracle, Relation::Data, source, sink).is_empty()
                || !closing_is_data(oracle, source, sink)
        );
    }
    for (end, point) in [(&cut.left_end, &first.source), (&cut.returned_end, &closing.sink)] {
        check_end(oracle, innermost, end, at(point));
    }
}

/// Returns whether a thread holds a lock from one of its events to another one.
fn is_in_one_hold(oracle: &Oracle, from: usize, to: usize) -> bool {
    let thread = oracle.events[from].thread;
    let until = held(oracle, thread, to);
    let mut kept = held(oracle, thread, from).into_iter().filter(|lock| until.contains(lock));
    let gives_up = |lock: LockId| {
        (from..to).any(|index| {
            let step = &oracle.events[index];
            let releases = [Op::Release(lock), Op::ReleaseShared(lock)].contains(&step.op);
            step.thread == thread && releases && oracle.outermost[index]
        })
    };
    kept.any(|lock| !gives_up(lock))
}

/// Returns whether a thread writes in the execution of a region in which it has read before: it may rely on the value.
fn may_rely(oracle: &Oracle, read: usize, write: usize) -> bool {
    let is_read = |event: usize| matches!(oracle.events[event].op, Op::Read(_));
    let thread = oracle.events[read].thread;
    let is_around = |execution: &Execution| {
        let all = execution.begin..=execution.end;
        execution.thread == thread && all.contains(&read) && all.contains(&write)
    };
    is_read(read) && !is_read(write) && oracle.executions.iter().any(is_around)
}

fn closing_is_data(oracle: &Oracle, source: usize, sink: usize) -> bool {
    matches!(oracle.dependencies[&(source, sink)], checker::finding::Object::Variable(_))
}

/// Checks the calls and the locks at an end of a gap, as far as they are known.
fn check_end(oracle: &Oracle, region: &Execution, end: &GapEnd, event: usize) {
    let around = |inner: &&Execution| {
        inner.thread == region.thread
            && inner.begin > region.begin
            && (inner.begin..=inner.end).contains(&event)
    };
    let mut chain: Vec<&Execution> = oracle.executions.iter().filter(around).collect();
    chain.sort_by_key(|execution| execution.begin);
    let chain: Vec<RegionId> = chain.iter().map(|execution| execution.region).collect();
    if let Some(found) = &end.chain {
        assert_eq!(found, &chain);
    }
    let resets = oracle.events.iter().any(|event| matches!(event.op, Op::Reset(_)));
    if let Some(found) = end.held.as_ref().filter(|_| !resets) {
        assert_eq!(found, &held(oracle, region.thread, event));
    }
}

/// Returns the locks that a thread holds at an event.
fn held(oracle: &Oracle, thread: ThreadId, event: usize) -> Vec<LockId> {
    let mut held: BTreeSet<LockId> = BTreeSet::new();
    for (index, step) in oracle.events.iter().enumerate().take(event + 1) {
        let own = step.thread == thread;
        match step.op {
            Op::Acquire(lock) | Op::AcquireShared(lock) if own => drop(held.insert(lock)),
            // The lock is held at its release.
            Op::Release(lock) | Op::ReleaseShared(lock)
                if own && oracle.outermost[index] && index < event =>
            {
                held.remove(&lock);
            }
            Op::Reset(lock) => drop(held.remove(&lock)),
            _ => {}
        }
    }
    held.into_iter().collect()
}

/// Checks the locks of others in the middle of the cycle.
fn check_others(oracle: &Oracle, cut: &Cut, violation: &Violation) {
    if oracle.events.iter().any(|event| matches!(event.op, Op::Reset(_))) {
        return;
    }
    let (first, closing) = (&violation.edges[0], &violation.edges[violation.edges.len() - 1]);
    let (entered, left) = (first.sink, closing.source);
    let (from, to) = (entered.event as usize, left.event as usize);
    let at_entry = held(oracle, entered.thread, from);
    if let Some(found) = &cut.others.entered {
        assert_eq!(found, &at_entry);
    }
    if let Some(found) = &cut.others.left {
        assert_eq!(found, &held(oracle, left.thread, to));
    }
    let is_one = entered.thread == left.thread;
    let (from, to) = (from.min(to), from.max(to));
    let is_released = |lock: &LockId| {
        (from..to).any(|index| {
            let step = &oracle.events[index];
            let releases = [Op::Release(*lock), Op::ReleaseShared(*lock)].contains(&step.op);
            step.thread == left.thread && releases && oracle.outermost[index]
        })
    };
    let at_first = held(oracle, left.thread, from);
    let throughout = at_first.into_iter().filter(|lock| is_one && !is_released(lock));
    if let Some(found) = &cut.others.throughout {
        assert_eq!(found, &Vec::from_iter(throughout));
    }
}

/// Returns whether an operation changes a variable, or its identity.
fn writes(op: Op, variable: VarId) -> bool {
    match op {
        Op::Write(v) | Op::Update(v) | Op::CommutingUpdate(v) | Op::Alloc(v) | Op::Free(v) => {
            v == variable
        }
        Op::SplitVariable { from, to } => [from, to].contains(&variable),
        _ => false,
    }
}

/// Checks that the write of an update follows a read at the end of the gap, and that of the exemplar is not missed.
fn check_update(events: &[Event], cut: &Cut, violation: &Violation) {
    let update = |index: usize| {
        let read = &events[index];
        let Op::Read(variable) = read.op else { return None };
        let passes = |op: Op| match op {
            Op::Read(_) | Op::Follow(_) => true,
            Op::Write(other) | Op::Update(other) | Op::CommutingUpdate(other) => other != variable,
            _ => false,
        };
        let is_own = |event: &Event| event.thread == read.thread;
        let later = &events[index + 1..];
        let next = later.iter().position(|next| is_own(next) && !passes(next.op))?;
        // If it has read the result of others, that read is the first half.
        let again = later[..next].iter().rposition(|e| is_own(e) && e.op == read.op).unwrap_or(0);
        let is_change = |event: &Event| !is_own(event) && writes(event.op, variable);
        // Then the write is to another variable.
        let replaces = |event: &Event| match event.op {
            Op::Alloc(v) => v == variable,
            Op::SplitVariable { from, to } => [from, to].contains(&variable),
            _ => false,
        };
        let is_half = !later[..again].iter().any(is_change) && !later[..next].iter().any(replaces);
        let next = is_half.then_some(&later[next])?;
        (next.op == Op::Write(variable)).then_some(next.location)
    };
    let returned = (0..events.len()).filter(|&index| events[index].location == cut.returned);
    let found: Vec<LocationId> = returned.filter_map(update).collect();
    assert!(cut.updated_at.is_none_or(|location| found.contains(&location)));
    if violation.evidence == Evidence::Data {
        let shown = update(violation.trigger_event as usize);
        assert_eq!(cut.updated_at.or(shown), cut.updated_at);
    }
}

/// Returns the distinct executions of each cut's region that some closing dependency violates as their innermost one.
fn executions(oracle: &Oracle, relation: Relation) -> BTreeMap<RegionId, BTreeSet<usize>> {
    let mut cut: BTreeMap<RegionId, BTreeSet<usize>> = BTreeMap::new();
    for &(source, sink) in oracle.dependencies.keys() {
        let data = closing_is_data(oracle, source, sink);
        let in_data =
            if data { violated(oracle, Relation::Data, source, sink) } else { Vec::new() };
        let of_relation = if data || relation == Relation::Full {
            violated(oracle, relation, source, sink)
        } else {
            Vec::new()
        };
        if let Some(innermost) = in_data.last().or(of_relation.last()) {
            cut.entry(innermost.region).or_default().insert(innermost.begin);
        }
    }
    cut
}

fn check_sums(findings: &Findings) {
    let occurrences: u64 = findings.cuts.iter().map(|cut| cut.occurrences).sum();
    let counts = findings.counts;
    assert_eq!(occurrences + counts.uncut_violations, counts.violations);
    let mut numbers: Vec<usize> =
        findings.cuts.iter().flat_map(|cut| cut.violations.clone()).collect();
    let known = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), known, "a violation belongs to two cuts");
    if counts.uncut_violations == 0 {
        assert_eq!(numbers, Vec::from_iter(0..findings.violations.len()));
    }
}

proptest! {
    #[test]
    fn each_violation_belongs_to_the_innermost_region(events in well_formed(160)) {
        let oracle = Oracle::new(&events);
        for relation in [Relation::Full, Relation::Data] {
            for regions in [Regions::Outermost, Regions::All] {
                let findings = run(&events, options(regions, relation));
                check_sums(&findings);
                for cut in &findings.cuts {
                    let violation = findings.violation(cut.exemplar).expect("an exemplar");
                    check_exemplar(&oracle, cut, violation, relation);
                    check_others(&oracle, cut, violation);
                    check_update(&events, cut, violation);
                    check_waited(&oracle, cut, violation);
                    prop_assert!(cut.executions >= 1 && cut.ways >= 1);
                }
                // Each location is in one execution only: the cuts of a region cut each of its executions at least
                // once.
                let expected = executions(&oracle, relation);
                let regions: BTreeSet<RegionId> = findings.cuts.iter().map(|cut| cut.region).collect();
                prop_assert_eq!(regions, BTreeSet::from_iter(expected.keys().copied()));
                let begins = oracle.executions.iter().fold(BTreeMap::new(), |mut begins, execution| {
                    *begins.entry(execution.region.index()).or_insert(0) += 1_u64;
                    begins
                });
                for (region, &count) in findings.executions.iter().enumerate() {
                    prop_assert_eq!(count, begins.get(&region).copied().unwrap_or(0));
                }
            }
        }
    }

    /// Few locations, as in programs: the same sums, and executions are counted once each.
    #[test]
    fn cuts_count_executions_once(events in well_formed(160), locations in 1..6_u32) {
        let mut events = events;
        for event in &mut events {
            event.location = LocationId(event.location.0 % locations);
        }
        let oracle = Oracle::new(&events);
        let findings = run(&events, options(Regions::Outermost, Relation::Full));
        check_sums(&findings);
        let expected = executions(&oracle, Relation::Full);
        for cut in &findings.cuts {
            prop_assert!(cut.executions <= expected[&cut.region].len() as u64);
        }
    }

    #[test]
    fn the_limit_of_cuts_only_moves_violations(events in well_formed(160), limit in 0..4_usize) {
        let unlimited = run(&events, Options::default());
        let findings = run(&events, Options::default().cuts(limit));
        check_sums(&findings);
        prop_assert!(findings.cuts.len() <= limit);
        prop_assert_eq!(&findings.violations, &unlimited.violations);
        prop_assert_eq!(findings.executions, unlimited.executions);
    }
}

/// The thread that is joined has ended, and cannot be on a cycle any more.
#[test]
fn a_region_has_waited_also_for_a_thread_that_is_forgotten() {
    let text = "t0 begin(r); t0 w(x); t2 r(y); t2 exit; t0 join(t2); t3 w(x); t0 w(x); t0 end";
    let findings = run(&parse(text).0, Options::default());
    assert_eq!(findings.cuts.iter().map(|cut| cut.waited).collect::<Vec<_>>(), [true]);
}

/// Returns the transactions in the exemplar's witness of the only cut of `r`.
fn witness(text: &str) -> String {
    let (events, names) = parse(text);
    let findings = run(&events, Options::default());
    let cuts: Vec<&Cut> =
        findings.cuts.iter().filter(|cut| names.region(cut.region) == "r").collect();
    assert_eq!(cuts.len(), 1, "{findings:#?}");
    let violation = findings.violation(cuts[0].exemplar).expect("an exemplar");
    violation.witness.iter().map(|&tx| names.tx(tx)).collect::<Vec<_>>().join(" ")
}

/// The auditor sees half of the transfer, though the access of another thread came before its own.
#[test]
fn an_exemplar_is_the_direct_cycle_that_a_longer_one_stands_for() {
    let audit = "t2 begin(audit); t2 r(x); t2 r(y); t2 end";
    let transfer = |between: &str| {
        format!("t0 begin(r); t0 w(x); {between}; t1 w(x); {audit}; t0 w(y); t0 end")
    };
    let direct = "r audit r";
    assert_eq!(witness(&transfer("t1 r(z)")), direct);
    // The other order, and a thread that comes last.
    let text = format!("t0 begin(r); t0 w(x); {audit}; t1 w(y); t0 w(y); t0 end");
    assert_eq!(witness(&text), direct);
    // A variable that is another one since then is no part of the cycle.
    assert_eq!(witness(&transfer("t1 r(x); t1 alloc(x)")), "r t1 t1 audit r");
}

/// Executions of a region that are cut by different writers each time: as many witnesses as there are executions.
/// One way is the other one, and then a transaction of the first region at the first location: both have number 0.
#[test]
fn ways_differ_by_transactions_whose_numbers_are_zeros() {
    let [violated, first, second] = [9, 0, 3].map(RegionId);
    let [x, y, z] = [0, 1, 2].map(VarId);
    let event = |thread, op, at| Event { thread: ThreadId(thread), op, location: LocationId(at) };
    let one = |thread, region, at, ops: [Op; 2]| {
        [Op::Begin(region), ops[0], ops[1], Op::End(None)].map(|op| event(thread, op, at))
    };
    let mut events = vec![event(0, Op::Begin(violated), 8), event(0, Op::Read(x), 5)];
    events.extend(one(2, second, 7, [Op::Write(x), Op::Write(z)]));
    events.extend([event(0, Op::Write(z), 6), event(0, Op::End(None), 8)]);
    events.extend([event(0, Op::Begin(violated), 8), event(0, Op::Read(x), 5)]);
    events.extend(one(2, second, 7, [Op::Write(x), Op::Write(y)]));
    events.extend(one(1, first, 0, [Op::Read(y), Op::Write(z)]));
    events.extend([event(0, Op::Write(z), 6), event(0, Op::End(None), 8)]);
    let findings = run(&events, Options::default());
    let cut = |cut: &&Cut| (cut.region, cut.left.0, cut.returned.0) == (violated, 5, 6);
    let found: Vec<&Cut> = findings.cuts.iter().filter(cut).collect();
    assert_eq!(found.len(), 1, "{findings:#?}");
    assert_eq!((found[0].executions, found[0].ways), (2, 2), "{findings:#?}");
}

fn many_ways(count: u32) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |thread: u32, op: Op, location: u32| {
        let thread = checker::event::ThreadId(thread);
        events.push(Event { thread, op, location: LocationId(location) });
    };
    for index in 0..count {
        add(0, Op::Begin(RegionId(0)), 0);
        add(0, Op::Read(VarId(0)), 1);
        add(1, Op::Write(VarId(0)), 10 + index);
        add(0, Op::Write(VarId(0)), 2);
        add(0, Op::End(None), 3);
    }
    events
}

#[test]
fn memory_of_cuts_does_not_grow_with_the_witnesses() {
    let options = Options::default().witnesses(100);
    let findings = run(&many_ways(50_000), options);
    assert_eq!((findings.counts.violations, findings.violations.len()), (50_000, 100));
    assert_eq!(findings.cuts.len(), 1);
    let cut = &findings.cuts[0];
    assert_eq!((cut.occurrences, cut.executions, cut.ways), (50_000, 50_000, Cut::MAX_WAYS));
    assert_eq!(cut.violations.len(), 100);
    assert_eq!(findings.exemplars, []);
}

#[test]
fn memory_of_cuts_does_not_grow_with_the_gaps() {
    let mut events = many_ways(5_000);
    for (index, event) in events.iter_mut().enumerate() {
        event.location = LocationId(index as u32);
    }
    let findings = run(&events, Options::default().witnesses(100).cuts(50));
    assert_eq!((findings.cuts.len(), findings.counts.uncut_violations), (50, 4_950));
    assert!(findings.violations.len() + findings.exemplars.len() <= 150);
}
