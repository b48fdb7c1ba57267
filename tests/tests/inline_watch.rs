//! Watchpoints of probes in the traced process: debug registers that any user may set in a program that the user may
//! trace. The program runs as without them, also when avtrace is killed.

use std::time::{Duration, Instant};

use tests::{Avtrace, Program, c, machine, process::child_of, runs};

/// Runs as root, and as a user without privileges where this process can become one.
fn users() -> &'static [bool] {
    if machine::is_root() && machine::have("setpriv") { &[false, true] } else { &[false] }
}

fn watching(program: &Program, as_nobody: bool, variable: &str) -> Avtrace {
    let run = Avtrace::on(program).inline().options(["--all", "--watch", variable]);
    if as_nobody { run.as_nobody() } else { run }
}

#[test]
fn anybody_watches_a_variable() {
    for &as_nobody in users() {
        let bank = c("bank", &["-g", "-O2"]);
        let ended = watching(&bank, as_nobody, "account.balance").run();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
        for part in ["writes `account.balance`: 995 -> 900", "1 watchpoint"] {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
        // Its address is known while it runs.
        let heap = c("shared_heap", &["-g", "-O2"]);
        let run = Avtrace::on(&heap).inline().arguments(["watched"]);
        let ended = if as_nobody { run.as_nobody() } else { run }.run();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "left: 9\n"), "{}", ended.stderr);
        assert!(ended.stderr.contains("writes `stock->left`: 20 -> 9"), "{}", ended.stderr);
    }
}

/// Accesses of the program alone are seen, each once, whether probes have displaced their instructions or not.
#[test]
fn every_access_is_seen_once() {
    let program = c("watched_traps", &["-g", "-O0"]);
    for how in ["plain", "block"] {
        let count = |level: &str| {
            let run = watching(&program, false, "sum").seeing_memory();
            let run = run.options(["--accesses", level]);
            let (ended, report) = run.arguments([how]).report();
            assert_eq!((ended.code, &*ended.stdout), (Some(0), "sum: 2000\n"), "{}", ended.stderr);
            assert_eq!(report.not_seen["undecoded_accesses"], 0, "{report:#?}");
            report.counts.events
        };
        let (alone, with_probes) = (count("sync"), count("probe"));
        // A lock, a read, a write and an unlock each time.
        assert!(alone >= 8000, "{how}: {alone}");
        assert!(
            with_probes.abs_diff(alone) <= 16,
            "{how}: {with_probes} with probes, {alone} without"
        );
    }
}

#[test]
fn other_traps_are_the_programs_own() {
    const SIGTRAP: i32 = 5;
    let program = c("watched_traps", &["-g", "-O2"]);
    let ended = watching(&program, false, "sum").arguments(["raise"]).run();
    assert_eq!(ended.stdout, "sum: 2000\n", "{}", ended.stderr);
    let died = ended.signal == Some(SIGTRAP) || ended.code == Some(128 + SIGTRAP);
    assert!(died, "{:?} {:?}: {}", ended.code, ended.signal, ended.stderr);
}

/// Debug registers stay set when their tracer dies: the program gets over its hits by itself.
#[test]
fn a_killed_avtrace_leaves_a_watched_program_running() {
    let program = c("outlives_tracer", &["-g", "-O2"]);
    let folder = tests::capture::folder();
    for step in 0..runs(4) as u64 {
        let [started, done] = ["started", "done"].map(|name| folder.path().join(name));
        let files = [&started, &done];
        files.iter().for_each(|file| drop(std::fs::remove_file(file)));
        let mut running = watching(&program, false, "count").arguments(files).start();
        running.await_that("the program runs", |_| started.exists());
        std::thread::sleep(Duration::from_millis(30 + 50 * step));
        let child = child_of(running.pid(), &program.path).expect("a program");
        running.signal("KILL");
        let stat = format!("/proc/{child}/stat");
        let is_there = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let killed = Instant::now();
        while is_there() {
            assert!(killed.elapsed() < Duration::from_secs(60), "{child} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(std::fs::read_to_string(&done).ok().as_deref(), Some("0"), "step {step}");
    }
}
