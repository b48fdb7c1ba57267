//! The way to a program's entry point, while it is under ptrace: whatever libraries do before it, the program behaves
//! as it does alone and is traced from its entry point on; and as whom it runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tests::process::{child_of, run};
use tests::programs::{install, install_contents};
use tests::tracer::{FAIL_ON, avtrace, captures_inline, native};
use tests::{Avtrace, Ended, Program, c, machine, require_bpf};

/// The program, with the library that acts before it.
fn early() -> Program {
    let library = c("early", &["-g", "-shared", "-fPIC"]);
    let path = library.path.to_str().expect("text");
    c("early_main", &["-g", "-Wl,--no-as-needed", path])
}

/// Runs the program alone and traced; the same has to come out. Returns how many regions were seen.
#[track_caller]
fn check_same(what: &str) -> u64 {
    let program = early();
    let alone = native(&program.path, [what], None);
    let (traced, report) = Avtrace::on(&program).arguments([what]).report();
    let end = |ended: &Ended| (ended.code, ended.signal, ended.stdout.clone());
    assert_eq!(end(&traced), end(&alone), "{what}: {}", traced.stderr);
    assert_eq!(report.subject.exit_code, alone.code, "{what}");
    assert_eq!(report.subject.signal, alone.signal, "{what}");
    report.counts.transactions - report.counts.unary_transactions
}

#[test]
fn a_child_that_was_forked_before_the_entry_point_runs_on() {
    require_bpf!();
    assert_eq!(check_same("fork"), 1, "the parent's");
}

#[test]
fn a_program_that_replaces_itself_before_the_entry_point_is_traced() {
    require_bpf!();
    assert_eq!(check_same("exec"), 1);
}

#[test]
fn signals_before_the_entry_point_are_delivered() {
    require_bpf!();
    for what in ["signal", "trap"] {
        assert_eq!(check_same(what), 1, "{what}");
    }
}

#[test]
fn threads_from_before_the_entry_point_are_no_obstacle() {
    require_bpf!();
    assert_eq!(check_same("thread"), 1);
}

#[test]
fn an_end_before_the_entry_point_is_the_programs() {
    require_bpf!();
    for what in ["exit", "die"] {
        assert_eq!(check_same(what), 0, "{what}");
    }
}

#[test]
fn a_program_that_stops_itself_is_stopped_and_can_be_continued() {
    require_bpf!();
    let program = early();
    let mut running = Avtrace::on(&program).arguments(["stop"]).start();
    let tracee = |parent| child_of(parent, &program.path);
    // A process that inline probes are in has a tracer, by which it is stopped for good if it is so for half a second.
    let mut times = 0;
    let mut is_stopped = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if captures_inline() {
            times = if status.contains("State:\tt (tracing stop)") { times + 1 } else { 0 };
            times >= 100
        } else {
            status.contains("State:\tT (stopped)") && status.contains("TracerPid:\t0")
        }
    };
    running
        .await_that("the program is stopped", |parent| tracee(parent).is_some_and(&mut is_stopped));
    let pid = tracee(running.pid()).expect("the program");
    let continued =
        run(Command::new("sh").args(["-c", "kill -CONT \"$1\"", "sh", &pid.to_string()]));
    assert_eq!(continued.code, Some(0), "{}", continued.stderr);
    let ended = running.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(7), "main: stop\n"), "{}", ended.stderr);
}

#[test]
fn a_program_that_the_dynamic_linker_refuses() {
    require_bpf!();
    let program = early();
    let folder = tests::folder();
    let path = folder.path().join("early_main");
    let library = c("early", &["-g", "-shared", "-fPIC"]).path;
    let library = library.to_str().expect("text").as_bytes();
    // The name of a missing library, as long as the name of the present one.
    let mut data = fs::read(&program.path).expect("the program");
    let at = data.windows(library.len()).position(|name| name == library).expect("its name");
    data[at + 1] = b'?';
    install_contents(data, &path);
    let ended = Avtrace::on_path(&path).run();
    assert_eq!(ended.code, Some(127), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot open shared object file"), "{}", ended.stderr);
    assert!(ended.stderr.contains("before it reached its entry point"), "{}", ended.stderr);
}

/// A program that ends so early ends before the stop that ptrace makes at the end of `execve`, as one that is killed
/// inside `execve` does.
#[test]
fn an_end_before_the_first_instruction_is_the_programs() {
    require_bpf!();
    let program = c("identity", &[]);
    let folder = tests::folder();
    let path = folder.path().join("identity");
    let mut data = fs::read(&program.path).expect("the program");
    let number = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"));
    // Where the program headers are, of 56 bytes each.
    let headers = (number(32) as usize..).step_by(56);
    let is_load = |&at: &usize| number(at) as u32 == object::elf::PT_LOAD.0;
    let load = headers.into_iter().find(is_load).expect("a segment");
    // Less in memory than in the file: the kernel looks only when what ran before is gone.
    data[load + 40..load + 48].fill(0);
    install_contents(data, &path);
    assert_eq!(native(&path, [""; 0], None).signal, Some(11), "killed by the kernel");
    let (ended, report) = Avtrace::on_path(&path).report();
    assert_eq!(ended.signal, Some(11), "{}", ended.stderr);
    assert_eq!((report.subject.exit_code, report.subject.signal), (None, Some(11)));
}

#[test]
fn a_missing_dynamic_linker_is_named() {
    require_bpf!();
    let program = c("identity", &["-Wl,--dynamic-linker=/no/such/ld.so"]);
    let ended = Avtrace::on(&program).run();
    assert_eq!(ended.code, Some(127), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("`/no/such/ld.so`"), "{}", ended.stderr);
}

/// Runs `identity` with these settings of sudo's.
fn identity_under_sudo(program: &Program, uid: &str, gid: &str) -> String {
    let ended =
        Avtrace::on(program).environment("SUDO_UID", uid).environment("SUDO_GID", gid).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stdout
}

#[test]
fn a_user_without_an_account_is_a_user_too() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let program = c("identity", &[]);
    assert_eq!(
        identity_under_sudo(&program, "400042", "400043"),
        "400042 400042 400043 400043: 400043\n"
    );
}

#[test]
fn a_set_user_id_program_keeps_its_privileges() {
    require_bpf!();
    if !machine::is_root() || !machine::have("setpriv") {
        machine::skip("not root, or setpriv is not installed");
        return;
    }
    let folder = tests::folder();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    let mut program = c("identity", &[]);
    let copy = folder.path().join("identity");
    install(&program.path, &copy, 0o4755);
    program.path = copy;
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let alone = run(Command::new("setpriv").args(user).arg(&program.path)).stdout;
    if !alone.starts_with("65534 0 ") {
        machine::skip("set-user-ID does not work where temporary files are");
        return;
    }
    assert!(identity_under_sudo(&program, "65534", "65534").starts_with("65534 0 "));
}

#[test]
fn a_pipe_signal_that_is_ignored_stays_ignored() {
    require_bpf!();
    let ignored = |script: &str| {
        let ended = run(Command::new("sh").args(["-c", script, "sh"]).arg(avtrace()));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    let alone = ignored("trap '' PIPE; grep SigIgn /proc/self/status");
    assert_eq!(ignored("trap '' PIPE; \"$1\" grep SigIgn /proc/self/status"), alone);
    assert_ne!(ignored("\"$1\" grep SigIgn /proc/self/status"), alone);
}

#[test]
fn too_little_memory_is_an_error_with_a_remedy() {
    require_bpf!();
    // How much is enough depends on the build: from far too little to enough.
    let mut failed = 0;
    for kib in (112_000..=256_000).step_by(12_000) {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v \"$1\"; exec \"$2\" true", "sh", &kib.to_string()]);
        let ended = run(limited.arg(avtrace()));
        if ended.code == Some(0) {
            continue;
        }
        failed += 1;
        assert_eq!((ended.code, ended.signal), (Some(1), None), "{kib}: {}", ended.stderr);
        let line = ended.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("avtrace: error: "), "{kib}: {line}");
        assert!(line.contains("`ulimit -v`"), "{kib}: {line}");
    }
    assert!(failed > 0, "the limit is in effect");
}

#[test]
fn a_low_limit_of_open_files_is_raised_for_avtrace_alone() {
    require_bpf!();
    let limited = |program: &[&str]| {
        let script = "ulimit -S -n 48; exec \"$@\"";
        let mut limited = Command::new("sh");
        limited.env(FAIL_ON.0, FAIL_ON.1);
        limited.args(["-c", script, "sh"]).arg(avtrace()).args(["--accesses", "sync", "--"]);
        run(limited.args(program))
    };
    let bank = c("bank", &["-g", "-O2"]);
    let ended = limited(&[bank.path.to_str().expect("text")]);
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    let ended = limited(&["sh", "-c", "ulimit -n"]);
    assert_eq!(ended.stdout, "48\n", "{}", ended.stderr);
}

#[test]
fn capabilities_are_enough() {
    require_bpf!();
    if !machine::is_root() || !machine::have("setpriv") {
        machine::skip("not root, or setpriv is not installed");
        return;
    }
    let folder = tests::folder();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    let copy = |from: &std::path::Path, name: &str| {
        let to = folder.path().join(name);
        install(from, &to, 0o755);
        to
    };
    let tracer = copy(avtrace(), "avtrace");
    let bank = copy(&c("bank", &["-g", "-O2"]).path, "bank");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        command.arg(format!("--{set}=-all,+bpf,+perfmon"));
    }
    let ended = run(command.arg(&tracer).args(["--watch", "account+40:8"]).arg(&bank));
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
}

#[test]
fn a_pid_namespace_of_its_own() {
    require_bpf!();
    if !machine::is_root() || !machine::have("unshare") {
        machine::skip("not root, or unshare is not installed");
        return;
    }
    let bank = c("bank", &["-g", "-O2"]);
    let inside = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(options).arg(avtrace()).args(["--watch", "account+40:8"]).arg(&bank.path);
        run(&mut command)
    };
    let ended = inside(&["--pid", "--fork", "--mount-proc"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    for (options, remedy) in [(&["--pid", "--fork"][..], "--mount-proc"), (&["--pid"], "--fork")] {
        let ended = inside(options);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(remedy), "{}", ended.stderr);
    }
}
