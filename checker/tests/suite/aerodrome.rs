//! AeroDrome, plain and optimised, against the oracle, each other and Davida's verdict.

use crate::generate::{chaos, long_ways, short_lived, well_formed};
use crate::oracle::Oracle;
use crate::text::{parse, run, run_on};
use checker::event::Event;
use checker::{AeroDrome, Checker, Davida, Detection, Options, Relation};
use proptest::prelude::*;

/// Runs both versions, which must agree; returns the verdict and the first detection of a cycle.
#[track_caller]
fn verdict(events: &[Event], options: Options) -> (bool, Option<Detection>) {
    let versions = [AeroDrome::new(options), AeroDrome::plain(options)];
    let [optimised, plain] = versions.map(|mut checker| {
        checker.events(events).expect("well-formed");
        assert_eq!(checker.detections(), u64::from(checker.first().is_some()));
        let first = checker.first();
        let findings = checker.finish();
        assert_eq!(findings.counts.events, events.len() as u64);
        (findings.serializable.expect("a verdict"), first)
    });
    assert_eq!(optimised, plain);
    let on = [AeroDrome::new(options).keep_going(), AeroDrome::plain(options).keep_going()];
    for checker in on {
        assert_eq!(run_on(checker, events).serializable, Some(plain.0));
    }
    plain
}

/// Checks the event at which a cycle is detected; `None` for the end of the trace, if it is not
/// serializable.
#[track_caller]
fn check(trace: &str, serializable: bool, seen: Option<u64>) {
    let (events, _) = parse(trace);
    let (found, first) = verdict(&events, Options::default());
    assert_eq!((found, first.map(|detection| detection.event)), (serializable, seen));
}

#[test]
fn rho_1_is_serializable() {
    check(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 end
         t3 begin(c); t3 w(z); t3 end; t1 r(z); t1 end",
        true,
        None,
    );
}

#[test]
fn rho_2_is_seen_at_the_read() {
    let trace = "t1 begin(a); t2 begin(b); t1 w(x); t2 r(x); t2 w(y); t2 end; t1 r(y); t1 end";
    check(trace, false, Some(6));
}

#[test]
fn rho_3_is_seen_at_the_first_end() {
    let trace = "t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 r(y); t2 r(x); t1 end; t2 end";
    check(trace, false, Some(6));
    check("t1 begin(a); t2 begin(b); t1 w(x); t2 w(y); t1 r(y); t2 r(x)", false, None);
}

#[test]
fn rho_4_is_seen_at_the_last_read() {
    check(
        "t1 begin(a); t1 w(x); t2 begin(b); t2 r(x); t2 w(y); t2 end
         t3 begin(c); t3 w(z); t3 r(y); t3 end; t1 r(z); t1 end",
        false,
        Some(10),
    );
}

#[test]
fn one_thread_s_own_read_is_no_conflict() {
    check("t1 begin(a); t1 r(x); t2 r(x); t1 w(x); t1 end", true, None);
    check("t1 begin(a); t1 r(x); t1 w(y); t2 r(y); t2 r(x); t1 w(x); t1 end", false, Some(5));
}

#[test]
fn order_inherited_through_an_earlier_transaction() {
    check(
        "t1 begin(m); t1 w(a); t2 begin(p); t2 r(a); t2 end; t2 begin(q); t2 w(b); t2 end
         t1 r(b); t1 end",
        false,
        Some(8),
    );
}

/// The knowledge that a transaction gains after others have learnt of it holds for those too, in every kind
/// of place.
#[test]
fn the_end_of_a_transaction_reaches_every_kind_of_object() {
    for (put, get) in [
        ("t2 w(y)", "t4 r(y)"),
        ("t2 r(y)", "t4 w(y)"),
        ("t2 acq(l); t2 rel(l)", "t4 acq(l); t4 rel(l)"),
        ("t2 racq(l); t2 rrel(l)", "t4 acq(l); t4 rel(l)"),
        ("t2 signal(s)", "t4 wait(s)"),
        ("t2 arrive(b); t4 arrive(b)", "t4 depart(b)"),
        ("t2 fork(t4)", "t4 r(other)"),
    ] {
        // t1's transaction is before t3's by z, t3's begin before t2's event by x, and t4 comes after that: so t1's
        // is before t4's event only by way of the whole of t3's.
        check(
            &format!(
                "t1 begin(a); t3 begin(c); t3 w(x); t2 r(x); {put}; t1 w(z); t3 r(z); t3 end
                 {get}; t4 w(w); t1 r(w); t1 end"
            ),
            false,
            // The last but one.
            Some(parse(&format!("{put};{get}")).0.len() as u64 + 8),
        );
    }
}

/// x learns of t1's transaction only at the end of t2's, and of t3's only at the end of t1's.
#[test]
fn what_is_learnt_at_one_end_is_passed_on_at_the_next() {
    check(
        "t3 begin(c); t3 w(q); t1 begin(a); t1 w(a); t2 begin(b); t2 w(x); t2 r(a); t2 end
         t1 r(q); t1 end; t3 r(x); t3 end",
        false,
        Some(10),
    );
}

#[test]
fn it_can_go_on() {
    let (events, _) = parse(&"t1 begin(m); t1 r(x); t2 w(x); t1 w(x); t1 end;".repeat(10));
    let mut checker = AeroDrome::new(Options::default()).keep_going();
    checker.events(&events).expect("well-formed");
    assert_eq!(checker.detections(), 10);
    assert_eq!(checker.first().map(|detection| detection.event), Some(3));
}

proptest! {
    #[test]
    fn aerodrome_agrees_with_the_definition(events in well_formed(160)) {
        let oracle = Oracle::new(&events);
        for relation in [Relation::Full, Relation::Data] {
            let options = Options::default().relation(relation);
            let (serializable, first) = verdict(&events, options);
            prop_assert_eq!(serializable, oracle.serializable(relation));
            // There is a cycle up to the event of its detection.
            let Some(Detection { event, transaction }) = first else { continue };
            let prefix = Oracle::new(&events[..=event as usize]);
            prop_assert!(!prefix.serializable(relation));
            prop_assert_eq!(prefix.tx[transaction.begin_event as usize], transaction);
            prop_assert!(transaction.region.is_some());
        }
    }

    /// Most traces are short, so that a cycle is not found before the interesting part.
    #[test]
    fn aerodrome_agrees_with_the_definition_on_short_traces(events in well_formed(40)) {
        let oracle = Oracle::new(&events);
        prop_assert_eq!(verdict(&events, Options::default()).0, oracle.serializable(Relation::Full));
    }

    #[test]
    fn aerodrome_agrees_with_davida_on_any_events(
        events in chaos(60),
        gap in any::<prop::sample::Index>(),
    ) {
        let mut optimised = AeroDrome::new(Options::live());
        let mut plain = AeroDrome::plain(Options::live());
        let mut davida = Davida::new(Options::live());
        for (index, event) in events.iter().enumerate() {
            if index == gap.index(2 * events.len() + 1) {
                optimised.gap();
                plain.gap();
                davida.gap();
            }
            prop_assert!(optimised.event(event).is_ok());
            prop_assert!(plain.event(event).is_ok());
            prop_assert!(davida.event(event).is_ok());
        }
        let (optimised, plain, davida) = (optimised.finish(), plain.finish(), davida.finish());
        prop_assert_eq!(optimised.serializable, plain.serializable);
        prop_assert_eq!(optimised.serializable, davida.serializable);
        prop_assert_eq!(optimised.counts.ignored_events, davida.counts.ignored_events);
    }

    #[test]
    fn aerodrome_agrees_with_davida_on_short_lived_threads(events in short_lived(200)) {
        for relation in [Relation::Full, Relation::Data] {
            let options = Options::default().relation(relation);
            let davida = run(&events, options).serializable;
            prop_assert_eq!(Some(verdict(&events, options).0), davida);
        }
    }
}

proptest! {
    /// The two versions detect a cycle at the same event, and Davida finds one exactly if they do. Only one
    /// such trace in some thousand needs knowledge that passes through the ends of several transactions in
    /// a row: hence the large number at once.
    #[test]
    fn aerodrome_agrees_with_davida_on_long_ways(
        traces in prop::collection::vec(long_ways(60), 1..=64),
    ) {
        for events in traces {
            let options = Options::default();
            prop_assert_eq!(Some(verdict(&events, options).0), run(&events, options).serializable);
        }
    }
}
