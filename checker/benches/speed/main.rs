//! How long Davida takes, next to a pass that reads the same events and touches the state of each event's object.
//! Run by `cargo xtask bench checker`; `cargo bench -p checker --bench speed -- parts` times inner parts instead.
//!
//! Both passes run in turn in each round, and the best of each counts, so that what else the machine does weighs on
//! neither alone. A ratio beyond its goal is printed as missed.

mod micro;
mod null;
mod workload;

use checker::event::Event;
use checker::{Checker, Davida, Options};
use null::Null;
use std::time::Instant;
use workload::{Kind, Workload};

const SIZES: [usize; 2] = [1_000_000, 10_000_000];
const VARIABLES: [u32; 2] = [100, 1_000_000];
const LOCKS: [u32; 2] = [1, 16];
const THREADS: [u32; 3] = [4, 16, 64];

/// Nanoseconds for an event.
#[derive(Clone, Copy)]
struct Times {
    null: f64,
    davida: f64,
}

impl Times {
    fn ratio(self) -> f64 {
        self.davida / self.null
    }
}

/// The events of a workload: where they are read from a file instead, only this changes, and the passes that take
/// the slice.
fn trace(workload: &Workload) -> Vec<Event> {
    workload.generate()
}

fn null(events: &[Event]) -> u64 {
    let mut null = Null::default();
    null.events(events);
    null.sum()
}

fn davida(events: &[Event]) -> u64 {
    let mut checker = Box::new(Davida::new(Options::default()));
    checker.events(events).expect("well-formed");
    checker.finish().counts.violations
}

fn measure(workload: &Workload, rounds: usize) -> (Times, u64) {
    let events = trace(workload);
    let mut best = Times { null: f64::MAX, davida: f64::MAX };
    let mut violations = 0;
    for _ in 0..rounds {
        let time = |pass: &mut dyn FnMut()| {
            let start = Instant::now();
            pass();
            start.elapsed().as_secs_f64() * 1e9 / events.len() as f64
        };
        best.null = best.null.min(time(&mut || {
            std::hint::black_box(null(&events));
        }));
        best.davida = best.davida.min(time(&mut || violations = davida(&events)));
    }
    (best, violations)
}

fn verdict(value: f64, goal: f64) -> String {
    let verdict = if value <= goal { "met" } else { "missed" };
    format!("{value:>6.2} {goal:>6.1}  {verdict}")
}

fn main() {
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = match arguments.next() {
        Some(argument) if argument == "parts" => return micro::run(),
        Some(argument) => match argument.parse() {
            Ok(rounds) if rounds > 0 => rounds,
            _ => {
                eprintln!("{argument} is neither a number of rounds nor `parts`");
                std::process::exit(2);
            }
        },
        None => 3,
    };
    println!(
        "Serializable traces, transactions of ten events, events in memory; nanoseconds for an event,\n\
         the best of {rounds} rounds. `growth` is Davida's time for an event against that of the short trace.\n"
    );
    println!(
        "{:>8} {:>9} {:>5} {:>10} {:>7} {:>7} {:>7} {:>6}  {:6} {:>7} {:>6}",
        "threads",
        "variables",
        "locks",
        "events",
        "null",
        "Davida",
        "ratio",
        "goal",
        "",
        "growth",
        "goal"
    );
    for threads in THREADS {
        for variables in VARIABLES {
            for locks in LOCKS {
                serializable(threads, variables, locks, rounds);
            }
        }
    }
    println!("\nThe same trace with and without a violation at every tenth event:\n");
    println!(
        "{:>8} {:>10} {:>10} {:>8} {:>8} {:>7} {:>6}",
        "threads", "events", "violations", "without", "with", "ratio", "goal"
    );
    for threads in THREADS {
        violating(threads, rounds);
    }
}

fn serializable(threads: u32, variables: u32, locks: u32, rounds: usize) {
    let goal = if threads > 16 { 4.0 } else { 2.5 };
    let mut short = None;
    for events in SIZES {
        let workload = Workload { events, threads, variables, kind: Kind::Locked { locks } };
        let (times, violations) = measure(&workload, rounds);
        assert_eq!(violations, 0, "the workload is serializable");
        let growth = short.map_or_else(String::new, |short| verdict(times.davida / short, 1.2));
        short.get_or_insert(times.davida);
        println!(
            "{threads:>8} {variables:>9} {locks:>5} {events:>10} {:>7.1} {:>7.1} {:<22} {growth}",
            times.null,
            times.davida,
            format!(" {}", verdict(times.ratio(), goal)),
        );
    }
}

fn violating(threads: u32, rounds: usize) {
    let events = SIZES[0];
    let [(without, none), (with, violations)] = [false, true].map(|violating| {
        let kind = Kind::Intruded { violating };
        measure(&Workload { events, threads, variables: 4096, kind }, rounds)
    });
    assert_eq!(none, 0, "the workload without violations has none");
    println!(
        "{threads:>8} {events:>10} {violations:>10} {:>8.1} {:>8.1} {}",
        without.davida,
        with.davida,
        verdict(with.davida / without.davida, 2.0),
    );
}
