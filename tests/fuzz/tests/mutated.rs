//! All targets with mutated inputs, the same in each run: as many as a test has time for. `AVTRACE_FUZZ_INPUTS` asks
//! for more, and `AVTRACE_FUZZ_SEED` for others.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use fuzz::{Generator, TARGETS, Target, mutated};

/// Inputs of each target.
const INPUTS: u64 = 4000;

/// Time for one input, a thousand times what any input needs: a longer run is endless.
const LIMIT: Duration = Duration::from_secs(120);

/// Most memory in KiB that all targets together may use at once.
const MEMORY: u64 = 1 << 20;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs one input, and shows it if the target panics.
fn try_input(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        panic!("{} with {:?}", target.name, input.escape_ascii().to_string());
    }
}

fn run(target: &'static Target) {
    let (seed, inputs) = (number("AVTRACE_FUZZ_SEED"), number("AVTRACE_FUZZ_INPUTS"));
    let (sender, progress) = mpsc::channel();
    let work = thread::spawn(move || {
        let mut random = Generator(seed.unwrap_or(1));
        let seeds = (target.seeds)();
        let mutations =
            (0..inputs.unwrap_or(INPUTS)).map(|_| mutated(&seeds, target.words, &mut random));
        for input in seeds.clone().into_iter().chain(mutations) {
            // The receiver has gone where it has given up.
            let _ = sender.send(input.clone());
            try_input(target, &input);
        }
    });
    let mut latest = Vec::new();
    loop {
        match progress.recv_timeout(LIMIT) {
            Ok(input) => latest = input,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} does not end with {:?}", target.name, latest.escape_ascii().to_string());
            }
        }
    }
    work.join().unwrap_or_else(|_| panic!("{} has panicked, as said above", target.name));
    let status = fs::read_to_string("/proc/self/status").expect("the status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < MEMORY, "{}: {peak} KiB were used", target.name);
}

#[track_caller]
fn run_named(name: &str) {
    run(TARGETS.iter().find(|target| target.name == name).expect("a target"));
}

macro_rules! targets {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            run_named(stringify!($name));
        })*

        #[test]
        fn each_target_has_a_test() {
            let mut tests = vec![$(stringify!($name)),*];
            let mut names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            (tests.sort_unstable(), names.sort_unstable());
            assert_eq!(tests, names);
        }
    };
}

targets!(spec, report, maps, patterns, kernel_records, inline_records, rings, notes, machine_code);

#[test]
fn inputs_depend_on_the_seed_alone() {
    let seeds = [b"one".to_vec(), b"another".to_vec()];
    let inputs = |seed| -> Vec<Vec<u8>> {
        let mut random = Generator(seed);
        (0..100).map(|_| mutated(&seeds, &[b"word"], &mut random)).collect()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
}
