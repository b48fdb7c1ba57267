//! `avtrace attach` to several processes at once: by id, by name, by control group; with both back ends.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::Value;
use tests::{
    Report, Service, c, machine,
    process::{Running, TIME_LIMIT},
    require_bpf,
    service::changed_code,
    tracer::{avtrace, avtrace_with},
};

/// Name of a program that no other process has.
const NAME: &str = "avtrace-twin";

/// Back ends that trace several processes.
const BACK_ENDS: [&str; 2] = ["kernel", "inline"];

/// Running services, and the back end that traces them.
struct Services {
    all: Vec<Service>,
    folder: tempfile::TempDir,
    back_end: &'static str,
}

impl Services {
    fn start(back_end: &'static str, count: usize) -> Self {
        Self::named("service", back_end, count)
    }

    fn named(name: &str, back_end: &'static str, count: usize) -> Self {
        let all = (0..count).map(|_| Service::named(name)).collect();
        Self { all, folder: tempfile::tempdir().expect("a folder"), back_end }
    }

    fn pid(&self, number: usize) -> u32 {
        self.all[number].pid()
    }

    fn pids(&self) -> String {
        let pids: Vec<String> = self.all.iter().map(|it| it.pid().to_string()).collect();
        pids.join(",")
    }

    fn report_file(&self) -> PathBuf {
        self.folder.path().join("reports.json")
    }

    /// Starts avtrace with these options, and reports in a file. Returns once it is attached to all.
    fn attach(&self, options: &[&str]) -> Running {
        self.attach_by(Command::new(avtrace()), &[&["--capture", self.back_end], options].concat())
    }

    /// Starts avtrace by this command. The back end may be among the options.
    fn attach_by(&self, mut command: Command, options: &[&str]) -> Running {
        command.args(["attach", "--accesses", "probe", "--format", "json", "-o"]);
        let mut avtrace =
            Running::start(command.arg(self.report_file()).args(options), None, TIME_LIMIT);
        for service in &self.all {
            avtrace.await_stderr(&format!("attached to process {} (", service.pid()));
        }
        avtrace
    }

    /// The reports, in the order of their processes.
    fn reports(&self) -> Vec<Report> {
        let text = fs::read_to_string(self.report_file()).expect("reports");
        let mut reports: Vec<Report> = if text.lines().count() > 1 && text.starts_with("{\n") {
            vec![Report::parse(&text)]
        } else {
            text.lines().map(Report::parse).collect()
        };
        reports.sort_by_key(|report| {
            self.all.iter().position(|service| service.pid() == report.subject.pid)
        });
        reports
    }

    /// Ends all; each must have been left alone.
    fn end(self) {
        for mut service in self.all {
            service.await_own_code();
            service.is_left_alone();
            service.end();
        }
    }
}

fn check_transfer(report: &Report, pid: u32, occurrences: u64) {
    assert_eq!(report.subject.pid, pid);
    let violation = report.only_violation();
    assert_eq!((&*violation.region, violation.occurrences), ("transfer", occurrences));
    assert_eq!(report.counts.lost_events, 0);
}

#[test]
fn each_of_several_processes_has_its_defects_until_the_last_has_ended() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(finds_defects_of_each);
}

fn finds_defects_of_each(back_end: &'static str) {
    let mut services = Services::start(back_end, 2);
    let (one, other) = (services.pid(0), services.pid(1));
    let mut avtrace = services.attach(&["--pid", &services.pids()]);
    services.all[0].does("t");
    avtrace.await_stderr(&format!("avtrace: found: process {one}: `transfer` at service.c:"));
    services.all[1].does("t");
    avtrace.await_stderr(&format!("avtrace: found: process {other}: `transfer` at service.c:"));
    // The first ends, and the second is traced still.
    services.all[0].quit();
    services.all[0].running.await_end(|_| {});
    services.all[1].does("tt");
    avtrace.signal("USR1");
    avtrace.await_stderr(&format!("avtrace: so far of process {other}:\n"));
    services.all[1].quit();
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("found:").count(), 2, "{}", ended.stderr);
    let reports = services.reports();
    assert_eq!(reports.len(), 2);
    check_transfer(&reports[0], one, 1);
    check_transfer(&reports[1], other, 3);
    assert!(reports.iter().all(|report| report.subject.exit_code == Some(7)));
}

#[test]
fn a_signal_ends_the_tracing_of_all() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(ends_by_a_signal);
}

fn ends_by_a_signal(back_end: &'static str) {
    let mut services = Services::start(back_end, 2);
    let (one, other) = (services.pid(0).to_string(), services.pid(1).to_string());
    let avtrace = services.attach(&["--pid", &one, "--pid", &other]);
    services.all[1].does("t");
    avtrace.signal("TERM");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let reports = services.reports();
    assert_eq!((reports.len(), reports[0].counts.violations), (2, 0));
    check_transfer(&reports[1], services.pid(1), 1);
    // Once more by time, and by the number of defects.
    let avtrace = services.attach(&["--pid", &services.pids(), "--duration", "200ms"]);
    assert_eq!(avtrace.wait().code, Some(0));
    assert_eq!(services.reports().len(), 2);
    let avtrace = services.attach(&["--pid", &services.pids(), "--max-defects", "1"]);
    services.all[0].does("t");
    assert_eq!(avtrace.wait().code, Some(66));
    services.end();
}

#[test]
fn all_processes_go_on_when_avtrace_is_killed() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(leaves_all_when_killed);
}

fn leaves_all_when_killed(back_end: &'static str) {
    let mut services = Services::start(back_end, 2);
    let avtrace = services.attach(&["--pid", &services.pids()]);
    for service in &mut services.all {
        service.does("t");
    }
    avtrace.signal("KILL");
    assert_eq!(avtrace.wait().signal, Some(9));
    for service in &mut services.all {
        service.does("t");
    }
    if back_end == "kernel" {
        services.end();
    } else {
        // Their probes are there still, without effect.
        for service in services.all {
            assert!(changed_code(service.pid()).is_some());
            service.end();
        }
    }
}

#[test]
fn one_that_cannot_be_traced_leaves_the_others() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(leaves_out_one);
}

fn leaves_out_one(back_end: &'static str) {
    let mut services = Services::start(back_end, 1);
    let mut child = Command::new("true").spawn().expect("a process");
    while !has_ended(child.id()) {
        thread::sleep(Duration::from_millis(1));
    }
    let pids = format!("{},{},4000000", child.id(), services.pids());
    let mut avtrace = services.attach(&["--pid", &pids]);
    services.all[0].does("t");
    avtrace.await_stderr("avtrace: found: process ");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let ended_one = format!("avtrace: warning: process {} is not traced: process ", child.id());
    for said in [
        &*ended_one,
        "avtrace: warning: process 4000000 is not traced: there is no process 4000000 (`pgrep",
        "avtrace: warning: 2 of 3 processes were not traced\n",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    check_transfer(&services.reports()[0], services.pid(0), 1);
    let pids = format!("{},4000000", child.id());
    let none = avtrace_with(["attach", "--capture", back_end, "--pid", &pids]);
    assert_eq!((none.code, &*none.stdout), (Some(3), ""), "{}", none.stderr);
    assert!(none.stderr.contains("none of the 2 processes can be traced"), "{}", none.stderr);
    child.wait().expect("its end");
    services.end();
}

#[test]
fn the_usual_limit_of_descriptors_is_no_limit_of_processes() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(takes_few_descriptors);
}

fn takes_few_descriptors(back_end: &'static str) {
    let mut services = Services::start(back_end, 3);
    let (pids, report) = (services.pids(), services.report_file());
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 160; exec \"$@\"", "sh"]).arg(avtrace());
    command.args(["attach", "--capture", back_end, "--accesses", "probe"]);
    command.args(["--format", "json", "--pid", &pids, "-o"]);
    let mut avtrace = Running::start(command.arg(report), None, TIME_LIMIT);
    for service in &services.all {
        avtrace.await_stderr(&format!("attached to process {} (", service.pid()));
    }
    services.all[2].does("t");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let reports = services.reports();
    assert_eq!(reports.len(), 3);
    check_transfer(&reports[2], services.pid(2), 1);
    services.end();
}

fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z'))
}

#[test]
fn processes_are_found_by_name() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(finds_by_name);
}

fn finds_by_name(back_end: &'static str) {
    let mut services = Services::named(NAME, back_end, 2);
    let avtrace = services.attach(&["--name", NAME]);
    for service in &mut services.all {
        service.does("t");
    }
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(66));
    let reports = services.reports();
    assert_eq!(reports.len(), 2);
    for (number, report) in reports.iter().enumerate() {
        check_transfer(report, services.pid(number), 1);
    }
    let refused = avtrace_with(["attach", "--name", "avtrace-twim"]);
    assert_eq!((refused.code, &*refused.stdout), (Some(3), ""), "{}", refused.stderr);
    // Processes of other tests may be near as well.
    let (near, names) = refused.stderr.split_once("; near are ").expect("names that are near");
    assert!(near.ends_with("no process is named `avtrace-twim`"), "{}", refused.stderr);
    assert!(names.contains(&format!("`{NAME}` (")), "{}", refused.stderr);
    services.end();
}

#[test]
fn what_selects_no_process_is_refused() {
    let refused = |options: &[&str], status, text: &str| {
        let ended = avtrace_with(["attach"].iter().chain(options));
        assert_eq!((ended.code, &*ended.stdout), (Some(status), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    };
    refused(&[], 2, "--pid");
    refused(&["--name", ""], 2, "--name");
    refused(&["--pid", "1,x"], 2, "invalid value 'x'");
    let unknown = "%qqqqqqqqqqqqqqq%";
    refused(&["--name", unknown], 3, "`ps -e` lists the names of processes");
    refused(&["--cgroup", "/no/such/group"], 3, "there is no cgroup v2 `/no/such/group`");
    refused(&["--cgroup", "/proc"], 3, "there is no cgroup v2 `/proc`");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        refused(&["--name", "kthreadd"], 3, "name a process that runs one (`ps -ef` has");
    }
}

/// A control group that is removed when this is dropped.
struct Group(PathBuf);

impl Group {
    fn make(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    fn takes(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a group");
    }

    /// Freezes its processes, or has them go on, and waits until they do.
    fn freeze(&self, is_frozen: bool) {
        let number = u8::from(is_frozen);
        fs::write(self.0.join("cgroup.freeze"), number.to_string()).expect("its freezer");
        let state = format!("frozen {number}");
        while !fs::read_to_string(self.0.join("cgroup.events")).expect("its state").contains(&state)
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that have ended leave it a moment later.
        for _ in 0..1000 {
            match fs::remove_dir(&self.0) {
                Err(_) => thread::sleep(Duration::from_millis(1)),
                Ok(()) => return,
            }
        }
    }
}

/// Returns where version 2 of control groups is mounted.
fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let of_version_2 = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let mount = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(mount))
    };
    mounts.lines().find_map(of_version_2)
}

/// Its threads stop for a tracer, and make no system call for it.
#[test]
fn a_process_whose_group_is_frozen_is_refused_and_goes_on_later() {
    let name = format!("avtrace-test-frozen-{}", std::process::id());
    let Some(group) = mount().and_then(|mount| Group::make(mount.join(&name))) else {
        machine::skip("cgroups of version 2 cannot be made here");
        return;
    };
    let mut services = Services::start("inline", 1);
    group.takes(services.pid(0));
    group.freeze(true);
    let pid = services.pid(0).to_string();
    let refused = avtrace_with(["attach", "--capture", "inline", "--pid", &pid]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(refused.stderr.contains("its threads execute nothing"), "{}", refused.stderr);
    group.freeze(false);
    services.all[0].does("t");
    let avtrace = services.attach(&["--pid", &pid]);
    services.all[0].does("t");
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(66));
    services.end();
}

#[test]
fn processes_are_found_by_cgroup() {
    require_bpf!();
    let name = format!("avtrace-test-{}", std::process::id());
    let Some(group) = mount().and_then(|mount| Group::make(mount.join(&name))) else {
        machine::skip("cgroups of version 2 cannot be made here");
        return;
    };
    let below = Group::make(group.0.join("below")).expect("a group below");
    let path = group.0.to_str().expect("a path");
    let empty = avtrace_with(["attach", "--cgroup", path]);
    assert_eq!(empty.code, Some(3), "{}", empty.stderr);
    assert!(empty.stderr.contains("no process is in the cgroup"), "{}", empty.stderr);
    let mut services = Services::start("kernel", 2);
    group.takes(services.pid(0));
    below.takes(services.pid(1));
    let name = format!("/{name}");
    for (named, back_end) in [(path, "kernel"), (&*name, "kernel"), (path, "inline")] {
        services.back_end = back_end;
        let avtrace = services.attach(&["--cgroup", named]);
        for service in &mut services.all {
            service.does("t");
        }
        avtrace.signal("INT");
        assert_eq!(avtrace.wait().code, Some(66));
        let reports = services.reports();
        assert_eq!(reports.len(), 2);
        for (number, report) in reports.iter().enumerate() {
            check_transfer(report, services.pid(number), 1);
        }
    }
    services.end();
    let (below_path, path) = (below.0.clone(), group.0.clone());
    drop(below);
    drop(group);
    assert!(!below_path.exists() && !path.exists());
}

#[test]
fn each_process_has_a_recording() {
    require_bpf!();
    BACK_ENDS.into_iter().for_each(records_each);
}

fn records_each(back_end: &'static str) {
    let mut services = Services::start(back_end, 2);
    let trace = services.folder.path().join("t.avt");
    let path = trace.to_str().expect("a path").to_owned();
    let avtrace = services.attach(&["--pid", &services.pids(), "--record", &path]);
    services.all[0].does("t");
    services.all[1].does("tt");
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(66));
    let mut found = Vec::new();
    for trace in [trace.clone(), trace.with_extension("2.avt")] {
        found.push(runs(&trace));
    }
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
    services.end();
}

/// Number of runs of the region that was cut, by a check of a trace.
fn runs(trace: &Path) -> u64 {
    let checked = avtrace_with(["check", "--format", "json", trace.to_str().expect("a path")]);
    assert_eq!(checked.code, Some(66), "{}", checked.stderr);
    let report: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    report["defects"][0]["runs"].as_u64().expect("a number")
}

#[test]
fn a_panic_ends_the_tracing_of_one_only() {
    require_bpf!();
    if !cfg!(debug_assertions) {
        machine::skip("panics are made in debug builds only");
        return;
    }
    for back_end in BACK_ENDS {
        let mut services = Services::start(back_end, 2);
        let mut command = Command::new(avtrace());
        command.env("AVTRACE_TEST_PANIC_AFTER", "10");
        let pids = services.pids();
        let mut avtrace = services.attach_by(command, &["--capture", back_end, "--pid", &pids]);
        services.all[0].does("tn");
        let one = services.pid(0);
        let said = format!("process {one} is not traced: process {one}: avtrace has panicked");
        avtrace.await_stderr(&said);
        services.all[0].await_own_code();
        avtrace.signal("INT");
        let ended = avtrace.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let reports = services.reports();
        assert_eq!((reports.len(), reports[0].subject.pid), (1, services.pid(1)));
        services.end();
    }
}

/// Threads that one process creates, and its death, do not affect the others.
#[test]
fn what_one_process_does_leaves_the_others_alone() {
    let mut services = Services::start("inline", 3);
    let avtrace = services.attach(&["--pid", &services.pids()]);
    services.all[0].does("tn");
    services.all[1].does("nnt");
    services.all[2].running.signal("KILL");
    services.all[0].does("nt");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let reports = services.reports();
    assert_eq!(reports.len(), 3);
    check_transfer(&reports[0], services.pid(0), 4);
    check_transfer(&reports[1], services.pid(1), 3);
    assert_eq!((reports[2].subject.signal, reports[2].counts.violations), (Some(9), 0));
    assert_eq!(services.all.pop().expect("the last").running.wait().signal, Some(9));
    services.end();
}

#[test]
fn several_may_be_an_ordinary_users_own() {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !machine::can_drop_privileges() || !matches!(scope.trim(), "" | "0") {
        machine::skip("not root, setpriv is not installed, or Yama restricts ptrace");
        return;
    }
    let as_nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command
    };
    let start = || {
        let program = c("service", &["-g", "-O2"]);
        Service::start_by(&program, "service", |folder, program, fifo| {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("a mode");
            fs::set_permissions(fifo, Permissions::from_mode(0o666)).expect("a mode");
            let mut command = as_nobody(program);
            command.arg(fifo);
            command
        })
    };
    let (one, other, of_root) = (start(), start(), Service::start());
    let copy = one.folder().join("avtrace");
    fs::copy(avtrace(), &copy).expect("a copy");
    let mut services = Services {
        all: vec![one, other],
        folder: tempfile::tempdir().expect("a folder"),
        back_end: "inline",
    };
    fs::set_permissions(services.folder.path(), Permissions::from_mode(0o777)).expect("a mode");
    // Without a choice of the back end; a process of another user is named, and left out.
    let pids = format!("{},{}", services.pids(), of_root.pid());
    let avtrace = services.attach_by(as_nobody(&copy), &["--pid", &pids]);
    services.all[0].does("tn");
    services.all[1].does("t");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let named = format!("process {} is not traced: process {0} is of another user", of_root.pid());
    assert!(ended.stderr.contains(&named), "{}", ended.stderr);
    let reports = services.reports();
    assert_eq!(reports.len(), 2);
    check_transfer(&reports[0], services.pid(0), 2);
    check_transfer(&reports[1], services.pid(1), 1);
    let capture = reports[1].capture.as_ref().expect("how it was captured");
    assert_eq!(
        (&capture["backend"], &capture["reason_kind"]),
        (&"inline".into(), &"no_privileges".into())
    );
    services.end();
    of_root.end();
}
