//! Probes in the traced process (`--capture inline`): they find what the kernel's find, as root and as any user, and
//! the program runs as without them, also when avtrace is killed.

use std::time::{Duration, Instant};

use tests::{Avtrace, Program, c, machine, tracer::native};

const NOTHING: [&str; 0] = [];

/// Runs as root, and as a user without privileges where this process can become one.
fn users() -> &'static [bool] {
    if machine::is_root() && machine::have("setpriv") { &[false, true] } else { &[false] }
}

fn inline(program: &Program, as_nobody: bool) -> Avtrace {
    let run = Avtrace::on(program).inline();
    if as_nobody { run.as_nobody() } else { run }
}

#[test]
fn the_bank_is_found_out_by_anybody() {
    for &as_nobody in users() {
        for name in ["bank", "bank_fixed"] {
            let program = c(name, &["-g", "-O1"]);
            let alone = native(&program.path, NOTHING, None);
            let ended = inline(&program, as_nobody).run();
            let is_found = name == "bank";
            let expected = if is_found { Some(66) } else { Some(0) };
            assert_eq!((ended.code, ended.stdout), (expected, alone.stdout), "{}", ended.stderr);
            assert_eq!(ended.stderr.contains("transfer"), is_found, "{}", ended.stderr);
        }
    }
}

#[test]
fn the_report_is_that_of_the_kernel_side() {
    let program = c("bank", &["-g", "-O1"]);
    let (ended, report) = Avtrace::on(&program).inline().report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let violation = report.only_violation();
    assert_eq!(violation.region, "transfer");
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    assert_eq!(report.counts.threads, 3, "main, teller and auditor");
    assert_eq!(report.counts.lost_events, 0);
}

#[test]
fn programs_run_as_without_avtrace() {
    for name in ["many_threads", "forks", "fork_exec"] {
        let program = c(name, &["-g", "-O1"]);
        let alone = native(&program.path, NOTHING, None);
        let ended = inline(&program, false).run();
        assert_eq!((ended.code, &ended.stdout), (alone.code, &alone.stdout), "{}", ended.stderr);
    }
}

#[test]
fn a_killed_avtrace_leaves_the_program_running() {
    let program = c("many_threads", &["-g", "-O1"]);
    for pause in (0..6).map(|step| Duration::from_millis(40 * step)) {
        let running = inline(&program, false).start();
        std::thread::sleep(pause);
        let avtrace = running.pid();
        let child = tests::process::child_of(avtrace, &program.path);
        running.signal("KILL");
        let Some(child) = child else { continue };
        // It ends by itself, and does not stand still.
        let stat = format!("/proc/{child}/stat");
        let is_there = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let started = Instant::now();
        while is_there() {
            assert!(started.elapsed() < Duration::from_secs(20), "{child} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn what_needs_the_kernel_says_so() {
    let program = c("bank", &["-g", "-O1"]);
    let ended = Avtrace::on(&program).inline().options(["--follow-forks"]).run();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--capture kernel"), "{}", ended.stderr);
}
