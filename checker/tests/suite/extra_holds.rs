//! Other holds of locks around the one that matters change no defect: a function that gives up a lock between two steps
//! has one defect with that lock, however often the lock was taken meanwhile, by whom, and whatever else was.

use crate::defect_names::Program;
use checker::defect::{Class, Pattern, Reason};
use checker::event::LockId;
use proptest::prelude::*;

/// Way to hold a lock.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Plain,
    Twice,
    /// Within a hold of another lock.
    Within,
    Around,
    Shared,
}

/// Hold of a lock that is unrelated to the defect.
#[derive(Clone, Debug)]
struct Extra {
    thread: u32,
    lock: &'static str,
    manner: Manner,
    in_region: bool,
    accesses: bool,
    rounds: usize,
}

impl Extra {
    fn trace(&self) -> String {
        let &Self { thread, lock, manner, in_region, accesses, rounds } = self;
        let access = if accesses { "; T r(z) @50; T w(z) @51" } else { "" };
        let hold = match manner {
            Manner::Plain => format!("T acq({lock}) @40{access}; T rel({lock}) @41"),
            Manner::Twice => format!(
                "T acq({lock}) @40; T acq({lock}) @42{access}; T rel({lock}) @43; T rel({lock}) @41"
            ),
            Manner::Within => {
                format!("T acq(k) @44; T acq({lock}) @40{access}; T rel({lock}) @41; T rel(k) @45")
            }
            Manner::Around => {
                format!("T acq({lock}) @40; T acq(k) @44{access}; T rel(k) @45; T rel({lock}) @41")
            }
            Manner::Shared => format!("T racq({lock}) @40; T rrel({lock}) @41"),
        };
        let one =
            if in_region { format!("T begin(other); {hold}; T end;\n") } else { hold + ";\n" };
        one.replace("T ", &format!("t{thread} ")).repeat(rounds)
    }
}

/// `step` looks at an item and drops it later, each time under the lock; `change` comes in between.
fn step(first: &str, before: &[Extra], after: &[Extra], is_open: bool) -> Program {
    let text = |extras: &[Extra]| extras.iter().map(Extra::trace).collect::<String>();
    let (acquire, release) = if first == "shared" { ("racq", "rrel") } else { ("acq", "rel") };
    let open = if is_open { "t3 begin(loop); t4 begin(loop); t3 w(v); t4 w(u);" } else { "" };
    let close = if is_open { "t3 end; t4 end;" } else { "" };
    Program::new(&format!(
        "{open} t1 begin(step)
         t1 begin(look); t1 {acquire}(m) @look:1; t1 r(flags) @look:2; t1 {release}(m) @look:3; t1 end
         {}
         t2 begin(change); t2 acq(m) @change:20; t2 r(flags) @change:21; t2 w(flags) @change:22
         t2 r(refs) @change:23; t2 w(refs) @change:24; t2 rel(m) @change:25; t2 end
         {}
         t1 begin(drop); t1 acq(m) @drop:4; t1 r(refs) @drop:5; t1 w(refs) @drop:6; t1 rel(m) @drop:7; t1 end
         t1 end; {close}",
        text(before),
        text(after),
    ))
}

/// Returns the text about the defects of `step`.
fn said(mut program: Program) -> Vec<(u64, Class, Pattern, String, Vec<String>)> {
    let found = program.defects();
    let of_step = found.iter().filter(|defect| program.region_name(defect.region) == "step");
    let facts = of_step.map(|defect| {
        let gap = &defect.gap;
        let lock = gap.lock.expect("the lock explains the gap");
        let ends = [lock.released, lock.reacquired].map(|point| program.line(point.location));
        let names = |held: &Option<Vec<LockId>>| {
            held.as_ref().map(|held| held.iter().map(|lock| program.lock_name(*lock)).collect())
        };
        let held = [&gap.left_held, &gap.returned_held, &gap.others.entered, &gap.others.left];
        let held: Vec<Option<Vec<&str>>> = held.into_iter().map(names).collect();
        let locks = format!("{ends:?} {held:?}");
        (defect.fingerprint, defect.class, defect.pattern, locks, reasons(&defect.reasons))
    });
    facts.collect()
}

fn reasons(reasons: &[Reason]) -> Vec<String> {
    reasons.iter().map(Reason::to_string).collect()
}

fn extra() -> impl Strategy<Value = Extra> {
    use Manner::{Around, Plain, Shared, Twice, Within};
    let lock = prop::sample::select(vec!["m", "m", "n", "o"]);
    let manner = prop::sample::select(vec![Plain, Plain, Twice, Within, Around, Shared]);
    let rounds = prop_oneof![4 => 1..4_usize, 2 => 30..60_usize, 1 => Just(200_usize)];
    (2..5_u32, lock, manner, any::<bool>(), any::<bool>(), rounds).prop_map(
        |(thread, lock, manner, in_region, accesses, rounds)| Extra {
            thread,
            lock,
            manner,
            in_region,
            accesses,
            rounds,
        },
    )
}

proptest! {
    #[test]
    fn extra_holds_change_no_defect(
        shared in any::<bool>(),
        before in prop::collection::vec(extra(), 0..3),
        after in prop::collection::vec(extra(), 0..4),
        is_open in any::<bool>(),
    ) {
        let first = if shared { "shared" } else { "exclusive" };
        let simple = said(step(first, &[], &[], false));
        prop_assert_eq!(simple.len(), 1);
        prop_assert_eq!(said(step(first, &before, &after, is_open)), simple);
    }
}
