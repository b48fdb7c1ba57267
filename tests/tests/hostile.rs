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
    Avtrace, Program, Report, Running, Service, c,
    capture::folder,
    machine,
    process::{TIME_LIMIT, child_of, run},
    require_bpf,
    service::state,
    tracer::{FAIL_ON, avtrace, captures_inline, native},
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
fn a_program_that_unwinds_through_everything() {
    require_bpf!();
    assert_eq!(check("unwinds").1, (Some(5), None));
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
    // The tracer stops the program as well. So CONT is sent at each stop, until the program ends.
    running.await_end(|pid| {
        let tracee = child_of(pid, &program.path);
        if let Some(tracee) = tracee.filter(|&tracee| matches!(state(tracee), Some('T' | 't'))) {
            let kill = ["-c", "kill -s CONT \"$1\"", "sh", &tracee.to_string()];
            // The program may have ended in the meantime.
            let _ = run(Command::new("sh").args(kill));
        }
    });
    let ended = running.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\nend\n"), "{}", ended.stderr);
    let report = Report::parse(&fs::read_to_string(&file).expect("a report"));
    check_split(&report);
    assert_eq!(report.subject.exit_code, Some(5));
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
    attach_by("kernel", "probe", pid, report)
}

/// Starts avtrace on a process with this back end and level of accesses, with a report in this file.
fn attach_by(back_end: &str, accesses: &str, pid: u32, report: &Path) -> Running {
    let mut command = Command::new(avtrace());
    command.env(FAIL_ON.0, FAIL_ON.1);
    command.args(["attach", "--capture", back_end, "--pid", &pid.to_string()]);
    command.args(["--accesses", accesses, "--format", "json", "-o"]).arg(report);
    let mut running = Running::start(&mut command, None, TIME_LIMIT);
    running.await_stderr("attached to process");
    running
}

/// Starts a program that waits for a line before it does this, and has avtrace attach to it with each back end. Its
/// output and its end must be the same as without avtrace. Returns the reports on all programs that it was.
fn each_attached(program: &Program, how: &str, check: impl FnMut(&[Report])) {
    each_attached_seeing("sync", program, how, check);
}

/// Has avtrace attach as [`each_attached`] does, with this level of accesses.
fn each_attached_seeing(
    accesses: &str,
    program: &Program,
    how: &str,
    mut check: impl FnMut(&[Report]),
) {
    let _ = avtrace();
    let alone = native(&program.path, [how], None);
    for back_end in ["kernel", "inline"] {
        let (folder, mut commands) = commands();
        let file = folder.path().join("reports");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$1\" wait <\"$2\""]).arg(&program.path).arg(how);
        command.arg(folder.path().join("commands"));
        let mut running = Running::start(&mut command, None, TIME_LIMIT);
        running.await_stdout("ready\n");
        let tracer = attach_by(back_end, accesses, running.pid(), &file);
        writeln!(commands).expect("a reader");
        let ended = running.wait();
        let tracer = tracer.wait();
        let what = format!("{how}, {back_end}: {}", tracer.stderr);
        assert_eq!((ended.code, ended.signal), (alone.code, alone.signal), "{what}");
        assert_eq!(
            (ended.stdout, &ended.stderr),
            (format!("ready\n{}", alone.stdout), &alone.stderr)
        );
        let text = fs::read_to_string(&file).expect("reports");
        let reports: Vec<Report> = if text.starts_with("{\n") {
            vec![Report::parse(&text)]
        } else {
            text.lines().map(Report::parse).collect()
        };
        let last = &reports.last().unwrap_or_else(|| panic!("a report: {what}")).subject;
        assert_eq!((last.exit_code, last.signal), (alone.code, alone.signal), "{what}");
        check(&reports);
    }
}

#[test]
fn programs_that_avtrace_has_attached_to() {
    require_bpf!();
    let program = c("hostile", &["-g", "-O2"]);
    for how in [
        "descriptors",
        "signals",
        "space",
        "forks",
        "threads",
        "code",
        "dead",
        "killed",
        "exits",
        "unwinds",
    ] {
        each_attached(&program, how, |reports| {
            assert_eq!(reports.len(), 1, "{how}");
            check_split(&reports[0]);
        });
    }
    each_attached(&program, "execs", |reports| {
        assert_eq!(reports.len(), 2);
        reports.iter().for_each(check_split);
    });
}

#[test]
fn buffers_that_the_kernel_reads_and_writes_by_io_uring() {
    require_bpf!();
    let program = c("uring_shared", &["-g", "-O1"]);
    let check = |how: &str, report: &Report| {
        assert!(report.counts.events > 0, "{how}: the code has probes");
        assert_eq!(report.counts.lost_events, 0, "{how}");
        assert!(report.violations.is_empty(), "{how}: {:#?}", report.violations);
        let notes = report.not_seen["notes"].to_string();
        assert!(!notes.contains("probes were taken out"), "{how}: {notes}");
    };
    for how in ["plain", "polled", "registered"] {
        let alone = native(&program.path, [how], None);
        if alone.stdout == "none\n" {
            machine::absent("io_uring");
            continue;
        }
        for back_end in ["kernel", "inline"] {
            let run = Avtrace::on(&program).seeing_memory().capturing(back_end);
            let (ended, report) = run.arguments([how]).report();
            let what = format!("{how}, {back_end}: {}", ended.stderr);
            assert_eq!((ended.code, ended.stdout), (alone.code, alone.stdout.clone()), "{what}");
            check(&what, &report);
        }
        each_attached_seeing("auto", &program, how, |reports| check(how, &reports[0]));
    }
}

/// Has this number of threads come and go in a process that avtrace has attached to.
fn short_threads(count: &str) {
    let threads: u64 = count.parse().expect("a number");
    each_attached(&c("many_threads", &["-g", "-O2"]), count, |reports| {
        let counts = &reports[0].counts;
        assert!(counts.transactions >= threads, "{counts:?}");
        assert_eq!((counts.violations, counts.lost_events), (0, 0));
    });
}

#[test]
fn short_threads_of_a_process_that_avtrace_has_attached_to() {
    require_bpf!();
    short_threads("2000");
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn a_hundred_thousand_short_threads_of_a_process_that_avtrace_has_attached_to() {
    require_bpf!();
    short_threads("100000");
}

/// Inline probes need ptrace for themselves: other users of ptrace are refused, and the rest have their probes.
#[test]
fn inline_probes_beside_other_tracers() {
    require_bpf!();
    let mut service = Service::start();
    let folder = folder();
    let files = ["kernel", "inline", "late"].map(|name| folder.path().join(name));
    let kernel = attach_by("kernel", "sync", service.pid(), &files[0]);
    let inline = attach_by("inline", "sync", service.pid(), &files[1]);
    service.does("tn");
    let pid = service.pid().to_string();
    for back_end in ["kernel", "inline"] {
        let mut late = Command::new(avtrace());
        late.args(["attach", "--capture", back_end, "--pid", &pid, "-o"]).arg(&files[2]);
        let ended = run(&mut late);
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("process {pid} is traced by process ")),
            "{}",
            ended.stderr
        );
        assert!(!files[2].exists());
    }
    if machine::have("gdb") {
        let ended = run(&mut gdb(service.pid()));
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("is already traced"), "{said}");
    }
    inline.signal("INT");
    let ended = inline.wait();
    assert!(matches!(ended.code, Some(0 | 66)), "{}", ended.stderr);
    // Places that have a breakpoint have no inline probe, which the report says.
    let _ = Report::parse(&fs::read_to_string(&files[1]).expect("a report"));
    service.does("tn");
    kernel.signal("INT");
    assert_eq!(kernel.wait().code, Some(66));
    let report = Report::parse(&fs::read_to_string(&files[0]).expect("a report"));
    check_split(&report);
    assert_eq!(report.only_violation().occurrences, 4);
    service.await_own_code();
    service.is_left_alone();
    service.end();
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
    let kills = ["kernel", "inline"].map(|back_end| ["SEGV", "KILL"].map(|name| (back_end, name)));
    for (back_end, name) in kills.into_iter().flatten() {
        let (folder, mut commands) = commands();
        let _ = avtrace();
        let mut command = Command::new(c("service", &["-g", "-O2"]).path);
        let mut service =
            Running::start(command.arg(folder.path().join("commands")), None, TIME_LIMIT);
        service.await_stdout("ready\n");
        let file = folder.path().join("report");
        let tracer = attach_by(back_end, "probe", service.pid(), &file);
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
