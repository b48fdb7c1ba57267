//! Differential test of the two back ends: programs whose order is forced have the same events, and threads meet in the
//! same order, whether probes are in the kernel or in the process.

use tests::streams::Stream;
use tests::{Avtrace, Program, c, cpp, require_bpf, rust};

/// Recording of a run, by a back end.
fn recorded(program: &Program, capture: &str, options: &[&str], arguments: &[&str]) -> Stream {
    let folder = tests::folder();
    let file = folder.path().join("t.avt");
    let run = Avtrace::on(program)
        .seeing_memory()
        .at_same_addresses()
        .capturing(capture)
        .options(options);
    let (ended, report) = run.options(["--record"]).options([&file]).arguments(arguments).report();
    let how = (ended.code, ended.signal);
    assert!(matches!(ended.code, Some(0 | 66)), "{capture}: {how:?} {}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{capture}");
    Stream::from_file(&file)
}

/// Runs by both back ends, and how they differ.
#[derive(Default)]
struct Runs {
    differences: Vec<String>,
}

impl Runs {
    /// Runs a program by both back ends.
    #[track_caller]
    fn compare(&mut self, program: &Program, options: &[&str], arguments: &[&str]) {
        let [kernel, inline] =
            ["kernel", "inline"].map(|capture| recorded(program, capture, options, arguments));
        let events: usize = kernel.threads.iter().map(Vec::len).sum();
        assert!(events > 5, "{events} events");
        let found = kernel.differences(&inline);
        let name = program.path.display();
        let run = format!("{name} {arguments:?} {options:?}: {events} events");
        println!("{run}, {} differences", found.len());
        if !found.is_empty() {
            self.differences.push(run);
            self.differences.extend(found);
        }
    }

    /// There is no difference.
    #[track_caller]
    fn are_the_same(&self) {
        assert!(self.differences.is_empty(), "{}", self.differences.join("\n"));
    }
}

const SYNC: &[&str] = &["--accesses", "sync"];
const PROBE: &[&str] = &["--accesses", "probe"];

#[test]
fn data_of_c() {
    require_bpf!();
    let mut runs = Runs::default();
    for level in ["-O0", "-O2"] {
        let program = c("data", &["-g", level]);
        for kind in ["global", "heap", "lost", "check", "torn"] {
            runs.compare(&program, PROBE, &[kind]);
        }
        // Optimised, an update in one step ends its function: only an inline probe has a place behind it.
        if level == "-O0" {
            runs.compare(&program, PROBE, &["lost", "fixed"]);
        }
    }
    runs.are_the_same();
}

#[test]
fn locks_of_c() {
    require_bpf!();
    let mut runs = Runs::default();
    for name in ["bank", "bank_fixed", "text"] {
        for level in ["-O0", "-O2"] {
            runs.compare(&c(name, &["-g", level]), SYNC, &[]);
            runs.compare(&c(name, &["-g", level]), PROBE, &[]);
        }
    }
    runs.are_the_same();
}

/// Waits, shared locks and barriers, with the words about each.
#[test]
fn other_synchronisation_of_c() {
    require_bpf!();
    let mut runs = Runs::default();
    for (name, kinds) in [
        ("condvar", &["wait", "timed", "timeout"][..]),
        ("semaphore", &["wait", "try", "pool", "busy"]),
        ("rwlock", &["plain", "try", "readers", "busy"]),
        ("once", &["split", "whole"]),
    ] {
        for &kind in kinds {
            runs.compare(&c(name, &["-g", "-O2"]), SYNC, &[kind]);
        }
    }
    runs.are_the_same();
}

#[test]
fn accessors_of_cpp() {
    require_bpf!();
    let mut runs = Runs::default();
    for name in ["account", "bank"] {
        for level in ["-O0", "-O2"] {
            let program = cpp(name, &["-g", level]);
            runs.compare(&program, SYNC, &[]);
            runs.compare(&program, PROBE, &[]);
        }
    }
    for kind in ["mutex", "recursive", "shared", "scoped"] {
        runs.compare(&cpp("mutexes", &["-g", "-O2"]), SYNC, &[kind]);
    }
    runs.are_the_same();
}

/// Without condition variables: nothing forces whether the lock around one is contended, which is at another line.
#[test]
fn locks_and_cells_of_rust() {
    require_bpf!();
    let mut runs = Runs::default();
    for is_optimized in [false, true] {
        let program = rust("data", is_optimized);
        for kind in ["mutex", "cell"] {
            runs.compare(&program, SYNC, &[kind]);
            runs.compare(&program, PROBE, &[kind]);
        }
        runs.compare(&rust("bank", is_optimized), SYNC, &[]);
        for kind in ["mutex", "rwlock", "parking-mutex", "parking-rwlock"] {
            runs.compare(&rust("locks", is_optimized), SYNC, &[kind, "split"]);
        }
    }
    runs.are_the_same();
}
