//! Probes in the traced process (`--capture inline`): they find what the kernel's find, as root and as any user, and
//! the program runs as without them, also when avtrace is killed.

use std::{
    process::{Child, Command},
    time::{Duration, Instant},
};

use tests::{Avtrace, Program, c, cpp, machine, process::child_of, runs, tracer::native};

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

/// An exit of two bytes gets room by the call before it, or from a function nearby.
#[test]
fn a_region_with_a_short_exit_is_checked() {
    for optimisation in ["-O1", "-O2", "-Os"] {
        // A region ends where its function jumps to another one.
        let program = c("tail_exit", &["-g", optimisation, "-fno-optimize-sibling-calls"]);
        let run = Avtrace::on(&program).inline().options(["--atomic", "turn"]);
        let (ended, report) = run.report();
        assert_eq!(ended.code, Some(66), "{optimisation}: {}", ended.stderr);
        assert_eq!(report.only_violation().region, "turn", "{optimisation}: {}", ended.stderr);
    }
}

#[test]
fn a_report_that_found_nothing_says_where_nobody_came_in() {
    let program = c("tail_exit", &["-g", "-O1"]);
    let run = |arguments: &[&str]| {
        let run = Avtrace::on(&program).inline().options(["--atomic", "turn"]);
        run.arguments(arguments).run().stderr.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let note = "`turn` released mutex `account.lock` and took it again once, and nobody came between: \
                `avtrace hunt -- ";
    let alone = run(&["alone"]);
    assert!(alone.contains("no atomicity violation found") && alone.contains(note), "{alone}");
    let cut = run(&[]);
    assert!(!cut.contains("nobody came between"), "{cut}");
}

#[test]
fn a_run_in_which_nothing_was_checked_may_have_a_status_of_its_own() {
    let run = |options: &[&str]| Avtrace::on_path("/bin/true").options(options).run();
    let ended = run(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing was checked"), "{}", ended.stderr);
    let ended = run(&["--fail-on", "nothing-checked"]);
    assert_eq!(ended.code, Some(67), "{}", ended.stderr);
    // Where something was checked, it counts as `likely` does.
    let program = c("tail_exit", &["-g", "-O1"]);
    for (arguments, expected) in [(&[][..], 66), (&["alone"], 0)] {
        let options = ["--atomic", "turn", "--fail-on", "nothing-checked"];
        let run =
            Avtrace::on(&program).inline().seeing_memory().options(options).arguments(arguments);
        let ended = run.run();
        assert_eq!(ended.code, Some(expected), "{}", ended.stderr);
    }
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
fn no_event_is_lost_where_threads_wait_for_the_reader() {
    let program = c("lockloop", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program).inline().arguments(["4", "5000"]).report();
    assert_eq!((ended.code, report.counts.lost_events), (Some(0), 0), "{}", ended.stderr);
    assert!(report.counts.transactions >= 20_000);
}

#[test]
fn exceptions_come_to_their_landing_pads() {
    for level in ["-O0", "-O2"] {
        let program = cpp("once", &["-g", "-std=c++20", level]);
        let alone = native(&program.path, ["throws"], None);
        for _ in 0..runs(5) {
            let ended = inline(&program, false).arguments(["throws"]).run();
            assert_eq!((ended.code, &ended.stdout), (Some(0), &alone.stdout), "{}", ended.stderr);
        }
    }
}

#[test]
fn a_program_that_replaces_another_one_gets_probes() {
    let program = c("bank", &["-g", "-O1"]);
    let script = format!("exec {}", program.path.display());
    let (ended, reports) =
        Avtrace::on_path("/bin/sh").inline().arguments(["-c", &script]).reports();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let last = reports.last().expect("a report");
    assert_eq!(last.only_violation().region, "transfer");
}

#[test]
fn a_library_that_is_loaded_later_gets_probes() {
    let host = c("host", &["-g", "-O2"]);
    let library = c("plugin", &["-g", "-O2", "-shared", "-fPIC", "-DMARKED"]);
    let library = library.path.to_str().expect("text");
    // Unloaded and loaded anew, it has them again.
    let fixed = format!("{library}:fixed");
    let (ended, report) = Avtrace::on(&host).inline().arguments([&fixed, library]).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(report.only_violation().region, "refill");
}

/// Kills avtrace at several moments, from before the program's start until near its end. A program that has started
/// writes `0` to a file when all that it does has gone right.
#[test]
fn a_killed_avtrace_leaves_the_program_running() {
    let program = c("outlives_tracer", &["-g", "-O2"]);
    let folder = tests::folder();
    let mut completed = 0;
    for step in 0..6 {
        let [started, done] = ["started", "done"].map(|name| folder.path().join(name));
        let files = [&started, &done];
        files.iter().for_each(|file| drop(std::fs::remove_file(file)));
        let mut running = inline(&program, false).arguments(files).start();
        // Twice before the start, or just after it.
        if step >= 2 {
            running.await_that("the program runs", |_| started.exists());
        }
        std::thread::sleep(Duration::from_millis(100 * step));
        let child = child_of(running.pid(), &program.path);
        running.signal("KILL");
        let Some(child) = child else { continue };
        let stat = format!("/proc/{child}/stat");
        let is_there = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let killed = Instant::now();
        while is_there() {
            assert!(killed.elapsed() < Duration::from_secs(30), "{child} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        if started.exists() {
            assert_eq!(std::fs::read_to_string(&done).ok().as_deref(), Some("0"), "step {step}");
            completed += 1;
        }
    }
    assert!(completed >= 4, "{completed}");
}

/// Kills avtrace while programs replace one another, from before a program's entry point until after it.
#[test]
fn a_killed_avtrace_leaves_programs_that_replace_one_another_running() {
    const PROGRAMS: usize = 3;
    let program = c("exec_loop", &["-g", "-O2"]);
    let script = format!("{} {PROGRAMS}; echo $?", program.path.display());
    for round in 0..runs(4) {
        let run = Avtrace::on_path("/bin/sh").inline().options(["--follow-forks"]);
        let mut running = run.arguments(["-c", &script]).start();
        running.await_stdout(&"x".repeat(round % PROGRAMS + 1));
        std::thread::sleep(Duration::from_millis(23 * (round / PROGRAMS) as u64));
        running.signal("KILL");
        running.await_end(|_| {});
        let expected = format!("{}done\n7\n", "x".repeat(PROGRAMS));
        assert_eq!(running.await_closed_stdout(), expected, "round {round}");
    }
}

#[test]
fn a_process_that_is_left_behind_gets_its_own_code_back() {
    let program = c("left_behind", &["-g", "-O2"]);
    for as_nobody in users() {
        let mut running = inline(&program, *as_nobody).options(["--follow-forks"]).start();
        running.await_stdout("probed\n");
        let first = |pid| child_of(pid, &program.path);
        let has_ended = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        };
        running.await_that("the first process ends", |pid| first(pid).is_none_or(has_ended));
        std::thread::sleep(Duration::from_millis(300));
        running.signal("INT");
        let output = running.await_closed_stdout();
        assert_eq!(output, "probed\nrestored\nall increments\n", "{}", running.stderr());
        running.await_end(|_| {});
    }
}

/// A thread of avtrace's gets next to no time beside this.
struct Starver(Child);

impl Starver {
    /// Starves the thread of a process that has this name.
    fn of(process: u32, name: &str) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let thread = tasks.filter_map(Result::ok).find(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        });
        let thread = thread.expect("a thread with this name").file_name().into_string().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        let first = allowed.unwrap().split(['-', ',']).next().unwrap().to_owned();
        for command in [["taskset", "-pc", &first, &thread], ["chrt", "-ip", "0", &thread]] {
            let ended = Command::new(command[0]).args(&command[1..]).output().unwrap();
            assert!(ended.status.success(), "{command:?}: {ended:?}");
        }
        let mut endless = Command::new("taskset");
        Self(endless.args(["-c", &first, "sh", "-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Starver {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// The rings are full all the time: a thread that records waits for the reader, wherever it is stopped.
#[test]
fn a_process_gets_its_own_code_back_from_a_tracer_that_has_no_time() {
    if !machine::have("taskset") || !machine::have("chrt") {
        return machine::skip("no taskset or chrt");
    }
    let program = c("left_behind", &["-g", "-O2"]);
    let mut running = inline(&program, false).options(["--follow-forks"]).start();
    running.await_stdout("probed\n");
    let starver = Starver::of(running.pid(), "avtrace-checker");
    std::thread::sleep(Duration::from_secs(1));
    running.signal("INT");
    let output = running.await_closed_stdout();
    drop(starver);
    assert_eq!(output, "probed\nrestored\nall increments\n", "{}", running.stderr());
    running.await_end(|_| {});
}

/// Python denies itself memory that becomes executable, and becomes avtrace.
#[test]
fn a_program_that_denies_new_code_is_refused() {
    if !machine::have("python3") {
        return machine::skip("no python3");
    }
    let command = Avtrace::on(&c("bank", &["-g", "-O1"])).inline().command();
    let arguments = std::iter::once(command.get_program()).chain(command.get_args());
    let script = "import ctypes, os, sys\n\
                  failed = ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)\n\
                  sys.exit(77) if failed else os.execvp(sys.argv[1], sys.argv[1:])";
    let python = ["-c".as_ref(), script.as_ref()];
    let ended = native("python3", python.into_iter().chain(arguments), None);
    if ended.code == Some(77) {
        return machine::skip("the kernel has no PR_SET_MDWE");
    }
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("PR_SET_MDWE"), "{}", ended.stderr);
}

#[test]
fn what_needs_the_kernel_says_so() {
    let program = c("bank", &["-g", "-O1"]);
    let ended = Avtrace::on(&program).inline().options(["--perf-probes"]).run();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--capture kernel"), "{}", ended.stderr);
}

/// A program whose core is dumped would write all of the memory that it shares, and more.
#[test]
fn shared_memory_is_left_out_of_core_dumps() {
    let ended = Avtrace::on_path("cat").inline().arguments(["/proc/self/smaps"]).run();
    let mut mappings = 0;
    let mut flags = ended.stdout.lines();
    while let Some(line) = flags.next() {
        if line.contains("avtrace") {
            mappings += 1;
            let flags = flags.find(|line| line.starts_with("VmFlags:"));
            assert!(flags.is_some_and(|flags| flags.contains(" dd")), "{line}: {flags:?}");
        }
    }
    assert!(mappings >= 2, "{ended:#?}");
}

#[test]
fn a_program_with_little_address_space_gets_probes() {
    let program = c("bank", &["-g", "-O1"]);
    let script = format!("ulimit -v 500000; exec {}", program.path.display());
    let (ended, reports) =
        Avtrace::on_path("/bin/sh").inline().arguments(["-c", &script]).reports();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let last = reports.last().expect("a report");
    assert_eq!(last.only_violation().region, "transfer");
}
