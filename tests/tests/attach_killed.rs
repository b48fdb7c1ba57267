//! Kills of `avtrace attach` and of the traced process at any moment, and panics: no harmful remains are left.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use object::{Object as _, ObjectKind, ObjectSymbol as _};
use tests::{
    Program, Service, c, machine,
    process::{Ended, Running, TIME_LIMIT, run},
    require_bpf,
    tracer::{avtrace, captures_inline},
};

/// Back end of the tests here, from the environment, as for other suites.
fn back_end() -> &'static str {
    if captures_inline() { "inline" } else { "kernel" }
}

/// Checks that a service has not noticed the end of avtrace, and ends it.
#[track_caller]
fn goes_on(mut service: Service) {
    service.does("tn");
    if captures_inline() {
        // Its patches may be there still, without effect.
        let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("status");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
    } else {
        service.await_own_code();
        service.is_left_alone();
    }
    service.end();
}

/// Attaches to a service, and detaches at once. At the system call of this number of those that change something,
/// `victim` is killed, or avtrace itself. Returns the number of these calls.
fn attach_until(service: &Service, call: u64, victim: Option<u32>) -> (Ended, u64) {
    let kills_at = c("kills_at", &["-O1"]).path;
    let (call, victim) = (call.to_string(), victim.unwrap_or(0).to_string());
    let mut command = Command::new(kills_at);
    command.args([&call, &victim]).arg(avtrace());
    command.args(["attach", "--pid", &service.pid().to_string(), "--capture", back_end()]);
    command.args(["--accesses", "probe", "--quiet", "--duration", "1ms", "--format", "json", "-o"]);
    let ended = run(command.arg(service.report_file()));
    let calls = ended.stdout.strip_suffix(" calls\n").expect("a number of calls");
    let calls = calls.parse().expect("a number");
    (ended, calls)
}

/// Code of `mark` and `step` of `rooms.c` in its process.
fn rooms_of(program: &Program) -> Range<u64> {
    let file = fs::read(&program.path).expect("the program");
    let file = object::File::parse(&*file).expect("an ELF file");
    let address = |name: &str| {
        let symbol = file.symbol_by_name(name).expect("a function");
        symbol.address()..symbol.address() + symbol.size()
    };
    assert_eq!(file.kind(), ObjectKind::Executable, "loaded to the addresses of the file");
    address("mark").start..address("step").end
}

/// Attaches to a process for a moment, and kills avtrace at its write of this number to the code in a range. Returns
/// its end, and the addresses of the writes.
fn attach_until_write(service: &Service, range: &Range<u64>, write: usize) -> (Ended, Vec<u64>) {
    let mut command = Command::new(c("kills_at", &["-O1"]).path);
    command.env("WRITES", format!("{:x}-{:x}", range.start, range.end));
    command.args([&write.to_string(), "0"]).arg(avtrace());
    command.args(["attach", "--pid", &service.pid().to_string(), "--capture", "inline"]);
    command.args(["--accesses", "probe", "--atomic", "step", "--probe", "mark", "--quiet"]);
    command.args(["--duration", "1ms", "--format", "json", "-o"]).arg(service.report_file());
    let ended = run(&mut command);
    let number = |line: &str| u64::from_str_radix(line.strip_prefix("0x")?, 16).ok();
    let writes = ended.stdout.lines().filter_map(number).collect();
    (ended, writes)
}

#[test]
fn code_is_whole_after_each_write_to_patches_within_patches() {
    let program = c("rooms", &["-O1", "-no-pie", "-pthread"]);
    let start = || {
        Service::start_by(&program, "rooms", |_, program, fifo| {
            let mut command = Command::new(program);
            command.arg(fifo);
            command
        })
    };
    let mut service = start();
    let range = rooms_of(&program);
    let (ended, writes) = attach_until_write(&service, &range, 0);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    service.does("t");
    service.is_left_alone();
    service.end();
    // Of the ten bytes of the first instruction, the last five have the jump of another patch.
    let has_room = writes.iter().any(|&at| (range.start + 5..range.start + 10).contains(&at));
    assert!(has_room, "{writes:x?} in {range:x?}");
    for write in 1..=writes.len() {
        let mut service = start();
        let (ended, made) = attach_until_write(&service, &range, write);
        assert_eq!((ended.code, made.len()), (KILLED, write), "{}", ended.stderr);
        service.does("t");
        service.end();
    }
}

/// Status of a command that `SIGKILL` has ended, as a shell has it.
const KILLED: Option<i32> = Some(137);

/// Numbers of the calls at which a process is killed: all over the run, and denser at its begin.
fn moments(calls: u64) -> Vec<u64> {
    let early = (0..).map(|power| 1 << power).take_while(|&call| call < calls / 2);
    let late = [4, 5, 6, 7].map(|eighths| calls * eighths / 8);
    early.chain(late).collect()
}

#[test]
fn a_process_goes_on_when_avtrace_is_killed_while_it_attaches_or_detaches() {
    require_bpf!();
    let service = Service::start();
    let (ended, calls) = attach_until(&service, 0, None);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    service.is_left_alone();
    service.end();
    assert!(calls > 50, "{calls} calls");
    for call in moments(calls) {
        let service = Service::start();
        let (ended, made) = attach_until(&service, call, None);
        // Runs differ by a few calls.
        let expected = if made >= call { KILLED } else { Some(0) };
        assert_eq!(ended.code, expected, "call {call} of {calls}: {}", ended.stderr);
        assert!(made >= call || call > calls / 2, "{made} calls, and not {call}");
        goes_on(service);
    }
}

#[test]
fn a_process_may_end_while_avtrace_attaches() {
    require_bpf!();
    let service = Service::start();
    let (_, calls) = attach_until(&service, 0, None);
    service.end();
    for call in moments(calls) {
        let service = Service::start();
        let (ended, made) = attach_until(&service, call, Some(service.pid()));
        let has_report = service.report_file().exists();
        let stderr = &ended.stderr;
        // The program ran to the end of the tracing, or avtrace says that it has ended before.
        assert_eq!(ended.code, Some(if has_report { 0 } else { 3 }), "call {call}: {stderr}");
        let is_named = stderr.contains("has ended") || stderr.contains("no process");
        assert!(has_report || is_named, "call {call}: {stderr}");
        assert!(!has_report || call > 1, "nothing is traced that has ended before");
        assert!(made >= call || call > calls / 2, "{made} calls, and not {call}");
    }
}

#[test]
fn a_process_goes_on_when_avtrace_panics() {
    require_bpf!();
    if !cfg!(debug_assertions) {
        machine::skip("panics are made in debug builds only");
        return;
    }
    for back_end in ["kernel", "inline"] {
        let mut service = Service::start();
        let mut command = Command::new(avtrace());
        command.env("AVTRACE_TEST_PANIC_AFTER", "10");
        let options = ["--capture", back_end, "--accesses", "probe"];
        let avtrace = service.attach_by(command, &options);
        service.does("tn");
        // At once, and not when somebody asks for the end.
        let ended = avtrace.wait();
        assert_eq!(ended.code, Some(1), "{back_end}: {}", ended.stderr);
        assert!(ended.stderr.contains("by AVTRACE_TEST_PANIC_AFTER"), "{}", ended.stderr);
        let said = format!("process {}: avtrace has panicked, as said above", service.pid());
        assert!(ended.stderr.contains(&said), "{}", ended.stderr);
        service.await_own_code();
        service.is_left_alone();
        service.does("tn");
        service.end();
    }
}

/// A control group with a limit of memory; it is removed when this is dropped.
struct Group {
    path: PathBuf,
    /// Files of its use and its limit, and of the number of processes that were killed for it.
    files: [&'static str; 3],
}

impl Group {
    /// Makes one, in whichever version of control groups there is.
    ///
    /// # Errors
    /// The reason why it cannot be made.
    fn make() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let mut refusals = Vec::new();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let (kind, options) = (fields[2], fields[3]);
            let mount = Path::new(fields[1]);
            let files = if kind == "cgroup2" {
                // Enabling a controller that is enabled has no effect.
                let _ = fs::write(mount.join("cgroup.subtree_control"), "+memory");
                ["memory.current", "memory.max", "memory.events"]
            } else if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
                ["memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"]
            } else {
                continue;
            };
            let path = mount.join(format!("avtrace-oom-{}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let group = Self { path, files };
                    if group.path.join(files[1]).exists() {
                        return Ok(group);
                    }
                    refusals.push(format!("{} has no limit of memory", mount.display()));
                }
                Err(error) => refusals.push(format!("{}: {error}", mount.display())),
            }
        }
        Err(format!("no control group limits memory here: {}", refusals.join(", ")))
    }

    fn read(&self, file: usize) -> String {
        fs::read_to_string(self.path.join(self.files[file])).expect("a file of the group")
    }

    /// Number of processes that were killed since they used too much.
    fn killed(&self) -> u64 {
        let events = self.read(2);
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("a count").trim().parse().expect("a number")
    }

    /// Limits its memory to the present use and this much more.
    fn limit(&self, more: u64) {
        let used: u64 = self.read(0).trim().parse().expect("a number");
        fs::write(self.path.join(self.files[1]), (used + more).to_string()).expect("a limit");
        // The kernel would move memory above the limit to swap, and kill no process.
        for file in ["memory.swap.max", "memory.memsw.limit_in_bytes"] {
            let limit = if file.ends_with("max") { 0 } else { used + more };
            let _ = fs::write(self.path.join(file), limit.to_string());
        }
    }

    /// Runs a command in the group; of all in it, the kernel kills this one first if `is_first`.
    fn run(&self, command: &[&str], is_first: bool) -> Command {
        let mut shell = Command::new("sh");
        let script = "echo $$ > \"$0\"; echo \"$1\" > /proc/self/oom_score_adj; shift; exec \"$@\"";
        shell.args(["-c", script]).arg(self.path.join("cgroup.procs"));
        shell.arg(if is_first { "1000" } else { "0" }).args(command);
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that have ended leave it a moment later.
        for _ in 0..2000 {
            match fs::remove_dir(&self.path) {
                Err(_) => thread::sleep(Duration::from_millis(1)),
                Ok(()) => return,
            }
        }
    }
}

#[test]
fn a_process_goes_on_when_the_kernel_kills_avtrace_for_want_of_memory() {
    const MORE: u64 = 8 << 20;
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let group = match Group::make() {
        Ok(group) => group,
        Err(reason) => return machine::skip(&reason),
    };
    let mut service = Service::start();
    let path = avtrace().to_str().expect("a path");
    let options = ["--capture", back_end(), "--accesses", "probe"];
    let mut avtrace = service.attach_by(group.run(&[path], true), &options);
    service.does("t");
    avtrace.await_stderr("found: `transfer`");
    group.limit(MORE);
    // It keeps more than there is room for. Whether there is enough without avtrace does not matter.
    let hog = "head -c 24M /dev/zero | tail -c 24M >/dev/null";
    let _ = Running::start(&mut group.run(&["sh", "-c", hog], false), None, TIME_LIMIT).wait();
    let ended = avtrace.wait();
    assert_eq!(ended.signal, Some(9), "{}", ended.stderr);
    assert!(group.killed() > 0, "by the kernel: {}", group.read(2));
    goes_on(service);
}
