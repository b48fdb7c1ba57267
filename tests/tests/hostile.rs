//! Programs that do to themselves what programs rarely do, or have it done to them: each behaves as it does alone, and
//! its report is true.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::Command,
};

use tests::{
    Avtrace, Report, Running, c,
    capture::folder,
    machine,
    process::{TIME_LIMIT, child_of, run},
    require_bpf,
    tracer::{avtrace, captures_inline, native},
};

/// Runs `hostile.c` with this argument, and checks that its output is that of the program alone, and what the report
/// says of its regions. Returns the report, and the end of the program alone: its status, and the signal.
fn check(how: &str) -> (Report, (Option<i32>, Option<i32>)) {
    let program = c("hostile", &["-g", "-O2"]);
    let alone = native(&program.path, [how], None);
    let (ended, report) = Avtrace::on(&program).arguments([how]).report();
    assert_eq!((ended.code, ended.signal), (Some(66), None), "{how}: {}", ended.stderr);
    assert_eq!((&*ended.stdout, &*ended.stderr), (&*alone.stdout, &*alone.stderr), "{how}");
    check_split(&report);
    assert_eq!((report.subject.exit_code, report.subject.signal), (alone.code, alone.signal));
    (report, (alone.code, alone.signal))
}

fn check_split(report: &Report) {
    let violation = report.only_violation();
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"], "{violation:#?}");
    assert_eq!(report.counts.lost_events, 0);
}

#[test]
fn a_program_that_closes_all_descriptors() {
    require_bpf!();
    assert_eq!(check("descriptors").1, (Some(5), None));
}

#[test]
fn a_program_that_blocks_all_signals() {
    require_bpf!();
    assert_eq!(check("signals").1, (Some(5), None));
}

#[test]
fn a_program_that_runs_out_of_address_space() {
    require_bpf!();
    let (report, end) = check("space");
    assert_eq!(end, (Some(5), None));
    let regions = report.counts.transactions - report.counts.unary_transactions;
    assert_eq!(regions, 3, "what came afterwards is seen");
}

#[test]
fn a_program_that_forks_wildly() {
    require_bpf!();
    let (report, end) = check("forks");
    assert_eq!(end, (Some(5), None));
    let unfollowed = report.not_seen["unfollowed_processes"].as_array().map(Vec::len);
    assert!(unfollowed.is_some_and(|count| count >= 50), "{unfollowed:?}");
}

#[test]
fn a_program_with_500_threads() {
    require_bpf!();
    let (report, end) = check("threads");
    assert_eq!((end, report.counts.threads), ((Some(5), None), 503));
}

#[test]
fn a_program_that_maps_and_unmaps_code() {
    require_bpf!();
    assert_eq!(check("code").1, (Some(5), None));
}

#[test]
fn a_program_that_dies_in_a_region() {
    require_bpf!();
    for (how, signal) in [("dead", 11), ("killed", 9)] {
        let (report, end) = check(how);
        assert_eq!(end, (None, Some(signal)));
        assert_eq!(report.counts.threads, 4, "{how}");
    }
    assert_eq!(check("exits").1, (Some(9), None));
}

#[test]
fn a_program_that_stops_in_a_region() {
    require_bpf!();
    let program = c("hostile", &["-g", "-O2"]);
    let folder = folder();
    let file = folder.path().join("report.json");
    let mut running = Avtrace::on(&program)
        .options(["--format", "json", "-o"])
        .options([&file])
        .arguments(["stopped"])
        .start();
    running.await_stdout("balance: 900\n");
    let mut tracee = 0;
    running.await_that("it is stopped", |pid| {
        tracee = child_of(pid, &program.path).unwrap_or(tracee);
        fs::read_to_string(format!("/proc/{tracee}/stat")).is_ok_and(|stat| {
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
        })
    });
    signal("CONT", tracee);
    let ended = running.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\nend\n"), "{}", ended.stderr);
    let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
    check_split(&report);
    assert_eq!(report.subject.exit_code, Some(5));
}

fn signal(name: &str, pid: u32) {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &pid.to_string()]);
    assert_eq!(run(&mut kill).code, Some(0));
}

/// A pipe of commands for `service.c`, and a folder with it and with reports.
fn commands() -> (tempfile::TempDir, File) {
    let folder = folder();
    let fifo = folder.path().join("commands");
    assert_eq!(run(Command::new("mkfifo").args(["-m", "666"]).arg(&fifo)).code, Some(0));
    let commands = File::options().read(true).write(true).open(&fifo).expect("the fifo");
    (folder, commands)
}

/// Starts avtrace on a process, with a report in this file.
fn attach(pid: u32, report: &Path) -> Running {
    let mut command = Command::new(avtrace());
    command.args(["attach", "--capture", "kernel", "--pid", &pid.to_string()]);
    command.args(["--accesses", "probe", "--format", "json", "-o"]).arg(report);
    let mut running = Running::start(&mut command, None, TIME_LIMIT);
    running.await_stderr("attached to process");
    running
}

fn gdb(pid: u32) -> Command {
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-ex", "info threads", "-ex", "detach", "-p"]);
    command.arg(pid.to_string());
    command
}

#[test]
fn a_process_under_two_tracers_and_a_debugger() {
    require_bpf!();
    let (folder, mut commands) = commands();
    let program = c("service", &["-g", "-O2"]);
    let _ = avtrace();
    let mut command = Command::new(&program.path);
    let mut service = Running::start(command.arg(folder.path().join("commands")), None, TIME_LIMIT);
    service.await_stdout("ready\n");
    let files = ["one", "two"].map(|name| folder.path().join(name));
    let [one, two] = files.each_ref().map(|file| attach(service.pid(), file));
    if machine::have("gdb") {
        let ended = run(&mut gdb(service.pid()));
        assert!(ended.stdout.contains("detached"), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("Thread"), "{}", ended.stdout);
    }
    write!(commands, "t").expect("a reader");
    service.await_stdout("t done\n");
    one.signal("INT");
    assert_eq!(one.wait().code, Some(66));
    // The probes of the other one stay.
    write!(commands, "n").expect("a reader");
    service.await_stdout("n done\n");
    two.signal("INT");
    assert_eq!(two.wait().code, Some(66));
    for (file, runs) in files.iter().zip([1, 2]) {
        let report = Report::parse(&fs::read_to_string(file).expect("a report"));
        check_split(&report);
        assert_eq!(report.only_violation().occurrences, runs);
    }
    write!(commands, "q").expect("a reader");
    let ended = service.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(7), "ready\nt done\nn done\n"));
}

#[test]
fn a_process_that_dies_while_avtrace_is_attached() {
    require_bpf!();
    for name in ["SEGV", "KILL"] {
        let (folder, mut commands) = commands();
        let _ = avtrace();
        let mut command = Command::new(c("service", &["-g", "-O2"]).path);
        let mut service =
            Running::start(command.arg(folder.path().join("commands")), None, TIME_LIMIT);
        service.await_stdout("ready\n");
        let file = folder.path().join("report");
        let tracer = attach(service.pid(), &file);
        // A thread holds a lock within a region when it dies.
        write!(commands, "th").expect("a reader");
        service.await_stdout("h done\n");
        service.signal(name);
        let number = if name == "KILL" { 9 } else { 11 };
        assert_eq!(service.await_end(|_| {}).signal(), Some(number));
        let ended = tracer.wait();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
        check_split(&report);
        assert_eq!((report.subject.exit_code, report.subject.signal), (None, Some(number)));
    }
}

#[test]
fn a_debugger_beside_a_run() {
    require_bpf!();
    if !machine::have("gdb") {
        machine::skip("gdb is not installed");
        return;
    }
    let (folder, mut commands) = commands();
    let program = c("service", &["-g", "-O2"]);
    let mut running = Avtrace::on(&program).arguments([folder.path().join("commands")]).start();
    running.await_stdout("ready\n");
    let tracee = child_of(running.pid(), &program.path).expect("the service");
    let ended = run(&mut gdb(tracee));
    // Inline probes need ptrace for themselves, and a process has one tracer.
    let expected = if captures_inline() { "is already traced" } else { "detached" };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains(expected), "{said}");
    write!(commands, "tq").expect("a reader");
    let ended = running.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "ready\nt done\n"), "{}", ended.stderr);
}
