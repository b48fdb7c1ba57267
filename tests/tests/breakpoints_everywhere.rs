//! Breakpoints in every process that maps a file: probes as perf events, and those of a process whose main thread has
//! ended. They would break inline probes in other processes, so these tests run one after the other, and the others of
//! the workspace are in other suites.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tests::{Avtrace, Service, c, process::Running, require_bpf};

/// Held by a test while it runs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run of `leaderless.c` by the kernel's probes, whose main thread has ended, which avtrace has noticed.
struct Leaderless {
    running: Running,
    go_on: PathBuf,
    _folder: tempfile::TempDir,
}

impl Leaderless {
    /// The program is built with these flags, so that no other test has probes in its file.
    fn start(flags: &[&str]) -> Self {
        let folder = tests::folder();
        let go_on = folder.path().join("go-on");
        let run = Avtrace::on(&c("leaderless", flags)).capturing("kernel").arguments([&go_on]);
        let mut running = run.options(["--all"]).environment("RUST_LOG", "capture=debug").start();
        running.await_stdout("alone");
        running.await_stderr("the main thread has ended");
        Self { running, go_on, _folder: folder }
    }

    /// Has it go on and end. Returns what avtrace said.
    fn end(self) -> String {
        File::create(&self.go_on).expect("a file");
        let ended = self.running.wait();
        let end = (ended.code, &*ended.stdout);
        assert_eq!(end, (Some(66), "alone\nbalance: 995\n"), "{}", ended.stderr);
        assert!(ended.stderr.contains("mutex `lock`"), "{}", ended.stderr);
        ended.stderr
    }
}

#[test]
fn a_process_without_its_main_thread_keeps_its_probes_when_others_detach() {
    require_bpf!();
    let _alone = alone();
    let flags = ["-g", "-O1"];
    let leaderless = Leaderless::start(&flags);
    // The same probes of somebody else come and go.
    let other = Avtrace::on(&c("leaderless", &flags)).capturing("kernel").run();
    assert_eq!(other.code, Some(66), "{}", other.stderr);
    let said = leaderless.end();
    assert!(!said.contains("the probes may have gone with it"), "{said}");
}

#[test]
fn inline_probes_are_not_broken_by_a_process_without_its_main_thread() {
    require_bpf!();
    let _alone = alone();
    let mut service = Service::start();
    let inline = service.attach(&["--capture", "inline", "--accesses", "probe"]);
    service.does("t");
    let said = Leaderless::start(&["-g", "-O2", "-DINLINE"]).end();
    let harm = format!("would break process {}, which has inline probes", service.pid());
    assert!(said.contains(&harm), "{said}");
    service.does("tn");
    inline.signal("INT");
    let ended = inline.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = service.report();
    assert_eq!(report.only_violation().region, "transfer");
    service.end();
}

#[test]
fn probes_as_perf_events_are_refused_beside_inline_probes() {
    require_bpf!();
    let _alone = alone();
    let mut service = Service::start();
    let inline = service.attach(&["--capture", "inline"]);
    let bank = c("bank", &["-g", "-O2"]);
    let ended = Avtrace::on(&bank).capturing("kernel").options(["--perf-probes"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
    let harm = format!("would break process {}, which has inline probes", service.pid());
    assert!(ended.stderr.contains(&harm), "{}", ended.stderr);
    service.does("tn");
    inline.signal("INT");
    assert_eq!(inline.wait().code, Some(66));
    service.end();
}

/// Kernels before 6.6 need perf events for probes.
#[test]
fn a_run_with_probes_as_perf_events() {
    require_bpf!();
    let _alone = alone();
    let bank = c("bank", &["-g", "-O2"]);
    let (ended, report) =
        Avtrace::on(&bank).capturing("kernel").options(["--perf-probes"]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("detach"), "the warning: {}", ended.stderr);
    assert_eq!(report.only_violation().cycle(), ["transfer", "audit", "transfer"]);
}
