//! `avtrace attach --capture inline`: probes in processes that run already.

use std::{
    fs::{self, File, Permissions},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tests::{
    Report, c, machine,
    process::{Ended, Running, TIME_LIMIT},
    tracer::avtrace,
};

/// A running `service.c`.
struct Service {
    running: Running,
    /// All that it has printed.
    printed: String,
    commands: File,
    folder: tempfile::TempDir,
    is_nobodys: bool,
}

/// Arguments of a command that runs another one as an ordinary user.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A command that is run as an ordinary user, or as whoever runs the test.
fn command(program: &Path, as_nobody: bool) -> Command {
    if !as_nobody {
        return Command::new(program);
    }
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]).arg(program);
    command
}

impl Service {
    fn start() -> Self {
        Self::start_as(false)
    }

    fn start_as(is_nobodys: bool) -> Self {
        // A build would count as time of the service.
        let _ = avtrace();
        let built = c("service", &["-g", "-O2"]).path;
        let folder = tempfile::tempdir().expect("a folder");
        let (fifo, program) = (folder.path().join("commands"), folder.path().join("service"));
        fs::copy(&built, &program).expect("a copy");
        assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()));
        if is_nobodys {
            fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("a mode");
            fs::set_permissions(&fifo, Permissions::from_mode(0o666)).expect("a mode");
        }
        let mut command = command(&program, is_nobodys);
        let mut running = Running::start(command.arg(&fifo), None, TIME_LIMIT);
        running.await_stdout("ready\n");
        let commands = File::options().read(true).write(true).open(&fifo).expect("the fifo");
        Self { running, printed: "ready\n".to_owned(), commands, folder, is_nobodys }
    }

    /// Has it carry these commands out.
    fn does(&mut self, commands: &str) {
        for command in commands.chars() {
            write!(self.commands, "{command}").expect("a reader");
            self.printed += &format!("{command} done\n");
            self.running.await_stdout(&self.printed);
        }
    }

    /// Starts avtrace on it with these options, and a report in a file.
    fn attach(&self, options: &[&str]) -> Running {
        let mut program = avtrace().to_owned();
        if self.is_nobodys {
            let copy = self.folder.path().join("avtrace");
            fs::copy(&program, &copy).expect("a copy");
            program = copy;
        }
        let mut command = command(&program, self.is_nobodys);
        command.args(["attach", "--pid", &self.running.pid().to_string(), "--capture", "inline"]);
        command.args(["--accesses", "probe", "--format", "json", "-o"]);
        command.arg(self.report_file()).args(options);
        let mut avtrace = Running::start(&mut command, None, TIME_LIMIT);
        avtrace.await_stderr("attached to process");
        avtrace
    }

    fn report_file(&self) -> PathBuf {
        self.folder.path().join("report.json")
    }

    fn report(&self) -> Report {
        Report::parse(&fs::read_to_string(self.report_file()).expect("a report"))
    }

    /// Ends it; it must have been left alone.
    fn end(mut self) {
        write!(self.commands, "q").expect("a reader");
        let Ended { code, signal, stderr, .. } = self.running.wait();
        assert_eq!((code, signal, &*stderr), (Some(7), None, ""));
    }
}

/// Checks that nobody traces a process, that no thread of it is stopped, that its code is that of its file, and that
/// nothing of avtrace is mapped.
#[track_caller]
fn is_left_alone(pid: u32) {
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
        let status = task.expect("a thread").path().join("status");
        let status = fs::read_to_string(status).expect("its status");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        assert!(!status.contains("State:\tT") && !status.contains("State:\tt"), "{status}");
    }
    assert_eq!(changed_code(pid), None);
    assert!(!maps(pid).contains("memfd:avtrace"), "{}", maps(pid));
}

/// Returns the folder of a thread of a process that has not ended.
fn of_thread(pid: u32) -> PathBuf {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let has_memory =
        |path: &PathBuf| fs::read(path.join("maps")).is_ok_and(|maps| !maps.is_empty());
    let mut threads = tasks.map(|task| task.expect("a thread").path());
    threads.find(has_memory).expect("a thread that has not ended")
}

fn maps(pid: u32) -> String {
    fs::read_to_string(of_thread(pid).join("maps")).expect("its mappings")
}

/// Returns a place in code of a process that is not as in its file: the byte of the process, that of the file, and the
/// mapping.
fn changed_code(pid: u32) -> Option<String> {
    let mut memory = File::open(of_thread(pid).join("mem")).expect("its memory");
    let maps = maps(pid);
    let is_code = |line: &&str| line.contains(" r-xp ") && line.contains('/');
    let of_code: Vec<&str> = maps.lines().filter(is_code).collect();
    assert!(of_code.len() > 1, "{maps}");
    of_code.into_iter().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let (start, end) = fields[0].split_once('-').expect("a range");
        let mut of_file = Vec::new();
        let mut file = File::open(fields[5]).expect("a file of code");
        file.seek(SeekFrom::Start(hex(fields[2]))).expect("its code");
        file.take(hex(end) - hex(start)).read_to_end(&mut of_file).expect("its code");
        let mut of_process = vec![0; of_file.len()];
        memory.seek(SeekFrom::Start(hex(start))).expect("an address");
        memory.read_exact(&mut of_process).expect("its code");
        let place = (0..of_file.len()).find(|&place| of_process[place] != of_file[place])?;
        let (now, before) = (of_process[place], of_file[place]);
        Some(format!("{now:#x} for {before:#x}, {place:#x} into {line}"))
    })
}

/// Returns the addresses of code of the program itself where a process has this byte and its file has another one.
fn changed_places(pid: u32, byte: u8) -> Vec<u64> {
    let mut memory = File::open(of_thread(pid).join("mem")).expect("its memory");
    let maps = maps(pid);
    let of_program = |line: &&str| line.contains(" r-xp ") && line.ends_with("/service");
    let line = maps.lines().find(of_program).expect("its code");
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let (start, end) = fields[0].split_once('-').expect("a range");
    let mut of_file = Vec::new();
    let mut file = File::open(fields[5]).expect("a file of code");
    file.seek(SeekFrom::Start(hex(fields[2]))).expect("its code");
    file.take(hex(end) - hex(start)).read_to_end(&mut of_file).expect("its code");
    let mut of_process = vec![0; of_file.len()];
    memory.seek(SeekFrom::Start(hex(start))).expect("an address");
    memory.read_exact(&mut of_process).expect("its code");
    let is_changed = |&place: &usize| of_process[place] == byte && of_file[place] != byte;
    (0..of_file.len()).filter(is_changed).map(|place| hex(start) + place as u64).collect()
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
        let avtrace = service.attach(&[]);
        assert!(changed_code(service.running.pid()).is_some(), "there are probes");
        service.does(if signal == "INT" { "rtn" } else { "tn" });
        avtrace.signal(signal);
        let ended = avtrace.wait();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
        check_transfer(&service.report(), 2);
        is_left_alone(service.running.pid());
        service.does("t");
    }
    service.end();
}

#[test]
fn the_tracing_ends_after_its_time_and_after_so_many_defects() {
    let mut service = Service::start();
    let ended = service.attach(&["--duration", "300ms"]).wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    is_left_alone(service.running.pid());
    let avtrace = service.attach(&["--max-defects", "1"]);
    service.does("t");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    check_transfer(&service.report(), 1);
    is_left_alone(service.running.pid());
    service.end();
}

#[test]
fn nothing_is_left_in_a_process_whose_main_thread_has_ended() {
    let mut service = Service::start();
    let avtrace = service.attach(&[]);
    service.does("tmt");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    check_transfer(&service.report(), 2);
    is_left_alone(service.running.pid());
    service.does("t");
    service.end();
}

#[test]
fn the_tracing_ends_with_the_process() {
    let mut service = Service::start();
    let avtrace = service.attach(&[]);
    service.does("t");
    write!(service.commands, "q").expect("a reader");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report = service.report();
    assert_eq!((report.subject.exit_code, report.subject.signal), (Some(7), None));
    assert_eq!(service.running.wait().code, Some(7));
}

#[test]
fn a_process_goes_on_when_avtrace_is_killed() {
    let mut service = Service::start();
    let avtrace = service.attach(&[]);
    service.does("t");
    avtrace.signal("KILL");
    assert_eq!(avtrace.wait().signal, Some(9));
    service.does("tn");
    let pid = service.running.pid().to_string();
    // Its probes are there still.
    let mut again = Command::new(tests::tracer::avtrace());
    again.args(["attach", "--pid", &pid, "--capture", "inline"]);
    let ended = Running::start(&mut again, None, TIME_LIMIT).wait();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("of an avtrace that was killed"), "{}", ended.stderr);
    service.does("t");
    service.end();
}

#[test]
fn a_process_goes_on_when_avtrace_is_killed_while_it_attaches() {
    for milliseconds in [0, 20, 60, 150, 400] {
        let mut service = Service::start();
        let mut command = Command::new(avtrace());
        command.args(["attach", "--pid", &service.running.pid().to_string()]);
        let avtrace = Running::start(command.args(["--capture", "inline"]), None, TIME_LIMIT);
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        avtrace.signal("KILL");
        assert_eq!(avtrace.wait().signal, Some(9));
        service.does("tn");
        service.end();
    }
}

/// Another tracer's breakpoint where a probe is: that place cannot be restored, and all that it leads to stays.
#[test]
fn memory_is_kept_and_reported_where_a_place_cannot_be_restored() {
    const BREAKPOINT: u8 = 0xcc;
    let mut service = Service::start();
    let avtrace = service.attach(&[]);
    service.does("t");
    let pid = service.running.pid();
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
    let avtrace = service.attach(&[]);
    service.does("tfltf");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    check_transfer(&service.report(), 2);
    is_left_alone(service.running.pid());
    service.does("flt");
    service.end();
}

#[test]
fn a_process_that_replaces_its_program_is_traced_on_and_left_alone() {
    let mut service = Service::start();
    let avtrace = service.attach(&["--max-defects", "1"]);
    // Only the new program does what is a defect.
    service.does("xt");
    let ended = avtrace.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    is_left_alone(service.running.pid());
    service.does("tl");
    service.end();
}

/// Fills a pipe.
fn fill(pipe: &std::io::PipeWriter) {
    const NONBLOCKING: i32 = 0o4000;
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    // A descriptor that is opened has modes of its own.
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
    let pid = service.running.pid();
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
    write!(service.commands, "q").expect("a reader");
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
    let avtrace = service.attach(&[]);
    avtrace.signal("INT");
    assert_eq!(avtrace.wait().code, Some(0));
    let pid = service.running.pid();
    service.running.await_that("it is stopped", |pid| state(pid) == Some('T'));
    assert_eq!(changed_code(pid), None);
    service.running.signal("CONT");
    service.does("t");
    is_left_alone(pid);
    service.end();
}

/// Returns the state of a process, by the letter of the kernel.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
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

#[test]
fn an_ordinary_user_may_attach_to_an_own_process() {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !machine::can_drop_privileges() || !matches!(scope.trim(), "" | "0") {
        machine::skip("not root, setpriv is not installed, or Yama restricts ptrace");
        return;
    }
    let mut service = Service::start_as(true);
    let avtrace = service.attach(&[]);
    service.does("tn");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), ""), "{}", ended.stderr);
    check_transfer(&service.report(), 2);
    is_left_alone(service.running.pid());
    service.end();
}
