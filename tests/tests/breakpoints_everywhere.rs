//! Some probes are breakpoints in every process that maps a file: perf events, and the probes of a process whose main
//! thread has ended. avtrace does not set them while another process has inline probes, which they would break. So the
//! tests of this suite run one after the other, and each waits until other processes have no inline probes.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tests::{Avtrace, Ended, Report, Service, c, machine, process::Running, require_bpf, service};

/// Longest time that a test waits for processes with inline probes to end.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process with inline probes that is not of this test.
#[derive(Debug)]
struct Stranger(u32);

impl Stranger {
    /// Finds a process with inline probes.
    fn any() -> Option<Self> {
        let has_probes = |pid: &u32| {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
            maps.is_ok_and(|maps| maps.contains("/memfd:avtrace"))
        };
        let entries = fs::read_dir("/proc").expect("the processes").flatten();
        let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        processes.find(has_probes).map(Self)
    }

    /// Finds a process, other than `own`, in what avtrace said about breakpoints that it did not set.
    fn named(said: &str, own: Option<u32>) -> Option<Self> {
        // Warnings are broken into lines.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = said.split("would break process ").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            rest[..end].parse().ok()
        });
        let mut others = named.filter(|&named| Some(named) != own);
        others.next().map(Self)
    }

    /// Returns an error if avtrace has named such a process.
    fn none_named(said: &str, own: Option<u32>) -> Result<(), Self> {
        Self::named(said, own).map_or(Ok(()), Err)
    }
}

/// Runs a test while no other process has inline probes. If one appears during the test, the test runs again.
fn alone(test: impl Fn() -> Result<(), Stranger>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = Stranger::any().map_or_else(&test, Err);
        // This process has the breakpoints too. The kernel removes them after avtrace has ended.
        while let Some(changed) = service::changed_code(std::process::id()) {
            assert!(Instant::now() < until, "breakpoints stay: {changed}");
            thread::sleep(Duration::from_millis(100));
        }
        let Err(Stranger(process)) = seen else {
            return;
        };
        if Instant::now() > until {
            return machine::skip(&format!("process {process} of somebody else has inline probes"));
        }
        thread::sleep(Duration::from_millis(100));
    }
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

    /// Has it go on and end. Returns what avtrace said. `own` is the only process with inline probes.
    fn end(self, own: Option<u32>) -> Result<String, Stranger> {
        File::create(&self.go_on).expect("a file");
        let ended = self.running.wait();
        Stranger::none_named(&ended.stderr, own)?;
        let end = (ended.code, &*ended.stdout);
        assert_eq!(end, (Some(66), "alone\nbalance: 995\n"), "{}", ended.stderr);
        assert!(ended.stderr.contains("mutex `lock`"), "{}", ended.stderr);
        Ok(ended.stderr)
    }
}

#[test]
fn a_process_outlives_its_main_thread() {
    require_bpf!();
    alone(|| {
        let (ended, report) = Avtrace::on(&c("leaderless", &["-g", "-O2"]))
            .options(["--error-exitcode=70"])
            .arguments(["watched"])
            .report();
        Stranger::none_named(&report.not_seen["limitations"].to_string(), None)?;
        let Ended { code, stdout, stderr, .. } = &ended;
        assert_eq!((*code, &**stdout), (Some(70), "alone\nbalance: 995\n"), "{stderr}");
        assert_eq!(report.subject.exit_code, Some(3));
        let mut evidence: Vec<&str> =
            report.violations.iter().map(|violation| &*violation.evidence).collect();
        evidence.sort_unstable();
        evidence.dedup();
        assert_eq!(evidence, ["data", "sync"], "locks and accesses: {:#?}", report.violations);
        for violation in &report.violations {
            assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
        }
        Ok(())
    });
}

#[test]
fn a_process_without_its_main_thread_keeps_its_probes_when_others_detach() {
    require_bpf!();
    alone(|| {
        let flags = ["-g", "-O1"];
        let leaderless = Leaderless::start(&flags);
        // The same probes of somebody else come and go.
        let other = Avtrace::on(&c("leaderless", &flags)).capturing("kernel").run();
        Stranger::none_named(&other.stderr, None)?;
        assert_eq!(other.code, Some(66), "{}", other.stderr);
        let said = leaderless.end(None)?;
        assert!(!said.contains("the probes may have gone with it"), "{said}");
        Ok(())
    });
}

#[test]
fn inline_probes_are_not_broken_by_a_process_without_its_main_thread() {
    require_bpf!();
    alone(|| {
        let mut service = Service::start();
        let inline = service.attach(&["--capture", "inline", "--accesses", "probe"]);
        service.does("t");
        let own = service.pid();
        let said = Leaderless::start(&["-g", "-O2", "-DINLINE"]).end(Some(own))?;
        let harm = format!("would break process {own}, which has inline probes");
        assert!(said.contains(&harm), "{said}");
        service.does("tn");
        inline.signal("INT");
        let ended = inline.wait();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        let report = service.report();
        assert_eq!(report.only_violation().region, "transfer");
        service.end();
        Ok(())
    });
}

#[test]
fn probes_as_perf_events_are_refused_beside_inline_probes() {
    require_bpf!();
    alone(|| {
        let mut service = Service::start();
        let inline = service.attach(&["--capture", "inline"]);
        let bank = c("bank", &["-g", "-O2"]);
        let ended = Avtrace::on(&bank).capturing("kernel").options(["--perf-probes"]).run();
        let own = service.pid();
        Stranger::none_named(&ended.stderr, Some(own))?;
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
        let harm = format!("would break process {own}, which has inline probes");
        assert!(ended.stderr.contains(&harm), "{}", ended.stderr);
        service.does("tn");
        inline.signal("INT");
        assert_eq!(inline.wait().code, Some(66));
        service.end();
        Ok(())
    });
}

/// Kernels before 6.6 need perf events for probes.
#[test]
fn a_run_with_probes_as_perf_events() {
    require_bpf!();
    alone(|| {
        let folder = tests::folder();
        let file = folder.path().join("report.json");
        let run = Avtrace::on(&c("bank", &["-g", "-O2"])).capturing("kernel");
        let run = run.options(["--perf-probes", "--format", "json", "-o"]).options([&file]);
        let ended = run.run();
        Stranger::none_named(&ended.stderr, None)?;
        let Ended { code, stdout, stderr, .. } = &ended;
        assert_eq!((*code, &**stdout), (Some(66), "balance: 900\n"), "{stderr}");
        assert!(stderr.contains("detach"), "the warning: {stderr}");
        let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
        assert_eq!(report.only_violation().cycle(), ["transfer", "audit", "transfer"]);
        Ok(())
    });
}

#[test]
fn processes_that_avtrace_has_spared_are_found_in_its_words() {
    let said = "the probes may have gone with it: breakpoints\n         in every process would break\n \
                process 7, which has inline probes of avtrace";
    assert_eq!(Stranger::named(said, None).map(|found| found.0), Some(7));
    assert_eq!(Stranger::named(said, Some(7)).map(|found| found.0), None);
    let both = format!("{said}; would break process 8 if it has inline probes");
    assert_eq!(Stranger::named(&both, Some(7)).map(|found| found.0), Some(8));
    assert_eq!(Stranger::named("balance: 900", None).map(|found| found.0), None);
}
