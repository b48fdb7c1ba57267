//! `avtrace attach`: processes that run already.

use std::{
    fs, iter, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command, thread,
    time::Duration,
};

use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use serde_json::{Value, json};
use tests::{
    Report, Service, c, machine,
    process::{Running, TIME_LIMIT, run},
    require_bpf,
    service::{changed_code, state},
    tracer::{avtrace, avtrace_with},
};

fn check_transfer(report: &Report) {
    let violation = report.only_violation();
    assert_eq!(violation.region, "transfer");
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    assert_eq!(report.counts.lost_events, 0);
}

fn has_limitation(report: &Report, kind: &str) -> bool {
    let limitations = report.not_seen["limitations"].as_array().expect("limitations");
    limitations.iter().any(|limitation| limitation["kind"] == kind)
}

#[test]
fn a_split_region_of_a_running_process_is_found_and_the_process_goes_on() {
    require_bpf!();
    let mut service = Service::start();
    // A region has begun, and a lock is held, when avtrace comes.
    service.does("ht");
    let avtrace = service.attach(&["--accesses", "probe"]);
    service.does("rtn");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    let report = service.report();
    check_transfer(&report);
    assert_eq!(report.only_violation().occurrences, 2);
    assert_eq!((report.subject.exit_code, report.subject.signal), (None, None));
    assert_eq!(report.subject.pid, service.pid());
    assert!(report.subject.argv[0].ends_with("/service"));
    assert!(has_limitation(&report, "attached") && has_limitation(&report, "still_running"));
    service.is_left_alone();
    // Once more, after the first has detached.
    let avtrace = service.attach(&["--accesses", "probe"]);
    service.does("t");
    avtrace.signal("TERM");
    assert_eq!(avtrace.wait().code, Some(66));
    check_transfer(&service.report());
    service.is_left_alone();
    service.end();
}

#[test]
fn a_process_has_its_own_code_while_its_events_are_still_checked() {
    require_bpf!();
    let mut service = Service::start();
    let avtrace = service.attach(&["--accesses", "probe"]);
    // All that is recorded from here on is a backlog.
    let reader = HeldThread::seize(avtrace.pid(), "avtrace-reader");
    service.does("t");
    assert!(changed_code(service.pid()).is_some());
    avtrace.signal("INT");
    service.await_own_code();
    service.is_left_alone();
    service.does("t");
    assert!(reader.is_held(), "nothing was checked meanwhile");
    drop(reader);
    assert_eq!(avtrace.wait().code, Some(66));
    let report = service.report();
    check_transfer(&report);
    assert_eq!(report.only_violation().occurrences, 1, "what came after the end does not count");
    service.end();
}

/// A thread of another process that does not run until this is dropped.
struct HeldThread {
    thread: Pid,
    status: PathBuf,
}

impl HeldThread {
    fn seize(process: u32, name: &str) -> Self {
        let tasks = PathBuf::from(format!("/proc/{process}/task"));
        let is_it = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let find = || {
            let tasks = fs::read_dir(&tasks).expect("its threads");
            tasks.map(|task| task.expect("a thread").path()).find(is_it)
        };
        // A thread names itself some time after its start.
        let found = iter::repeat_with(find).take(10_000).inspect(|found| {
            if found.is_none() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let task = found.flatten().next().expect(name);
        let number = task.file_name().and_then(|number| number.to_str()).expect("a number");
        let thread = Pid::from_raw(number.parse().expect("a number"));
        ptrace::seize(thread, ptrace::Options::empty()).expect("a thread");
        ptrace::interrupt(thread).expect("its stop");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("its stop");
        Self { thread, status: task.join("status") }
    }

    fn is_held(&self) -> bool {
        fs::read_to_string(&self.status).is_ok_and(|status| status.contains("State:\tt"))
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        // It has ended when the test fails.
        let _ = ptrace::detach(self.thread, None);
    }
}

#[test]
fn defects_are_named_when_they_are_found() {
    require_bpf!();
    let mut service = Service::start();
    let mut avtrace = service.attach(&["--accesses", "probe"]);
    service.does("t");
    let found = "avtrace: found: `transfer` at service.c:";
    avtrace.await_stderr(found);
    service.does("t");
    avtrace.signal("USR1");
    avtrace.await_stderr(
        "avtrace: so far:\nlikely d1: lost update of `account.balance` in `transfer`, by `audit`",
    );
    avtrace.await_stderr("avtrace: 1 likely defect");
    service.does("t");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("found:").count(), 1, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("so far:").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("; the program still runs"), "{}", ended.stderr);
    let report = service.report();
    check_transfer(&report);
    assert_eq!(report.only_violation().occurrences, 3);
    service.is_left_alone();
    service.end();
}

#[test]
fn the_tracing_ends_after_so_many_defects() {
    require_bpf!();
    let mut service = Service::start();
    let avtrace = service.attach(&["--accesses", "probe", "--max-defects", "1"]);
    service.does("t");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    check_transfer(&service.report());
    service.is_left_alone();
    service.end();
    // One is not two.
    let mut service = Service::start();
    let mut avtrace = service.attach(&["--accesses", "probe", "--max-defects", "2"]);
    service.does("t");
    avtrace.await_stderr("avtrace: found:");
    service.does("t");
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(66));
    assert_eq!(service.report().only_violation().occurrences, 2);
    service.end();
}

#[test]
fn the_tracing_ends_with_the_process() {
    require_bpf!();
    let mut service = Service::start();
    let avtrace = service.attach(&[]);
    service.quit();
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = service.report();
    assert_eq!((report.subject.exit_code, report.subject.signal), (Some(7), None));
    assert!(!has_limitation(&report, "still_running"));
    assert_eq!(service.running.wait().code, Some(7));
}

#[test]
fn the_tracing_ends_after_its_time() {
    require_bpf!();
    let mut service = Service::start();
    let avtrace = service.attach(&["--duration", "300ms", "--quiet"]);
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), "", ""));
    assert_eq!(service.report().counts.violations, 0);
    service.is_left_alone();
    service.does("t");
    service.end();
}

#[test]
fn a_process_goes_on_when_avtrace_is_killed() {
    require_bpf!();
    let mut service = Service::start();
    let avtrace = service.attach(&["--accesses", "probe"]);
    service.does("t");
    avtrace.signal("KILL");
    assert_eq!(avtrace.wait().signal, Some(9));
    service.does("t");
    service.await_own_code();
    service.is_left_alone();
    service.end();
}

#[test]
fn what_was_recorded_can_be_checked() {
    require_bpf!();
    let mut service = Service::start();
    service.does("h");
    let file = service.folder().join("t.avt");
    let path = file.to_str().expect("a path");
    let avtrace = service.attach(&["--accesses", "probe", "--record", path]);
    service.does("rt");
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(66));
    check_transfer(&service.report());
    let checked = avtrace_with(["check", "--format", "json", path]);
    assert_eq!(checked.code, Some(66), "{}", checked.stderr);
    let report: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let defects = report["defects"].as_array().expect("defects");
    assert_eq!(defects.len(), 1, "{defects:#?}");
    assert_eq!(
        (&defects[0]["region"], &defects[0]["class"]),
        (&json!("transfer"), &json!("likely"))
    );
    service.end();
}

#[test]
fn a_stopped_process_stays_stopped() {
    require_bpf!();
    let mut service = Service::start();
    service.running.signal("STOP");
    service.running.await_that("it is stopped", |pid| state(pid) == Some('T'));
    let mut avtrace = service.attach(&["--accesses", "probe"]);
    avtrace.await_stderr("is stopped, and records nothing before it goes on (`kill -CONT ");
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(0));
    let pid = service.pid();
    assert_eq!((state(pid), changed_code(pid)), (Some('T'), None));
    service.running.signal("CONT");
    service.does("t");
    service.is_left_alone();
    service.end();
}

#[test]
fn a_process_that_another_one_traces_is_refused() {
    let service = Service::start();
    let pid = service.pid();
    let held = HeldThread::seize(pid, "service");
    says(&pid.to_string(), 3, &format!("is traced by process {} (`", std::process::id()));
    drop(held);
    service.is_left_alone();
    service.end();
}

#[test]
fn a_process_of_another_user_needs_privileges() {
    if !machine::is_root() || !machine::have("setpriv") {
        machine::skip("not root, or setpriv is not installed");
        return;
    }
    let service = Service::start();
    let pid = service.pid().to_string();
    let copy = service.folder().join("avtrace");
    fs::set_permissions(service.folder(), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::copy(avtrace(), &copy).expect("a copy");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    let ended = run(command.arg(copy).args(["attach", "--pid", &pid]));
    assert_eq!((ended.code, &*ended.stdout), (Some(3), ""), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&format!("`sudo avtrace attach --pid {pid}`")),
        "{}",
        ended.stderr
    );
    service.is_left_alone();
    service.end();
}

#[test]
fn what_has_ended_or_has_no_program_for_this_processor_is_refused() {
    let mut child = Command::new("true").spawn().expect("a process");
    while state(child.id()) != Some('Z') {
        thread::sleep(Duration::from_millis(1));
    }
    says(&child.id().to_string(), 3, "has ended, or its first thread has");
    child.wait().expect("its end");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        says("2", 3, "is a thread of the kernel");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("small.c"), folder.path().join("small"));
    fs::write(&source, "void _start(void) { for (;;) __asm__(\"pause\"); }").expect("a file");
    let mut compile = Command::new("gcc");
    compile.args(["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-o"]);
    assert_eq!(run(compile.arg(&program).arg(&source)).code, Some(0));
    let small = Running::start(&mut Command::new(&program), None, TIME_LIMIT);
    says(&small.pid().to_string(), 3, "is a 32-bit program");
    assert_eq!(state(small.pid()), Some('R'));
}

/// Checks that probes are in the process by default, and in the kernel where the process refuses them or has another
/// tracer.
#[test]
fn the_kernel_captures_where_probes_in_the_process_are_impossible_and_the_report_says_why() {
    require_bpf!();
    let filter = c("restricts_itself", &["-g", "-O1"]).path;
    let mut service = Service::start();
    let mut refuses =
        Service::start_by(&c("service", &["-g", "-O2"]), "service", |_, program, fifo| {
            let mut command = Command::new(filter);
            command.arg("no-memfd").arg(program).arg(fifo);
            command
        });
    let check = |service: &mut Service, back_end: &str, kind: &str, reason: &str| {
        let running = service.attach(&["--capture", "auto", "--accesses", "probe"]);
        service.does("tn");
        running.signal("INT");
        let ended = running.wait();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        let report = service.report();
        check_transfer(&report);
        let capture = report.capture.expect("how it was captured");
        assert_eq!(capture["backend"], back_end, "{capture:#}");
        assert_eq!(capture["reason_kind"], kind, "{capture:#}");
        assert!(
            capture["reason"].as_str().is_some_and(|text| text.contains(reason)),
            "{capture:#}"
        );
        service.is_left_alone();
    };
    check(&mut service, "inline", "preferred", "");
    check(&mut refuses, "kernel", "refused", "may not call memfd_create");
    // A back end that was named has no alternative.
    let ended =
        avtrace_with(["attach", "--capture", "inline", "--pid", &refuses.pid().to_string()]);
    assert_eq!((ended.code, &*ended.stdout), (Some(3), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("use `--capture kernel`, as root"), "{}", ended.stderr);
    refuses.is_left_alone();
    service.end();
    refuses.end();
}

/// Runs avtrace on a process that it refuses with this status and text.
fn says(pid: &str, status: i32, text: &str) {
    let ended = avtrace_with(["attach", "--pid", pid]);
    assert_eq!((ended.code, &*ended.stdout), (Some(status), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
}

#[test]
fn what_is_no_process_of_a_program_is_refused() {
    says("0", 2, "0 is not in");
    says("4000000", 3, "there is no process 4000000");
    let service = Service::start();
    let pid = service.pid();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let names = threads.map(|thread| thread.expect("a thread").file_name());
    let other =
        names.filter_map(|name| name.into_string().ok()).find(|name| *name != pid.to_string());
    says(&other.expect("another thread"), 3, &format!("use `--pid {pid}`"));
    let pid = pid.to_string();
    for option in ["--serialize", "--as-root", "--follow-forks"] {
        let ended = avtrace_with(["attach", "--pid", &pid, option]);
        assert_eq!(ended.code, Some(2), "{option}: {}", ended.stderr);
        assert!(ended.stderr.contains(option), "{}", ended.stderr);
    }
    service.is_left_alone();
    service.end();
}
