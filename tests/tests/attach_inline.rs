//! `avtrace attach --capture inline`: probes in processes that run already.

use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use tests::{
    Report, Service, c, machine,
    process::{Running, TIME_LIMIT},
    service::{changed_code, changed_places, is_left_alone, maps, of_thread, state},
    tracer::avtrace,
};

/// Arguments of a command that runs another one as an ordinary user.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A command that runs a program as an ordinary user.
fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]).arg(program);
    command
}

/// Starts a service of an ordinary user.
fn start_as_nobody() -> Service {
    Service::start_by(&c("service", &["-g", "-O2"]), "service", |folder, program, fifo| {
        fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("a mode");
        fs::set_permissions(fifo, Permissions::from_mode(0o666)).expect("a mode");
        let mut command = as_nobody(program);
        command.arg(fifo);
        command
    })
}

/// Options by which avtrace has probes in a service, whatever they cost.
const INLINE: [&str; 4] = ["--capture", "inline", "--accesses", "probe"];

/// Starts avtrace on a service.
fn attach(service: &Service, options: &[&str]) -> Running {
    service.attach(&[&INLINE, options].concat())
}

fn check_transfer(report: &Report, occurrences: u64) {
    let violation = report.only_violation();
    assert_eq!(violation.region, "transfer");
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    assert_eq!(violation.occurrences, occurrences);
    assert_eq!(report.counts.lost_events, 0);
    let limitations = report.not_seen["limitations"].as_array().expect("limitations");
    let has = |kind: &str| limitations.iter().any(|limitation| limitation["kind"] == kind);
    assert!(has("attached") && !has("kept_memory"), "{limitations:#?}");
}

#[test]
fn threads_of_before_and_of_later_are_traced_and_nothing_is_left_after_a_signal() {
    let mut service = Service::start();
    // A region has begun, and a lock is held, when avtrace comes.
    service.does("ht");
    for signal in ["INT", "TERM"] {
        let avtrace = attach(&service, &[]);
        assert!(changed_code(service.pid()).is_some(), "there are probes");
        service.does(if signal == "INT" { "rtn" } else { "tn" });
        avtrace.signal(signal);
        let ended = avtrace.wait();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
        check_transfer(&service.report(), 2);
        service.is_left_alone();
        service.does("t");
    }
    service.end();
}

#[test]
fn the_tracing_ends_after_its_time_and_after_so_many_defects() {
    let mut service = Service::start();
    let ended = attach(&service, &["--duration", "300ms"]).wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    service.is_left_alone();
    let avtrace = attach(&service, &["--max-defects", "1"]);
    service.does("t");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    check_transfer(&service.report(), 1);
    service.is_left_alone();
    service.end();
}

#[test]
fn nothing_is_left_in_a_process_whose_main_thread_has_ended() {
    let mut service = Service::start();
    let avtrace = attach(&service, &[]);
    service.does("tmt");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    check_transfer(&service.report(), 2);
    service.is_left_alone();
    service.does("t");
    service.end();
}

#[test]
fn the_tracing_ends_with_the_process() {
    let mut service = Service::start();
    let avtrace = attach(&service, &[]);
    service.does("t");
    service.quit();
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = service.report();
    assert_eq!((report.subject.exit_code, report.subject.signal), (Some(7), None));
    assert_eq!(service.running.wait().code, Some(7));
}

#[test]
fn a_process_goes_on_when_avtrace_is_killed() {
    let mut service = Service::start();
    let avtrace = attach(&service, &[]);
    service.does("t");
    avtrace.signal("KILL");
    assert_eq!(avtrace.wait().signal, Some(9));
    service.does("tn");
    let pid = service.pid().to_string();
    // Its probes are there still.
    let mut again = Command::new(tests::tracer::avtrace());
    again.args(["attach", "--pid", &pid, "--capture", "inline"]);
    let ended = Running::start(&mut again, None, TIME_LIMIT).wait();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("of an avtrace that was killed"), "{}", ended.stderr);
    service.does("t");
    service.end();
}

/// Another tracer's breakpoint where a probe is: that place cannot be restored, and all that it leads to stays.
#[test]
fn memory_is_kept_and_reported_where_a_place_cannot_be_restored() {
    const BREAKPOINT: u8 = 0xcc;
    let mut service = Service::start();
    let avtrace = attach(&service, &[]);
    service.does("t");
    let pid = service.pid();
    let place = changed_places(pid, JUMP).into_iter().next().expect("a jump to a trampoline");
    write_memory(pid, place, BREAKPOINT);
    avtrace.signal("INT");
    let ended = avtrace.wait();
    // As the other tracer does in the end.
    write_memory(pid, place, JUMP);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = service.report();
    let limitations = report.not_seen["limitations"].as_array().expect("limitations");
    let has = |kind: &str| limitations.iter().any(|limitation| limitation["kind"] == kind);
    assert!(has("kept_memory"), "{limitations:#?}");
    assert!(maps(pid).contains("memfd:avtrace"), "{}", maps(pid));
    assert_eq!(changed_places(pid, JUMP), [place], "all else is restored");
    service.does("tn");
    service.end();
}

/// First byte of a jump to a trampoline.
const JUMP: u8 = 0xe9;

fn write_memory(pid: u32, place: u64, byte: u8) {
    let mut memory = File::options().write(true).open(of_thread(pid).join("mem")).expect("memory");
    memory.seek(SeekFrom::Start(place)).expect("an address");
    memory.write_all(&[byte]).expect("its code");
}

#[test]
fn a_process_that_forks_and_loads_libraries_is_traced_on() {
    let mut service = Service::start();
    let avtrace = attach(&service, &[]);
    service.does("tfltf");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    check_transfer(&service.report(), 2);
    service.is_left_alone();
    service.does("flt");
    service.end();
}

#[test]
fn a_process_that_replaces_its_program_is_traced_on_and_left_alone() {
    let mut service = Service::start();
    let avtrace = attach(&service, &["--max-defects", "1"]);
    // Only the new program has the defect.
    service.does("xt");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    service.is_left_alone();
    service.does("tl");
    service.end();
}

/// Fills a pipe.
fn fill(pipe: &std::io::PipeWriter) {
    const NONBLOCKING: i32 = 0o4000;
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    // A newly opened descriptor has separate modes.
    let filling = File::options().write(true).custom_flags(NONBLOCKING).open(path);
    let mut filling = filling.expect("a pipe");
    for length in [4096, 1] {
        while filling.write(&vec![b'.'; length]).is_ok() {}
    }
}

#[test]
fn a_standard_error_that_nobody_reads_holds_nothing_up() {
    let mut service = Service::start();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let pid = service.pid();
    let mut command = Command::new(avtrace());
    command.args(["attach", "--pid", &pid.to_string(), "--capture", "inline"]);
    command.args(["--accesses", "probe", "--format", "json", "-o"]).arg(service.report_file());
    command.stderr(writer.try_clone().expect("a pipe"));
    let mut avtrace = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("avtrace");
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("attached to process") {
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("a line");
        text.extend(byte);
    }
    fill(&writer);
    // Lines on defects are stuck in the pipe.
    service.does("tttn");
    service.quit();
    assert_eq!(service.running.await_end(|_| ()).code(), Some(7));
    assert_eq!(avtrace.wait().expect("its end").code(), Some(66));
    drop(reader);
    let report = service.report();
    assert_eq!(report.only_violation().region, "transfer");
    assert_eq!((report.counts.lost_events, report.subject.exit_code), (0, Some(7)));
}

#[test]
fn a_stopped_process_stays_stopped() {
    let mut service = Service::start();
    service.running.signal("STOP");
    service.running.await_that("it is stopped", |pid| state(pid) == Some('T'));
    let avtrace = attach(&service, &[]);
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(0));
    let pid = service.pid();
    service.running.await_that("it is stopped", |pid| state(pid) == Some('T'));
    assert_eq!(changed_code(pid), None);
    service.running.signal("CONT");
    service.does("t");
    is_left_alone(pid);
    service.end();
}

#[test]
fn no_system_call_is_interrupted() {
    let _ = avtrace();
    let program = c("waits", &["-g", "-O2"]).path;
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program");
    let mut output = child.stdout.take().expect("a pipe");
    let mut ready = [0; 6];
    output.read_exact(&mut ready).expect("a line");
    for _ in 0..2 {
        let mut command = Command::new(avtrace());
        command.args(["attach", "--pid", &child.id().to_string(), "--capture", "inline"]);
        let mut avtrace = Running::start(&mut command, None, TIME_LIMIT);
        avtrace.await_stderr("attached to process");
        avtrace.signal("INT");
        let ended = avtrace.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        is_left_alone(child.id());
    }
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("a reader");
    let mut said = String::new();
    output.read_to_string(&mut said).expect("a line");
    assert_eq!(
        (said.as_str(), child.wait().expect("its end").code()),
        ("0 interrupted\n", Some(0))
    );
}

/// Attaches to a program, does something to it, and detaches without leaving a trace.
fn attach_meanwhile(pid: u32, meanwhile: impl FnOnce()) {
    attach_and_leave(pid, meanwhile);
    is_left_alone(pid);
}

/// Attaches to a program, does something to it, and leaves it again.
fn attach_and_leave(pid: u32, meanwhile: impl FnOnce()) {
    let mut command = Command::new(avtrace());
    command.args(["attach", "--pid", &pid.to_string()]).args(INLINE);
    let mut avtrace = Running::start(&mut command, None, TIME_LIMIT);
    avtrace.await_stderr("attached to process");
    meanwhile();
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Starts a program that reads lines.
fn reader_of_lines(name: &str, arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let _ = avtrace();
    let mut command = Command::new(c(name, &["-g", "-O2"]).path);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a program");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    assert_eq!(line(&mut output), "ready\n");
    (child, output)
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    line
}

#[test]
fn a_thread_that_receives_signals_leaves_the_code_of_probes() {
    for kind in ["timer", "faults"] {
        let (mut child, mut output) = reader_of_lines("sampled", &[kind]);
        attach_and_leave(child.id(), || ());
        // On a busy machine a handler may have been entered before there was a way out: then memory stays.
        assert_eq!(changed_code(child.id()), None);
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("a reader");
        // It has come through all of them. How many have found it in the code of probes depends on the moment.
        let said = line(&mut output);
        assert!(said.starts_with("signals, "), "{kind}: {said}");
        assert_eq!(child.wait().expect("its end").code(), Some(0));
    }
}

#[test]
fn threads_of_the_kernel_are_left_alone() {
    let (mut child, mut output) = reader_of_lines("uring", &[]);
    let mut input = child.stdin.take().expect("a pipe");
    let mut created = String::new();
    attach_meanwhile(child.id(), || {
        input.write_all(b"\n").expect("a reader");
        created = line(&mut output);
    });
    if created == "none\n" {
        machine::absent("io_uring");
    } else {
        // It was created while its creator had a ring.
        attach_meanwhile(child.id(), || ());
    }
    input.write_all(b"\n").expect("a reader");
    assert_eq!(child.wait().expect("its end").code(), Some(0));
}

#[test]
fn an_ordinary_user_may_attach_to_an_own_process() {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !machine::can_drop_privileges() || !matches!(scope.trim(), "" | "0") {
        machine::skip("not root, setpriv is not installed, or Yama restricts ptrace");
        return;
    }
    let mut service = start_as_nobody();
    let copy = service.folder().join("avtrace");
    fs::copy(avtrace(), &copy).expect("a copy");
    let avtrace = service.attach_by(as_nobody(&copy), &INLINE);
    service.does("tn");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    check_transfer(&service.report(), 2);
    service.is_left_alone();
    service.end();
}

/// Work of a service that costs more than a second in a debug build of avtrace.
const MUCH: &str = "bbbbbbbbbbbbbbbbbbbb";

#[test]
fn costs_are_bounded_by_windows_and_the_report_says_how_much_was_watched() {
    let mut service = Service::start();
    let avtrace = attach(&service, &["--budget", "1"]);
    for _ in 0..6 {
        service.does(MUCH);
    }
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = service.report();
    let limitations = report.not_seen["limitations"].as_array().expect("limitations");
    let windows = limitations.iter().find(|limitation| limitation["kind"] == "windows");
    let windows = windows.unwrap_or_else(|| panic!("there are windows: {limitations:#?}"));
    let number = |key: &str| windows[key].as_u64().expect("a number");
    assert!(number("watched_ms") < number("elapsed_ms"), "{windows}");
    assert_eq!(number("budget"), 1);
    assert_eq!((report.counts.lost_events, &report.not_seen["gaps"]), (0, &0.into()));
    let seen = report.counts.transactions;
    assert!(seen > 0 && seen < 6 * 20 * 20_000, "{seen}");
    service.is_left_alone();
    service.end();
}

/// Windows that begin and end all the time hide what crosses their bounds, and the program goes on as without them.
#[test]
fn switching_all_the_time_invents_nothing_and_leaves_the_program_as_it_is() {
    let mut service = Service::start();
    let avtrace = attach(&service, &["--switch-every", "1ms"]);
    for _ in 0..10 {
        service.does("bn");
        service.does("lf");
    }
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert!(matches!(ended.code, Some(0 | 66)), "{}", ended.stderr);
    let report = service.report();
    let regions: Vec<&str> = report.violations.iter().map(|one| &*one.region).collect();
    // `transfer` alone is violated, if all of it was in one window.
    assert!(regions.iter().all(|region| *region == "transfer"), "{regions:?}");
    assert_eq!(report.counts.lost_events, 0);
    service.is_left_alone();
    service.end();
}

#[test]
fn a_process_goes_on_when_avtrace_is_killed_while_it_switches() {
    for _ in 0..4 {
        let mut service = Service::start();
        let avtrace = attach(&service, &["--switch-every", "1ms"]);
        service.does("b");
        avtrace.signal("KILL");
        assert_eq!(avtrace.wait().signal, Some(9));
        service.does("btn");
        service.end();
    }
}
