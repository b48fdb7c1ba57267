//! Cost of each algorithm beside Davida's, on the same traces.

use crate::measure::{Goals, Samples, time};
use crate::passes;
use crate::workload::{Kind, Workload};
use crate::{Plan, THREADS};
use checker::{AeroDrome, CommitNode, DoubleChecker, Options, RegionTrack, Velodrome};

/// Goal of AeroDrome's time, as a multiple of Davida's.
const AERODROME_GOAL: f64 = 3.0;

const NAMES: [&str; 6] =
    ["Davida", "RegionTrack", "AeroDrome", "Velodrome", "DoubleChecker", "CommitNode"];

fn pass(name: &str, trace: &[u8]) -> u64 {
    let options = Options::default();
    match name {
        "RegionTrack" => passes::check(passes::in_memory(trace), RegionTrack::new(options)),
        "AeroDrome" => passes::check(passes::in_memory(trace), AeroDrome::new(options)),
        "Velodrome" => passes::check(passes::in_memory(trace), Velodrome::new(options)),
        "DoubleChecker" => passes::check(passes::in_memory(trace), DoubleChecker::new(options)),
        "CommitNode" => passes::check(passes::in_memory(trace), CommitNode::new(options)),
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
    let trace = workload.avt();
    let mut samples: [Samples; NAMES.len()] = Default::default();
    let mut ratio = Samples::default();
    for _ in 0..plan.rounds {
        let times = NAMES.map(|name| time(workload.events, || pass(name, &trace)));
        let [davida, _, aerodrome, ..] = times;
        ratio.add(aerodrome / davida);
        samples.iter_mut().zip(times).for_each(|(samples, time)| samples.add(time));
    }
    let Workload { threads, variables, kind, .. } = workload;
    let Kind::Locked { locks } = kind else { return };
    print!("{threads:>7} {variables:>9} {locks:>5}");
    samples.iter_mut().for_each(|samples| print!(" {:>13.1}", samples.median()));
    println!("   {}", goals.verdict(ratio.median(), AERODROME_GOAL));
}
