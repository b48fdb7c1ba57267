//! Benchmark of the cost of checking, compared with the least that could be done with the same traces. Run
//! by `cargo xtask bench checker`. Inner parts are timed in `parts`.
//!
//! The passes compared run in turn in each of several rounds; a ratio is the median of those of the rounds. Times are
//! those that the thread had a processor.

mod algorithms;
mod measure;
mod null;
mod passes;
mod workload;

use measure::{Goals, Samples, time};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use workload::{Kind, Workload};

const USAGE: &str = "usage: cargo xtask bench checker [--quick] [--algorithms | --reading] [--events N] [--rounds N]";

const THREADS: [u32; 3] = [4, 16, 64];

/// Numbers of variables for measuring memory: the short trace uses each of them dozens of times, so that
/// all of their state exists by its end.
const LASTING: [u32; 2] = [100, 10_000];

/// Amount of measurement.
struct Plan {
    /// Number of events of the short and the long traces.
    sizes: [usize; 2],
    variables: Vec<u32>,
    locks: Vec<u32>,
    rounds: usize,
    /// Set if only the algorithms are compared.
    only_algorithms: bool,
    /// Set if only reading is measured.
    only_reading: bool,
}

impl Plan {
    const FULL: usize = 10_000_000;
    const QUICK: usize = 1_000_000;

    fn new(arguments: &[String]) -> Option<Self> {
        let mut plan = Self {
            sizes: [Self::FULL / 10, Self::FULL],
            variables: vec![100, 1_000_000],
            locks: vec![1, 16],
            rounds: 5,
            only_algorithms: false,
            only_reading: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || arguments.next()?.parse().ok().filter(|&number| number > 0);
            match argument.as_str() {
                // Added by `cargo bench`.
                "--bench" => {}
                "--quick" => {
                    plan.sizes = [Self::QUICK / 10, Self::QUICK];
                    plan.variables = vec![100];
                    plan.rounds = 3;
                }
                "--algorithms" => plan.only_algorithms = true,
                "--reading" => plan.only_reading = true,
                "--events" => {
                    let events: usize = number()?;
                    plan.sizes = [events.div_ceil(10), events];
                }
                "--rounds" => plan.rounds = number()?,
                _ => return None,
            }
        }
        Some(plan)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // A separate process for each peak of memory.
    if let [command, file] = &arguments[..]
        && command == "peak"
    {
        passes::davida_of_file(Path::new(file));
        println!("{}", passes::peak().unwrap_or(0));
        return;
    }
    // `cargo test --benches` only checks that it runs.
    let tested = !arguments.iter().any(|argument| argument == "--bench");
    let plan =
        if tested { Plan::new(&["--events".into(), "2000".into()]) } else { Plan::new(&arguments) };
    let Some(plan) = plan else {
        eprintln!("{USAGE}");
        exit(2);
    };
    let mut goals = Goals::default();
    let rounds = plan.rounds;
    if plan.only_algorithms {
        println!("Nanoseconds for an event, medians of {rounds} rounds.");
        algorithms::compare(&plan, &mut goals);
        algorithms::growth(&plan);
        println!("\n{goals}");
        return;
    }
    if plan.only_reading {
        println!("Nanoseconds for an event, medians of {rounds} rounds.");
        reading(&plan, &mut goals);
        println!("\n{goals}");
        return;
    }
    println!(
        "Nanoseconds for an event, medians of {rounds} rounds. The null pass reads the same .avt and touches the state of\n\
         each event's object; growth is Davida's time for an event of the long trace beside that of the short one.\n"
    );
    println!("Serializable traces, transactions of ten events:");
    println!(
        "{:>7} {:>9} {:>5} {:>9} {:>7} {:>7} {:>7}{:<13} {:>7}",
        "threads", "variables", "locks", "events", "null", "Davida", "ratio", "  goal", "growth"
    );
    for threads in THREADS {
        for &variables in &plan.variables {
            for &locks in &plan.locks {
                serializable(
                    &plan,
                    &mut goals,
                    Workload { events: 0, threads, variables, kind: Kind::Locked { locks } },
                );
            }
        }
    }
    println!("\nThe same trace with and without a violation at every tenth event:");
    println!("{:>7} {:>10} {:>8} {:>8} {:>7}", "threads", "violations", "without", "with", "ratio");
    for threads in THREADS {
        violating(&plan, &mut goals, threads);
    }
    algorithms::compare(&plan, &mut goals);
    algorithms::growth(&plan);
    reading(&plan, &mut goals);
    let directory = scratch();
    println!("\nPeak memory of a process that checks a file as it reads it, in MiB:");
    println!("{:>7} {:>9} {:>9} {:>9} {:>7}", "threads", "variables", "short", "long", "ratio");
    for variables in LASTING {
        memory(
            &plan,
            &mut goals,
            &directory,
            Workload { events: 0, threads: 16, variables, kind: Kind::Locked { locks: 16 } },
        );
    }
    std::fs::remove_dir_all(&directory).expect("the directory is there");
    println!("\n{goals}");
}

/// Measures reading, and compares the sizes of the two formats.
fn reading(plan: &Plan, goals: &mut Goals) {
    println!("\nReading text, beside counting lines: in memory, and of a file line by line:");
    println!(
        "{:>7} {:>9} {:>7} {:>7} {:>7}{:<13} {:>7} {:>7} {:>7}",
        "threads", "variables", "lines", "read", "ratio", "  goal", "lines", "read", "ratio"
    );
    let directory = scratch();
    let workload = |threads, variables| Workload {
        events: plan.sizes[1],
        threads,
        variables,
        kind: Kind::Locked { locks: 16 },
    };
    for &variables in &plan.variables {
        text(plan, goals, &directory, workload(16, variables));
    }
    std::fs::remove_dir_all(&directory).expect("the directory is there");
    println!("\nThe same trace as text and as .avt, in MB, and reading the latter:");
    println!(
        "{:>7} {:>9} {:>7} {:>7} {:>7}{:<13} {:>7}",
        "threads", "variables", "text", ".avt", "ratio", "  goal", "read"
    );
    for threads in THREADS {
        for &variables in &plan.variables {
            sizes(plan, goals, workload(threads, variables));
        }
    }
}

/// Compares the sizes of a trace in both formats.
fn sizes(plan: &Plan, goals: &mut Goals, workload: Workload) {
    let Workload { events, threads, variables, .. } = workload;
    let avt = workload.avt();
    let [text, size] = [Workload::text(&avt).len(), avt.len()].map(|bytes| bytes as f64 / 1e6);
    let mut read = Samples::default();
    for _ in 0..plan.rounds {
        read.add(time(events, || passes::read(&avt)));
    }
    let (read, verdict) = (read.median(), goals.verdict(size / text, 0.5));
    println!("{threads:>7} {variables:>9} {text:>7.1} {size:>7.1} {verdict} {read:>7.1}");
}

/// Measures two traces, one ten times as long as the other: one line each.
fn serializable(plan: &Plan, goals: &mut Goals, workload: Workload) {
    let Workload { threads, variables, kind, .. } = workload;
    let Kind::Locked { locks } = kind else { return };
    let traces = plan.sizes.map(|events| Workload { events, ..workload }.avt());
    let mut growth = Samples::default();
    let mut null: [Samples; 2] = Default::default();
    let mut davida: [Samples; 2] = Default::default();
    let mut ratio: [Samples; 2] = Default::default();
    for _ in 0..plan.rounds {
        let mut times = [0.0; 2];
        for (index, (trace, events)) in traces.iter().zip(plan.sizes).enumerate() {
            let floor = time(events, || passes::null(trace));
            times[index] = time(events, || {
                let violations = passes::davida(trace);
                assert_eq!(violations, 0, "the workload is serializable");
                violations
            });
            null[index].add(floor);
            davida[index].add(times[index]);
            ratio[index].add(times[index] / floor);
        }
        growth.add(times[1] / times[0]);
    }
    let goal = if threads > 16 { 4.0 } else { 2.5 };
    for index in 0..2 {
        println!(
            "{threads:>7} {variables:>9} {locks:>5} {:>9} {:>7.1} {:>7.1} {} {}",
            plan.sizes[index],
            null[index].median(),
            davida[index].median(),
            goals.verdict(ratio[index].median(), goal),
            if index == 1 { goals.verdict(growth.median(), 1.2) } else { String::new() },
        );
    }
}

/// Measures a trace full of violations, and the same one without.
fn violating(plan: &Plan, goals: &mut Goals, threads: u32) {
    let events = plan.sizes[0];
    let traces = [false, true].map(|violating| {
        let kind = Kind::Intruded { violating };
        Workload { events, threads, variables: 4096, kind }.avt()
    });
    let mut violations = [0; 2];
    let (mut without, mut with, mut ratio) =
        (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..plan.rounds {
        let mut times = [0.0; 2];
        for index in 0..2 {
            times[index] = time(events, || {
                violations[index] = passes::davida(&traces[index]);
                violations[index]
            });
        }
        without.add(times[0]);
        with.add(times[1]);
        ratio.add(times[1] / times[0]);
    }
    assert_eq!(violations[0], 0, "the workload without violations has none");
    println!(
        "{threads:>7} {:>10} {:>8.1} {:>8.1} {}",
        violations[1],
        without.median(),
        with.median(),
        goals.verdict(ratio.median(), 2.0),
    );
}

/// Measures a text trace: reading it, and only counting its lines.
fn text(plan: &Plan, goals: &mut Goals, directory: &Path, workload: Workload) {
    let Workload { events, threads, variables, .. } = workload;
    let text = Workload::text(&workload.avt());
    let path = directory.join("trace.std");
    std::fs::write(&path, &text).expect("there is room for the file");
    let mut samples: [Samples; 6] = Default::default();
    for _ in 0..plan.rounds {
        let times = [
            time(events, || passes::lines(&text)),
            time(events, || passes::read(&text)),
            time(events, || passes::lines_of_file(&path)),
            time(events, || passes::read_file(&path)),
        ];
        let ratios = [times[1] / times[0], times[3] / times[2]];
        for (samples, value) in samples.iter_mut().zip(times.into_iter().chain(ratios)) {
            samples.add(value);
        }
    }
    let [lines, read, file_lines, file_read, ratio, file_ratio] =
        samples.each_mut().map(Samples::median);
    println!(
        "{threads:>7} {variables:>9} {lines:>7.1} {read:>7.1} {} {file_lines:>7.1} {file_read:>7.1} {}",
        goals.verdict(ratio, 3.0),
        goals.verdict(file_ratio, 3.0),
    );
}

/// Measures the memory for checking a short and a long file.
fn memory(plan: &Plan, goals: &mut Goals, directory: &Path, workload: Workload) {
    let Workload { threads, variables, .. } = workload;
    let path = directory.join("trace.avt");
    let [short, long] = plan.sizes.map(|events| {
        let trace = Workload { events, ..workload }.avt();
        std::fs::write(&path, trace).expect("there is room for the file");
        peak(&path).unwrap_or(f64::NAN)
    });
    let verdict = goals.verdict(long / short, 1.1);
    println!("{threads:>7} {variables:>9} {short:>9.1} {long:>9.1} {verdict}");
}

/// Returns the peak memory of another process that checks the file, in MiB.
fn peak(path: &Path) -> Option<f64> {
    let own = std::env::current_exe().ok()?;
    let output = Command::new(own).arg("peak").arg(path).output().ok()?;
    let kibibytes: f64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    (kibibytes > 0.0).then_some(kibibytes / 1024.0)
}

fn scratch() -> PathBuf {
    let name = format!("avtrace-speed-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("there is room for files");
    directory
}
