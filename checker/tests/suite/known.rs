//! Known answers (`docs/semantics.md#known-answers`), and the order that each operation must and must not
//! impose.

use crate::text::{check, check_cycle, check_with, parse, run};
use checker::finding::{Action, Findings, Object, Order};
use checker::{Checker, Davida, EventErrorKind, Options, Regions, Relation};

#[test]
fn davida_figure_2() {
    check(
        "t3 begin(m3); t3 end; t4 begin(m4); t2 begin(m2)
         t4 w(a); t2 r(a); t2 w(b); t2 end; t2 begin(m6); t3 begin(m5)
         t2 w(c); t3 r(c); t1 begin(m1); t1 w(d); t3 w(b); t2 w(d); t3 r(d); t3 w(e)
         t4 r(b); t1 r(e)",
        &["data: m4 m2 m6 m5 m4", "data: m1 m6 m5 m1"],
    );
}

#[test]
fn aerodrome_rho_1() {
    check_cycle(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 end
         t3 begin(c); t3 w(z); t3 end; t1 r(z); t1 end",
        "",
    );
}

#[test]
fn aerodrome_rho_2() {
    let findings = check(
        "t1 begin(a); t2 begin(b); t1 w(x); t2 r(x); t2 w(y); t2 end; t1 r(y); t1 end",
        &["data: a b a"],
    );
    assert_eq!((findings.serializable, findings.cycle), (Some(false), None));
}

#[test]
fn aerodrome_rho_3() {
    check_cycle(
        "t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 r(y); t2 r(x); t1 end; t2 end",
        "b a b",
    );
}

#[test]
fn aerodrome_rho_4() {
    check_cycle(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 w(y); t2 end
         t3 begin(c); t3 w(z); t3 r(y); t3 end; t1 r(z); t1 end",
        "a b c a",
    );
}

#[test]
fn a_cycle_through_a_thread_that_has_ended() {
    check_cycle(
        "t3 begin(j); t3 w(z); t2 r(z); t2 w(q); t1 begin(m); t1 w(y); t3 r(y); t3 end; t2 exit
         t1 r(q); t1 end",
        "m j t2 t2 m",
    );
}

#[test]
fn a_cycle_of_nested_regions_is_one_of_outermost_ones() {
    let (events, _) = parse(
        "t1 begin(a); t1 w(p); t1 begin(i); t1 w(x); t1 end; t2 begin(b); t2 w(y); t1 begin(i); t1 r(y)
         t1 end; t2 r(x)",
    );
    let findings = crate::text::run(&events, Options::default().regions(Regions::All));
    assert!(findings.violations.is_empty());
    let cycle = findings.cycle.expect("not serializable");
    let begins: Vec<u64> = cycle.iter().map(|tx| tx.begin_event).collect();
    assert_eq!(begins, [5, 0, 5]);
}

#[test]
fn order_inherited_through_an_earlier_transaction() {
    check(
        "t1 begin(m); t1 w(a); t2 begin(p); t2 r(a); t2 end; t2 begin(q); t2 w(b); t2 end
         t1 r(b); t1 end",
        &["data: m p q m"],
    );
}

#[test]
fn lost_update() {
    check("t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end", &["data: m t2 m"]);
}

#[test]
fn a_read_does_not_hide_a_later_write_write_dependency() {
    check("t3 r(x); t1 r(x); t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end", &["data: m t2 m"]);
}

#[test]
fn a_region_that_calls_itself() {
    let trace = "t1 begin(m); t1 begin(m); t1 w(x); t2 w(x); t1 w(x); t1 end; t2 w(x)
                 t1 r(x); t1 end; t1 r(x)";
    check(trace, &["data: m t2 m", "data: m t2 t2 m"]);
    let all = Options::default().regions(Regions::All);
    check_with(trace, all, &["data: m t2 m", "data: m t2 m", "data: m t2 t2 m"]);
}

#[test]
fn an_inner_region_can_be_atomic_where_the_outer_is_not() {
    let all = Options::default().regions(Regions::All);
    let findings = check_with(
        "t1 begin(out); t1 w(x); t2 w(x); t1 begin(in); t1 r(x); t1 end; t1 end",
        all,
        &["data: out t2 out"],
    );
    assert_eq!(findings.counts.violating_transactions, 1);
}

#[test]
fn events_between_transactions_belong_to_none() {
    let trace = "t1 begin(m); t1 r(x); t1 end; t2 w(x); t1 w(x); t1 begin(m); t1 r(x); t1 end";
    let findings = check(trace, &[]);
    assert_eq!(findings.counts.transactions, 4);
    assert_eq!(findings.counts.unary_transactions, 2);
}

/// t3's region has reached t1 before, so that only t1's begin itself shows that its write is not in its
/// region.
#[test]
fn what_a_thread_did_before_its_region_is_not_the_region_s() {
    check(
        "t3 begin(n); t3 w(z); t1 r(z); t1 w(x); t1 begin(m); t2 r(x); t2 w(y); t1 r(y); t1 end
         t3 end",
        &[],
    );
    check(
        "t3 begin(n); t3 w(z); t1 r(z); t1 begin(m); t1 w(x); t2 r(x); t2 w(y); t1 r(y); t1 end
         t3 end",
        &["data: m t2 t2 m"],
    );
}

#[test]
fn more_threads_than_a_word_has_bits() {
    let count = 200;
    let mut trace = String::new();
    for thread in 0..count {
        trace += &format!("t{thread} begin(m{thread}); t{thread} w(x{thread});");
    }
    for thread in 1..count {
        trace += &format!("t{thread} r(x{});", thread - 1);
    }
    trace += &format!("t{0} w(y); t0 r(y); t0 end", count - 1);
    let path: Vec<String> = (0..count).map(|thread| format!("m{thread}")).collect();
    // Thread 1 reads before thread 2 does, but its write was earlier: only the last step closes a cycle.
    let findings = check(&trace, &[]);
    assert_eq!(findings.counts.threads, count);

    let mut trace = String::new();
    for thread in 0..count {
        trace += &format!("t{thread} begin(m{thread});");
    }
    for thread in 1..count {
        trace += &format!("t{} w(x{thread}); t{thread} r(x{thread});", thread - 1);
    }
    trace += &format!("t{0} w(y); t0 r(y); t0 end", count - 1);
    check(&trace, &[&format!("data: {} m0", path.join(" "))]);
}

#[test]
fn a_split_critical_section() {
    let findings = check(
        "t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l); t2 acq(l); t2 r(x); t2 rel(l)
         t1 acq(l); t1 r(x); t1 rel(l); t1 end",
        &["sync: m t2 t2 m"],
    );
    let violation = &findings.violations[0];
    assert_eq!(violation.released_locks.len(), 1);
    assert_eq!(violation.released_locks[0].released.event, 3);
    assert_eq!(violation.released_locks[0].reacquired.event, 7);
    assert_eq!(violation.order, Order::Synchronised);
    assert_eq!(violation.begin.event, 0);
}

#[test]
fn data_evidence_comes_first() {
    let findings = check(
        "t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l); t2 acq(l); t2 w(x); t2 rel(l)
         t1 acq(l); t1 w(x); t1 rel(l); t1 end",
        &["data: m t2 m", "sync: m t2 t2 m"],
    );
    assert_eq!(findings.violations[0].order, Order::Synchronised);
    let objects: Vec<Object> =
        findings.violations[0].edges.iter().map(|edge| edge.object).collect();
    assert!(objects.iter().all(|object| matches!(object, Object::Variable(_))));
}

#[test]
fn commuting_updates_do_not_conflict_with_one_another() {
    check("t1 begin(m); t1 add(x); t2 add(x); t1 add(x); t1 end", &[]);
    check("t1 begin(m); t1 add(x); t2 u(x); t1 add(x); t1 end", &["data: m t2 m"]);
    check("t1 begin(m); t1 r(x); t2 add(x); t1 w(x); t1 end", &["data: m t2 m"]);
    // Somebody has seen the count in between.
    check("t1 begin(m); t1 add(x); t2 r(x); t1 add(x); t1 end", &["data: m t2 m"]);
    check("t1 begin(m); t1 r(x); t2 add(x); t1 r(x); t1 end", &["data: m t2 m"]);
}

#[test]
fn reads_and_commuting_updates_form_layers() {
    let dependencies = |trace: &str| {
        let (events, _) = parse(trace);
        run(&events, Options::default()).counts.dependencies
    };
    assert_eq!(dependencies("t1 w(x); t2 add(x); t3 add(x)"), 2, "each on the write");
    assert_eq!(dependencies("t1 w(x); t2 add(x); t2 add(x)"), 1, "the first alone");
    assert_eq!(dependencies("t1 add(x); t2 r(x); t3 add(x); t4 r(x)"), 4, "the last on both");
    assert_eq!(dependencies("t1 add(x); t2 r(x); t3 add(x); t2 r(x)"), 3, "on what is new");
    assert_eq!(dependencies("t1 add(x); t2 r(x); t3 add(x); t4 w(x)"), 3, "on the last layer");
    assert_eq!(dependencies("t1 r(x); t2 r(x); t1 add(x); t3 r(x); t4 w(x)"), 3);
}

#[test]
fn races_are_told_apart() {
    let findings = check("t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end", &["data: m t2 m"]);
    assert_eq!(findings.violations[0].order, Order::Racy);
    let findings = check(
        "t1 begin(m); t1 r(x); t1 signal(s); t2 wait(s); t2 w(x); t2 signal(s); t1 wait(s); t1 w(x)",
        &["data: m t2 m", "sync: m t2 t2 m"],
    );
    assert_eq!(findings.violations[0].order, Order::Synchronised);
}

#[test]
fn what_an_ended_thread_knew_is_learnt_by_joining_it() {
    let trace =
        "t1 begin(m); t1 r(x); t1 signal(s); t3 wait(s); t3 exit; t2 join(t3); t2 w(x); t1 w(x)";
    for relation in [Relation::Full, Relation::Data] {
        let options = Options::default().relation(relation);
        let findings = check_with(trace, options, &["data: m t2 m"]);
        let orders: Vec<Order> = findings.violations[0].edges.iter().map(|e| e.order).collect();
        assert_eq!(orders, [Order::Synchronised, Order::Racy]);
    }
}

#[test]
fn only_the_outermost_pair_of_a_lock_counts() {
    check(
        "t1 begin(m); t1 acq(l); t1 acq(l); t1 rel(l); t1 w(x); t1 rel(l); t1 end
         t2 acq(l); t2 rel(l)",
        &[],
    );
}

#[test]
fn shared_holders_do_not_conflict() {
    check(
        "t1 begin(m); t1 racq(l); t1 rrel(l); t2 racq(l); t2 rrel(l); t1 racq(l); t1 rrel(l)",
        &[],
    );
    check(
        "t1 begin(m); t1 racq(l); t1 rrel(l); t2 acq(l); t2 rel(l); t1 racq(l); t1 rrel(l)",
        &["sync: m t2 t2 m"],
    );
    check(
        "t1 begin(m); t1 acq(l); t1 rel(l); t2 racq(l); t2 rrel(l); t1 acq(l); t1 rel(l)",
        &["sync: m t2 t2 m"],
    );
}

#[test]
fn a_lock_that_was_reset_is_another_lock() {
    check(
        "t1 begin(m); t1 acq(l); t1 rel(l); t1 reset(l); t2 acq(l); t2 rel(l); t2 reset(l)
         t1 acq(l); t1 rel(l); t1 end",
        &[],
    );
    let findings = check(
        "t1 begin(m); t1 acq(k); t1 rel(k); t1 r(x); t2 reset(k); t1 acq(k); t2 w(x); t1 w(x)",
        &["data: m t2 m"],
    );
    assert!(findings.violations[0].released_locks.is_empty());
    refused(
        "t1 acq(l); t2 reset(l); t1 rel(l)",
        EventErrorKind::ReleaseNotHeld(checker::event::LockId(0)),
    );
}

#[test]
fn fork_and_join() {
    let findings =
        check("t1 begin(m); t1 fork(t2); t2 r(x); t1 join(t2); t1 end", &["sync: m t2 m"]);
    let edges = &findings.violations[0].edges;
    assert_eq!((edges[0].source.action, edges[0].sink.action), (Action::Fork, Action::Start));
    assert_eq!((edges[1].source.action, edges[1].sink.action), (Action::Exit, Action::Join));
    check("t1 begin(m); t1 fork(t2); t1 join(t2); t1 end", &[]);
}

#[test]
fn a_thread_that_has_ended_can_be_joined() {
    let findings =
        check("t1 begin(m); t1 fork(t2); t2 r(x); t2 exit; t1 join(t2)", &["sync: m t2 t2 m"]);
    assert_eq!(findings.violations[0].edges[1].source.event, 3);
    refused("t1 exit; t1 w(x)", EventErrorKind::ThreadEnded);
    refused("t1 exit; t2 fork(t1)", EventErrorKind::ForkAfterAction(checker::event::ThreadId(0)));
}

#[test]
fn barrier_rounds_are_told_apart() {
    check(
        "t1 begin(m); t1 arrive(b); t2 arrive(b); t1 depart(b); t1 end
         t1 begin(n); t1 arrive(b); t2 depart(b); t1 end; t2 arrive(b); t2 depart(b); t1 depart(b)",
        &[],
    );
    check(
        "t1 begin(m); t1 arrive(b); t2 arrive(b); t2 depart(b); t2 arrive(b); t1 depart(b)
         t1 arrive(b); t1 depart(b); t1 end",
        &["sync: m t2 t2 m"],
    );
}

#[test]
fn a_free_conflicts_with_all_accesses_of_its_life() {
    // The use after the free is the harm; a use before it and none after is not.
    check("t1 begin(m); t1 r(x); t2 free(x); t1 r(x); t1 end", &["data: m t2 m"]);
    check("t1 begin(m); t1 r(x); t2 free(x); t1 end; t1 r(x)", &[]);
    check("t1 begin(m); t1 r(x); t2 free(x); t2 alloc(x); t1 r(x); t1 end", &[]);
    // Looked up in a table, out of which another thread takes the block that it frees.
    check("t1 begin(m); t1 r(slot); t2 w(slot); t2 free(x); t1 r(x); t1 end", &["data: m t2 t2 m"]);
    // Both free it.
    check("t1 begin(m); t1 u(x); t2 u(x); t2 free(x); t1 free(x); t1 end", &["data: m t2 t2 m"]);
    // Reference counts commute, the free does not commute with them.
    check("t1 begin(m); t1 add(x); t2 add(x); t2 free(x); t1 end", &[]);
    check(
        "t1 begin(m); t1 r(slot); t2 w(slot); t2 add(x); t2 free(x); t1 add(x); t1 end",
        &["data: m t2 t2 m"],
    );
}

#[test]
fn memory_that_was_freed_is_another_variable() {
    check("t1 begin(m); t1 r(x); t1 free(x); t2 alloc(x); t2 w(x); t2 free(x); t1 w(x)", &[]);
}

#[test]
fn a_part_of_a_variable_has_the_past_of_the_whole() {
    // The part that was split off, and the remainder of the whole.
    for part in ["x", "y"] {
        check(
            &format!("t1 begin(m); t1 w(x); t2 r(x); t2 split(x,y); t1 w({part}); t1 end"),
            &["data: m t2 m"],
        );
    }
    // A split itself makes no order, and after it the two are unrelated.
    check("t1 begin(m); t1 w(x); t2 split(x,y); t2 w(y); t1 w(x); t1 end", &[]);
    check("t1 begin(m); t1 r(x); t2 split(x,y); t2 split(x,z); t1 w(y); t1 r(z); t1 end", &[]);
    // The former history of the part is forgotten.
    check("t1 begin(m); t1 w(y); t2 w(y); t3 split(x,y); t1 r(y); t1 end", &[]);
    // More readers than have a place with the variable.
    let readers = (2..9).map(|thread| format!("t{thread} r(x); ")).collect::<String>();
    for part in ["x", "y"] {
        let trace = format!("t1 begin(m); t1 w(x); {readers} t2 split(x,y); t1 w({part}); t1 end");
        assert_eq!(check_any(&trace).counts.violations, 7);
    }
}

/// Checks a trace whose witnesses are not examined.
fn check_any(trace: &str) -> Findings {
    run(&parse(trace).0, Options::default())
}

#[test]
fn a_gap_abandons_regions_and_keeps_the_order() {
    let (events, _) = parse(
        "t1 begin(m); t1 acq(l); t1 r(x); t2 w(x); t1 w(x); t1 rel(l); t1 end
         t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end",
    );
    let mut checker = Davida::new(Options::default());
    for (number, event) in events.iter().enumerate() {
        if number == 3 {
            checker.gap();
        }
        checker.event(event).expect("what the gap explains is no error");
    }
    let findings = checker.finish();
    assert_eq!(findings.counts.gaps, 1);
    assert_eq!(findings.counts.ignored_events, 2);
    assert_eq!(findings.violations.len(), 1);
    assert_eq!(findings.violations[0].begin.event, 7);
    // The write of t2 at 9 depends on the read at 8; that at 3 on the read before the gap.
    assert_eq!(findings.counts.dependencies, 4);
}

#[test]
fn instances_with_one_static_witness_are_one_violation() {
    let (mut events, _) = parse(&"t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end;".repeat(1000));
    for (index, event) in events.iter_mut().enumerate() {
        event.location.0 = index as u32 % 5;
    }
    let findings = crate::text::run(&events, Options::default());
    assert_eq!(findings.counts.violations, 1000);
    assert_eq!(findings.counts.violating_transactions, 1000);
    assert_eq!(findings.counts.distinct_witnesses, 1);
    assert_eq!(findings.violations[0].occurrences, 1000);
    assert!(findings.instances.is_empty());
}

#[test]
fn witnesses_beyond_the_limit_are_only_counted() {
    let (events, _) = parse(&"t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end;".repeat(10));
    let options = Options::default().witnesses(3);
    let findings = crate::text::run(&events, options);
    assert_eq!(findings.violations.len(), 3);
    assert_eq!(findings.counts.unshown_violations, 7);
}

/// Checks that the trace is refused at its last event, with that kind of error; a lenient checker leaves
/// the event out.
#[track_caller]
fn refused(trace: &str, kind: EventErrorKind) {
    let (events, _) = parse(trace);
    let mut strict = Davida::new(Options::default());
    let error = strict.events(&events).expect_err("the last event does not fit");
    assert_eq!((error.number, error.kind), (events.len() as u64 - 1, kind));
    let findings = crate::text::run(&events, Options::live());
    assert_eq!(findings.counts.ignored_events, 1);
}

#[test]
fn events_that_do_not_fit_are_refused() {
    use checker::event::{LockId, RegionId, SyncId, ThreadId};
    refused("t1 w(x); t1 end", EventErrorKind::EndWithoutBegin);
    refused("t1 begin(m); t1 end(n)", EventErrorKind::RegionNotOpen(RegionId(1)));
    refused("t1 w(x); t1 rel(l)", EventErrorKind::ReleaseNotHeld(LockId(0)));
    refused("t1 acq(l); t2 rel(l)", EventErrorKind::ReleaseNotHeld(LockId(0)));
    refused("t1 acq(l); t1 rrel(l)", EventErrorKind::SharedReleaseNotHeld(LockId(0)));
    refused("t1 w(x); t2 fork(t3); t2 fork(t3)", EventErrorKind::ForkedTwice(ThreadId(1)));
    refused("t1 w(x); t2 fork(t1)", EventErrorKind::ForkAfterAction(ThreadId(0)));
    refused("t1 fork(t1)", EventErrorKind::ForkOfSelf);
    refused("t1 join(t1)", EventErrorKind::JoinOfSelf);
    refused("t1 w(x); t2 join(t1); t3 join(t1)", EventErrorKind::JoinedTwice(ThreadId(0)));
    refused("t1 w(x); t2 join(t1); t1 w(x)", EventErrorKind::ThreadJoined);
    refused("t1 depart(b)", EventErrorKind::DepartWithoutArrive(SyncId(0)));

    let (named, inner) = (RegionId(0), RegionId(1));
    let (events, _) = parse("t1 begin(m); t1 begin(n); t1 end(m)");
    let error = Davida::new(Options::default()).events(&events).expect_err("n is still open");
    assert_eq!(error.kind, EventErrorKind::RegionNotInnermost { named, inner });
}

/// Returns for each released lock the region of the transaction that held it in between.
fn holders(findings: &Findings) -> Vec<Option<Option<u32>>> {
    let splits = &findings.violations[0].released_locks;
    splits.iter().map(|split| split.holder.map(|tx| tx.region.map(|region| region.0))).collect()
}

#[test]
fn a_split_says_who_held_the_lock_in_between() {
    // The other side touches the data under the lock.
    let findings = check(
        "t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l); t2 acq(l); t2 w(x); t2 rel(l)
         t1 acq(l); t1 w(x); t1 rel(l); t1 end",
        &["data: m t2 m", "sync: m t2 t2 m"],
    );
    assert_eq!(holders(&findings), [Some(None)]);
    // It never holds the lock.
    let findings = check(
        "t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l); t2 w(x); t1 acq(l); t1 w(x); t1 rel(l); t1 end",
        &["data: m t2 m"],
    );
    assert_eq!(holders(&findings), [None]);
    // It does, and touches the data before that.
    let findings = check(
        "t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l); t2 w(x); t2 acq(l); t2 rel(l)
         t1 w(x); t1 acq(l); t1 w(x); t1 end",
        &["data: m t2 m", "sync: m t2 t2 m"],
    );
    assert_eq!(holders(&findings), []);
    // The hold that matters is not the last one.
    let findings = check(
        "t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l); t2 acq(l); t2 begin(n); t2 w(x); t2 end; t2 rel(l)
         t1 acq(l); t1 rel(l); t1 acq(l); t1 w(x); t1 rel(l); t1 end",
        &["data: m n m", "sync: m t2 t2 m"],
    );
    assert_eq!(holders(&findings), [Some(Some(1))]);
    let split = findings.violations[0].released_locks[0];
    assert_eq!((split.released.event, split.reacquired.event), (3, 9));
}

/// Returns the regions of a violation's transactions without accesses to variables, and the variables on
/// which its transactions depend on one another.
fn data_seen(trace: &str, expect: &[&str]) -> (Vec<Option<u32>>, Vec<u32>) {
    let data = check(trace, expect).violations[0].data.clone();
    let regions = data.without.iter().map(|tx| tx.region.map(|region| region.0)).collect();
    (regions, data.met.iter().map(|variable| variable.0).collect())
}

#[test]
fn where_synchronisation_is_the_evidence_it_is_said_what_was_seen_of_data() {
    // No access at all.
    let seen = data_seen(
        "t1 begin(m); t1 acq(l); t1 rel(l); t2 begin(n); t2 acq(l); t2 rel(l); t2 end; t1 acq(l)",
        &["sync: m n m"],
    );
    assert_eq!(seen, (vec![Some(0), Some(1)], vec![]));
    // Of one of them only, and not by an earlier transaction of the other.
    let seen = data_seen(
        "t2 begin(n); t2 r(y); t2 end; t1 begin(m); t1 acq(l); t1 r(x); t1 rel(l)
         t2 begin(n); t2 acq(l); t2 rel(l); t2 end; t1 acq(l)",
        &["sync: m n m"],
    );
    assert_eq!(seen, (vec![Some(0)], vec![]));
    // Of both, at other data.
    let seen = data_seen(
        "t1 begin(m); t1 acq(l); t1 w(x); t1 rel(l); t2 begin(n); t2 acq(l); t2 w(y); t2 rel(l); t2 end
         t1 acq(l)",
        &["sync: m n m"],
    );
    assert_eq!(seen, (vec![], vec![]));
    // They met, and the lock alone closes the cycle.
    let seen = data_seen(
        "t1 begin(m); t1 acq(l); t1 w(x); t1 rel(l); t2 begin(n); t2 acq(l); t2 w(x); t2 rel(l); t2 end
         t1 acq(l)",
        &["sync: m n m"],
    );
    assert_eq!(seen, (vec![], vec![0]));
    // The data closes the cycle that the lock opens.
    let seen = data_seen(
        "t1 begin(m); t1 acq(l); t1 rel(l); t2 begin(n); t2 acq(l); t2 w(x); t2 rel(l); t2 end; t1 r(x)",
        &["sync: m n m"],
    );
    assert_eq!(seen, (vec![], vec![0]));
}

#[test]
fn a_cycle_without_violation_comes_with_its_dependencies() {
    let (events, _) =
        parse("t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 r(y); t2 r(x); t1 end; t2 end");
    let findings = run(&events, Options::default());
    let ends: Vec<(u64, u64)> =
        findings.cycle_edges.iter().map(|edge| (edge.source.event, edge.sink.event)).collect();
    assert_eq!(ends, [(3, 4), (2, 5)]);
}
