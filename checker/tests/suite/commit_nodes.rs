//! Commit nodes against all interleavings of small traces, and the examples of the paper.

use crate::interleavings::{Interleavings, Mistake};
use crate::small_traces::{Shape, trace};
use crate::text::parse;
use checker::event::Event;
use checker::{Atomicity, Checker, CommitNode, Options, Property, Theorem};

fn check_events(events: &[Event], property: Property, trims: bool) -> Atomicity {
    let mut checker = CommitNode::new(Options::default().property(property)).trimming(trims);
    checker.events(events).expect("well-formed");
    checker.finish().atomicity.expect("this algorithm decides it")
}

/// Answer about a property: whether the trace has it, and the theorem that says so.
type Expected = (Option<bool>, Option<Theorem>);

/// Checks both properties of a trace: whether it is atomic, and by which theorem.
#[track_caller]
fn check(text: &str, conflict: Expected, view: Expected) {
    let (events, _) = parse(text);
    for (property, expected) in [(Property::Conflict, conflict), (Property::View, view)] {
        let found = check_events(&events, property, true);
        assert_eq!((found.atomic, found.theorem), expected, "{property:?}: {found:#?}");
        let all = Interleavings::new(&events, Mistake::None);
        let is_atomic = match property {
            Property::Conflict => all.is_conflict_atomic(),
            Property::View => all.is_view_atomic(),
        };
        if let Some(atomic) = expected.0 {
            assert_eq!(is_atomic, atomic, "{property:?}");
        }
    }
}

const ONE: Expected = (Some(true), Some(Theorem::OneCommitNode));
const NO_CYCLE: Expected = (Some(true), Some(Theorem::NoCycle));
const NOT: Expected = (Some(false), Some(Theorem::TwoTransactions));
const OPEN: Expected = (None, None);

#[test]
fn section_2_two_writes_against_one() {
    check("t1 begin(a); t1 w(x); t1 w(x); t1 end; t2 begin(b); t2 w(x); t2 end", NOT, ONE);
}

const T1: &str = "t1 begin(t1); t1 acq(l); t1 w(x); t1 w(x); t1 rel(l); t1 end;";
const T2: &str = "t2 begin(t2); t2 w(x); t2 end;";
const T3: &str = "t3 begin(t3); t3 acq(l); t3 r(x); t3 rel(l); t3 w(x); t3 end;";

/// Statements of the text on figures 4 and 6, for units as it describes them.
#[test]
fn figures_4_and_6() {
    check(&format!("{T1} {T2}"), NOT, ONE);
    check(&format!("{T2} {T3}"), NOT, NOT);
    check(&format!("{T1} {T2} {T3}"), NOT, OPEN);
}

#[test]
fn figure_7_two_commit_nodes_on_no_cycle() {
    let text = "t1 begin(a); t1 w(x); t1 w(y); t1 end; t2 begin(b); t2 r(x); t2 end; t3 begin(c); t3 r(y); t3 end";
    check(text, NO_CYCLE, NO_CYCLE);
    // An edge between the other two closes it.
    let text =
        text.replace("t2 r(x);", "t2 r(x); t2 w(z);").replace("t3 r(y);", "t3 r(y); t3 w(z);");
    check(&text, OPEN, OPEN);
}

#[test]
fn figure_1_the_constructor_of_vector() {
    let text = "t1 begin(vector); t1 acq(v1); t1 r(count); t1 rel(v1); t1 acq(v1); t1 r(count); t1 rel(v1); t1 end
         t2 begin(remove_all); t2 acq(v1); t2 w(count); t2 rel(v1); t2 end";
    check(text, NOT, NOT);
    let (events, names) = parse(text);
    let found = check_events(&events, Property::Conflict, true);
    let pattern = &found.patterns[0];
    assert_eq!(names.tx(pattern.transaction), "vector");
    assert_eq!(pattern.accesses.map(|point| point.event), [2, 5]);
    assert_eq!(pattern.others.map(|tx| names.tx(tx).to_owned()), ["remove_all", "remove_all"]);
    assert_eq!(pattern.remotes.map(|point| point.event), [10, 10]);
    assert!(pattern.is_certain);
}

/// The example after Theorem 6.1: atomic, though reduction does not show it.
#[test]
fn section_6_1_a_benign_race() {
    check("t1 begin(a); t1 r(x); t1 w(x); t1 end; t2 begin(b); t2 r(x); t2 end", ONE, ONE);
}

/// The example of the module's documentation: units of one thread are ordered.
#[test]
fn program_order_between_units_closes_a_cycle() {
    let text = "t1 begin(t1); t1 w(x); t1 end; t1 begin(t2); t1 r(y); t1 end; t2 begin(u); t2 r(x); t2 w(y); t2 end";
    check(text, OPEN, OPEN);
    let (events, _) = parse(text);
    assert!(!Interleavings::new(&events, Mistake::None).is_conflict_atomic());
    assert!(Interleavings::new(&events, Mistake::NoProgramOrder).is_conflict_atomic());
}

#[test]
fn a_section_that_contains_another_one_is_no_commit_node() {
    let text = "t1 begin(a); t1 acq(l); t1 w(y); t1 acq(m); t1 w(x); t1 rel(m); t1 acq(m); t1 w(x); t1 rel(m); t1 rel(l); t1 end
         t2 begin(b); t2 acq(m); t2 w(x); t2 rel(m); t2 end; t3 begin(c); t3 acq(l); t3 w(y); t3 rel(l); t3 end";
    check(text, NOT, ONE);
}

#[test]
fn a_potential_deadlock_is_a_precondition() {
    let text = "t1 begin(a); t1 acq(l); t1 acq(m); t1 w(x); t1 rel(m); t1 rel(l); t1 end
         t2 begin(b); t2 acq(m); t2 acq(l); t2 w(x); t2 rel(l); t2 rel(m); t2 end";
    let (events, _) = parse(text);
    let found = check_events(&events, Property::Conflict, true);
    assert_eq!((found.atomic, found.deadlocks.len()), (None, 1));
}

#[test]
fn readers_do_not_exclude_one_another() {
    let text = "t1 begin(a); t1 racq(l); t1 w(x); t1 w(y); t1 rrel(l); t1 end
         t2 begin(b); t2 {}acq(l); t2 r(x); t2 r(y); t2 {}rel(l); t2 end";
    check(&text.replace("{}", ""), ONE, ONE);
    check(&text.replace("{}", "r"), NOT, NOT);
}

#[test]
fn a_transaction_is_split_where_it_waits_for_others() {
    let text = "t1 begin(a); t1 w(x); t1 fork(t2); t1 w(x); t1 end; t2 begin(b); t2 r(x); t2 end";
    let (events, _) = parse(text);
    let found = check_events(&events, Property::Conflict, true);
    assert_eq!((found.atomic, found.split_transactions), (Some(true), 1));
}

#[test]
fn copies_are_counted_once() {
    let unit = "t1 begin(a); t1 r(x); t1 w(x); t1 end; t2 begin(b); t2 w(x); t2 end;";
    let (mut events, _) = parse(&unit.repeat(50));
    for (index, event) in events.iter_mut().enumerate() {
        event.location.0 = index as u32 % 7;
    }
    let found = check_events(&events, Property::Conflict, true);
    assert_eq!((found.units, found.suspects, found.patterns.len()), (2, 50, 1));
    assert_eq!(found.patterns[0].occurrences, 50);
}

/// The other write of t1 hides which write was the last: what two transactions show for view-atomicity need not hold
/// with others beside them.
#[test]
fn a_pair_that_is_not_view_atomic_may_be_so_among_others() {
    let pair = "t1 begin(a); t1 r(x); t1 w(x); t1 end; t2 begin(b); t2 w(x); t2 end";
    check(pair, NOT, NOT);
    let text = format!("t1 w(x); {pair}");
    check(&text, NOT, OPEN);
    let (events, _) = parse(&text);
    assert!(Interleavings::new(&events, Mistake::None).is_view_atomic());
    assert!(check_events(&events, Property::View, true).patterns[0].is_certain);
}

/// Results on many traces: atomic, not, undecided, and disagreements.
#[derive(Debug, Default)]
struct Tally {
    atomic: u32,
    not: u32,
    open: u32,
    deadlocks: u32,
    wrong: Vec<u64>,
}

fn compare(
    shape: Shape,
    seeds: std::ops::Range<u64>,
    property: Property,
    mistake: Mistake,
) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let Some(events) = trace(seed, shape) else { continue };
        let found = check_events(&events, property, true);
        let untrimmed = check_events(&events, property, false);
        let verdict = |of: &Atomicity| (of.atomic, of.theorem, of.suspects);
        assert_eq!(verdict(&found), verdict(&untrimmed), "Theorem 7.1: {seed}");
        if !found.deadlocks.is_empty() {
            tally.deadlocks += 1;
            continue;
        }
        let all = Interleavings::new(&events, mistake);
        let is_atomic = match property {
            Property::Conflict => all.is_conflict_atomic(),
            Property::View => all.is_view_atomic(),
        };
        let has_order = events.iter().any(|event| crate::interleavings::is_order(event.op));
        // Theorems 4.2 and 4.5 are exact for two units; without orders the others can run before or after.
        let is_open = all.units() <= 2 && found.atomic.is_none();
        match found.atomic {
            Some(true) => tally.atomic += 1,
            Some(false) => tally.not += 1,
            None => tally.open += 1,
        }
        let is_wrong = match found.atomic {
            Some(true) => !is_atomic,
            Some(false) => is_atomic && !has_order,
            None => false,
        };
        if is_wrong || is_open {
            tally.wrong.push(seed);
        }
    }
    tally
}

const TWO: Shape = Shape {
    threads: 2,
    units: 1,
    accesses: 4,
    variables: 2,
    locks: 2,
    is_wild: false,
    has_order: false,
    is_transactional: true,
};
const SEVERAL: Shape = Shape { threads: 3, units: 2, accesses: 3, is_transactional: false, ..TWO };
const ORDERED: Shape = Shape { has_order: true, ..SEVERAL };
const WILD: Shape = Shape { is_wild: true, ..ORDERED };

/// Compares a quarter of the traces of `twenty_thousand_traces`.
#[track_caller]
fn agree(shape: Shape, seeds: std::ops::Range<u64>, property: Property) {
    let quarter = seeds.start..seeds.start + (seeds.end - seeds.start) / 4;
    agree_on_all(shape, quarter, property);
}

#[track_caller]
fn agree_on_all(shape: Shape, seeds: std::ops::Range<u64>, property: Property) {
    let least = (seeds.end - seeds.start) as u32 / 16;
    let tally = compare(shape, seeds, property, Mistake::None);
    println!("{property:?} {shape:?}: {tally:?}");
    assert_eq!(tally.wrong, [0; 0], "{tally:?}");
    let is_exact = property == Property::Conflict || shape.threads == 2;
    assert!(tally.atomic > least && (tally.not > least || !is_exact), "{tally:?}");
}

#[test]
fn conflict_atomicity_of_two_transactions_is_exact() {
    agree(TWO, 0..5000, Property::Conflict);
}

#[test]
fn view_atomicity_of_two_transactions_is_exact() {
    agree(TWO, 10_000..15_000, Property::View);
}

#[test]
fn conflict_atomicity_agrees_with_all_interleavings() {
    agree(SEVERAL, 0..4000, Property::Conflict);
    agree(ORDERED, 4000..6000, Property::Conflict);
}

#[test]
fn view_atomicity_agrees_with_all_interleavings() {
    agree(SEVERAL, 20_000..22_000, Property::View);
    agree(ORDERED, 24_000..25_000, Property::View);
}

#[test]
fn sections_of_any_form_agree_with_all_interleavings() {
    agree(WILD, 30_000..31_000, Property::Conflict);
}

#[test]
#[ignore = "takes minutes"]
fn twenty_thousand_traces() {
    for (shape, seeds, property) in [
        (TWO, 0..5000, Property::Conflict),
        (TWO, 10_000..15_000, Property::View),
        (SEVERAL, 0..4000, Property::Conflict),
        (ORDERED, 4000..6000, Property::Conflict),
        (SEVERAL, 20_000..22_000, Property::View),
        (ORDERED, 24_000..25_000, Property::View),
        (WILD, 30_000..31_000, Property::Conflict),
    ] {
        agree_on_all(shape, seeds, property);
    }
}

#[test]
fn mistakes_are_noticed() {
    let mistakes = [
        (TWO, Property::Conflict, Mistake::NoLocks),
        (TWO, Property::Conflict, Mistake::ReadsConflict),
        (TWO, Property::Conflict, Mistake::SharedExcludes),
        (SEVERAL, Property::Conflict, Mistake::NoLocks),
        (ORDERED, Property::Conflict, Mistake::NoOrder),
        (TWO, Property::View, Mistake::NoLocks),
        (TWO, Property::View, Mistake::NoFinalWrites),
    ];
    for (shape, property, mistake) in mistakes {
        let tally = compare(shape, 0..400, property, mistake);
        assert!(!tally.wrong.is_empty(), "{mistake:?} {property:?} {tally:?}");
    }
}
