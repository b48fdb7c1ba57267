//! Cost of each algorithm beside Davida's, on the same traces.

use crate::measure::{Goals, Samples, time};
use crate::passes;
use crate::workload::{Kind, Workload};
use crate::{Plan, THREADS};
use checker::{AeroDrome, CommitNode, DoubleChecker, Options, RegionTrack, Velodrome};

/// Goal of AeroDrome's time, as a multiple of Davida's.
const AERODROME_GOAL: f64 = 3.0;

const NAMES: [&str; 8] = [
    "Davida",
    "RegionTrack",
    "AeroDrome",
    "Velodrome",
    "DoubleChecker",
    "CommitNode",
    "predictions",
    "deadlocks",
];

fn pass(name: &str, trace: &[u8]) -> u64 {
    let options = Options::default();
    match name {
        "RegionTrack" => passes::check(passes::in_memory(trace), RegionTrack::new(options)),
        "AeroDrome" => passes::check(passes::in_memory(trace), AeroDrome::new(options)),
        "Velodrome" => passes::check(passes::in_memory(trace), Velodrome::new(options)),
        "DoubleChecker" => passes::check(passes::in_memory(trace), DoubleChecker::new(options)),
        "CommitNode" => passes::check(passes::in_memory(trace), CommitNode::new(options)),
        "predictions" => passes::predict(trace),
        "deadlocks" => passes::deadlocks(trace),
        _ => passes::davida(trace),
    }
}

/// Measures all algorithms on serializable traces.
pub fn compare(plan: &Plan, goals: &mut Goals) {
    println!("\nAll algorithms on serializable traces of {} events:", plan.sizes[0]);
    print!("{:>7} {:>9} {:>5}", "threads", "variables", "locks");
    NAMES.iter().for_each(|name| print!(" {name:>13}"));
    println!(" {:>22}", "AeroDrome / Davida");
    for threads in THREADS {
        for &variables in &plan.variables {
            for &locks in &plan.locks {
                let kind = Kind::Locked { locks };
                one(plan, goals, Workload { events: plan.sizes[0], threads, variables, kind });
            }
        }
    }
}

fn one(plan: &Plan, goals: &mut Goals, workload: Workload) {
    let mut ratio = Samples::default();
    let mut samples = timed(plan, workload, |[davida, _, aerodrome, ..]| {
        ratio.add(aerodrome / davida);
    });
    let Workload { threads, variables, kind, .. } = workload;
    let Kind::Locked { locks } = kind else { return };
    print!("{threads:>7} {variables:>9} {locks:>5}");
    samples.iter_mut().for_each(|samples| print!(" {:>13.1}", samples.median()));
    println!("   {}", goals.verdict(ratio.median(), AERODROME_GOAL));
}

/// Measures all algorithms on one trace; `round` receives the times of each round.
fn timed(
    plan: &Plan,
    workload: Workload,
    mut round: impl FnMut([f64; NAMES.len()]),
) -> [Samples; NAMES.len()] {
    let trace = workload.avt();
    let mut samples: [Samples; NAMES.len()] = Default::default();
    for _ in 0..plan.rounds {
        let times = NAMES.map(|name| time(workload.events, || pass(name, &trace)));
        samples.iter_mut().zip(times).for_each(|(samples, time)| samples.add(time));
        round(times);
    }
    samples
}

/// Measures how the cost of an event grows with the trace.
pub fn growth(plan: &Plan) {
    let [short, long] = [plan.sizes[0].div_ceil(10), plan.sizes[0]];
    println!("\nCost of an event of a trace of {long} events beside that of one of {short}:");
    print!("{:>7} {:>9} {:>5}", "threads", "variables", "locks");
    NAMES.iter().for_each(|name| print!(" {name:>13}"));
    println!();
    for threads in THREADS {
        let (variables, locks) = (100, 16);
        let of = |events| Workload { events, threads, variables, kind: Kind::Locked { locks } };
        let [mut before, mut after] = [short, long].map(|events| timed(plan, of(events), |_| ()));
        print!("{threads:>7} {variables:>9} {locks:>5}");
        for (before, after) in before.iter_mut().zip(&mut after) {
            print!(" {:>13.2}", after.median() / before.median());
        }
        println!();
    }
}
