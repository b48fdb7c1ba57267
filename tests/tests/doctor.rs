//! `avtrace doctor`: its answers as root, as an ordinary user and in namespaces. It leaves no files or probes behind.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{
    Ended, machine, process, programs, require_bpf,
    schema::{assert_follows, validator},
    tracer::{avtrace, avtrace_with},
};

/// Arguments of setpriv for a user without privileges.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Runs `avtrace doctor` within another command.
fn within(wrapper: &[&str], arguments: &[&str]) -> Ended {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(avtrace()).arg("doctor").args(arguments);
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "DEBUGINFOD_URLS", "container"] {
        command.env_remove(variable);
    }
    process::run(&mut command)
}

/// Reads a diagnosis, which must follow the schema.
fn diagnosis(ended: &Ended) -> Value {
    let document: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("no JSON ({error}): {ended:#?}"));
    assert_follows(&document, &validator("docs/doctor.schema.json"));
    document
}

/// Returns the check of this name.
fn check<'a>(diagnosis: &'a Value, id: &str) -> &'a Value {
    let checks = diagnosis["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no check `{id}`"))
}

/// Returns the status of a check.
fn status<'a>(diagnosis: &'a Value, id: &str) -> &'a str {
    check(diagnosis, id)["status"].as_str().expect("a status")
}

/// Returns whether this process is root and can become somebody else by these tools.
fn can_use(tools: &[&str]) -> bool {
    if let Some(missing) = tools.iter().find(|tool| !machine::have(tool)) {
        machine::skip(&format!("`{missing}` is not installed"));
        return false;
    }
    if !machine::is_root() {
        machine::skip("not root");
        return false;
    }
    true
}

#[test]
fn root_has_both_ways() {
    require_bpf!();
    let ended = within(&["env"], &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let diagnosis = diagnosis(&ended);
    assert_eq!(diagnosis["capture"]["kernel"]["works"], true, "{diagnosis:#}");
    assert_eq!(diagnosis["capture"]["inline"]["works"], true, "{diagnosis:#}");
    assert_eq!(diagnosis["capture"]["auto"]["reason_kind"], "preferred");
    for id in ["btf", "bpf_programs", "ring_buffer", "tracepoints", "uprobes", "capabilities"] {
        assert_eq!(status(&diagnosis, id), "works", "{id}: {diagnosis:#}");
    }
    assert_eq!(status(&diagnosis, "debuginfod"), "unused");
}

#[test]
fn an_ordinary_user_has_inline_probes_and_the_command_for_the_rest() {
    if !can_use(&["setpriv"]) {
        return;
    }
    let ended = within(&NOBODY, &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let diagnosis = diagnosis(&ended);
    let kernel = &diagnosis["capture"]["kernel"];
    assert_eq!(kernel["reason"], "this process has no CAP_BPF and no CAP_PERFMON");
    let path = avtrace().display();
    let (sudo, setcap) =
        (format!("sudo {path} …"), format!("sudo setcap cap_bpf,cap_perfmon+ep {path}"));
    let commands = kernel["commands"].as_array().expect("commands");
    assert!(commands.contains(&sudo.into()) && commands.contains(&setcap.into()), "{kernel:#}");
    assert_eq!(diagnosis["capture"]["inline"]["works"], true, "{diagnosis:#}");
    let auto = &diagnosis["capture"]["auto"];
    assert_eq!(
        (&auto["backend"], &auto["reason_kind"]),
        (&"inline".into(), &"no_privileges".into())
    );
    for (id, expected) in [
        ("capabilities", "fails"),
        ("uprobes", "untested"),
        ("ptrace", "works"),
        ("inline_probes", "works"),
    ] {
        assert_eq!(status(&diagnosis, id), expected, "{id}: {diagnosis:#}");
    }
}

#[test]
fn capabilities_alone_are_enough_for_the_kernel() {
    require_bpf!();
    if !can_use(&["setpriv"]) {
        return;
    }
    let few = ["--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon"];
    let ended = within(&[&NOBODY[..], &few].concat(), &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let diagnosis = diagnosis(&ended);
    assert_eq!(diagnosis["capture"]["kernel"]["works"], true, "{diagnosis:#}");
    let one = ["--inh-caps=-all,+bpf", "--ambient-caps=-all,+bpf"];
    let ended = within(&[&NOBODY[..], &one].concat(), &["--format", "json"]);
    let reason = &self::diagnosis(&ended)["capture"]["kernel"]["reason"];
    assert_eq!(reason, "this process has no CAP_PERFMON");
}

#[test]
fn a_pid_namespace_of_its_own_changes_nothing() {
    require_bpf!();
    if !can_use(&["unshare"]) {
        return;
    }
    let apart = ["unshare", "--pid", "--fork", "--mount-proc"];
    let ended = within(&apart, &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let diagnosis = diagnosis(&ended);
    assert_eq!(diagnosis["capture"]["kernel"]["works"], true, "{diagnosis:#}");
    assert_eq!(diagnosis["capture"]["inline"]["works"], true, "{diagnosis:#}");
    let found = check(&diagnosis, "container")["found"].as_str().expect("a text");
    assert!(found.contains("a PID namespace of its own"), "{found}");
}

#[test]
fn the_proc_of_others_is_of_no_use() {
    if !can_use(&["unshare"]) {
        return;
    }
    let ended = within(&["unshare", "--pid", "--fork"], &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), ""));
    let diagnosis = diagnosis(&ended);
    for back_end in ["kernel", "inline"] {
        let verdict = &diagnosis["capture"][back_end];
        let reason = verdict["reason"].as_str().expect("a reason");
        assert!(reason.contains("another PID namespace"), "{reason}");
        assert_eq!(verdict["commands"][0], "sudo unshare --pid --fork --mount-proc");
    }
    assert_eq!(status(&diagnosis, "proc"), "fails");
    assert_eq!(status(&diagnosis, "ptrace"), "untested");
}

#[test]
fn where_nothing_works_the_status_says_so() {
    if !can_use(&["strace"]) {
        return;
    }
    let ended = within(&["strace", "-f", "-o", "/dev/null"], &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), ""));
    let diagnosis = diagnosis(&ended);
    for back_end in ["kernel", "inline"] {
        let reason = diagnosis["capture"][back_end]["reason"].as_str().expect("a reason");
        assert!(reason.contains("avtrace is traced itself"), "{reason}");
    }
    assert_eq!(status(&diagnosis, "ptrace"), "fails");
    assert_eq!(status(&diagnosis, "ptrace_breakpoints"), "fails");
}

/// Returns the diagnosis, with the exit status, where a system call is denied.
fn where_denied(how: &str) -> (Option<i32>, Value) {
    let filter = programs::c("restricts_itself", &["-g", "-O1"]);
    let ended = within(&[filter.path.to_str().expect("text"), how], &["--format", "json"]);
    assert_eq!(ended.stderr, "", "{how}");
    (ended.code, diagnosis(&ended))
}

/// Returns the reason why a back end does not work.
fn reason<'a>(diagnosis: &'a Value, back_end: &str) -> &'a str {
    let verdict = &diagnosis["capture"][back_end];
    assert_eq!(verdict["works"], false, "{diagnosis:#}");
    verdict["reason"].as_str().expect("a reason")
}

#[test]
fn a_filter_of_system_calls_is_named_as_the_cause() {
    let (code, denied) = where_denied("no-ptrace");
    assert_eq!(code, Some(1), "{denied:#}");
    for back_end in ["kernel", "inline"] {
        let reason = reason(&denied, back_end);
        assert!(reason.contains("a seccomp filter") && reason.contains("--cap-add"), "{reason}");
    }
    assert_eq!(status(&denied, "container"), "limited");
    let (code, denied) = where_denied("no-memfd");
    let reason = reason(&denied, "inline");
    assert!(reason.contains("memfd_create"), "{reason}");
    assert_eq!(status(&denied, "inline_probes"), "fails");
    let kernel_works = denied["capture"]["kernel"]["works"] == true;
    assert_eq!(code, Some(i32::from(!kernel_works)), "{denied:#}");
    let (_, denied) = where_denied("no-breakpoints");
    assert_eq!(status(&denied, "perf_breakpoints"), "fails");
    assert_eq!(status(&denied, "ptrace_breakpoints"), "works");
}

#[test]
fn programs_that_are_denied_in_spite_of_capabilities_leave_inline_probes() {
    require_bpf!();
    let (code, denied) = where_denied("no-bpf");
    assert_eq!(code, Some(0), "{denied:#}");
    let reason = reason(&denied, "kernel");
    assert!(reason.contains("the seccomp filter may be the cause"), "{reason}");
    assert_eq!(status(&denied, "bpf_programs"), "fails");
    assert_eq!(denied["capture"]["auto"]["backend"], "inline", "{denied:#}");
}

#[test]
fn root_without_capabilities_learns_where_they_were_lost() {
    if !can_use(&["setpriv"]) {
        return;
    }
    let ended = within(&["setpriv", "--bounding-set=-all"], &["--format", "json"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let diagnosis = diagnosis(&ended);
    let reason = reason(&diagnosis, "kernel");
    assert!(reason.contains("although it is root's: they were dropped"), "{reason}");
    let commands = diagnosis["capture"]["kernel"]["commands"].to_string();
    assert!(!commands.contains("sudo"), "root needs none: {commands}");
    assert_eq!(diagnosis["capture"]["inline"]["works"], true, "{diagnosis:#}");
}

#[test]
fn settings_that_deny_come_with_their_commands() {
    if !can_use(&["setpriv", "unshare"]) {
        return;
    }
    // Files in a new mount namespace stand for settings of the kernel, which stay as they are.
    let script = "set -e; release=$(cat /proc/sys/kernel/osrelease)
        mount -t tmpfs none /proc/sys/kernel; mkdir /proc/sys/kernel/yama
        echo $release > /proc/sys/kernel/osrelease; echo 4 > /proc/sys/kernel/perf_event_paranoid
        echo 2 > /proc/sys/kernel/yama/ptrace_scope; mount -t tmpfs none /sys/kernel/security
        echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown
        chmod -R a+rX /proc/sys/kernel /sys/kernel/security; exec \"$@\"";
    let filter = programs::c("restricts_itself", &["-g", "-O1"]);
    let apart = ["unshare", "--mount", "sh", "-c", script, "sh"];
    let denying = [filter.path.to_str().expect("text"), "no-ptrace"];
    let of = |wrapper: &[&str]| {
        let ended = within(&[&apart, wrapper].concat(), &["--format", "json"]);
        assert_eq!(ended.stderr, "", "{wrapper:?}");
        (ended.code, diagnosis(&ended))
    };
    let (code, user) = of(&[&NOBODY[..], &denying].concat());
    assert_eq!(code, Some(1), "{user:#}");
    let allow = "sudo sysctl kernel.yama.ptrace_scope=1";
    assert_eq!(user["capture"]["inline"]["commands"][0], allow, "{user:#}");
    assert!(reason(&user, "inline").contains("`kernel.yama.ptrace_scope` is 2"), "{user:#}");
    for (id, expected, command) in [
        ("ptrace_scope", "fails", allow),
        ("perf_event_paranoid", "limited", "sudo sysctl kernel.perf_event_paranoid=2"),
    ] {
        let check = check(&user, id);
        assert_eq!((&check["status"], &check["command"]), (&expected.into(), &command.into()));
    }
    let lockdown = check(&user, "lockdown");
    assert_eq!(lockdown["status"], "fails");
    let found = lockdown["found"].as_str().expect("a text");
    assert!(found.contains("boot without `lockdown=confidentiality`"), "{found}");
    let (_, root) = of(&["env"]);
    for id in ["ptrace_scope", "perf_event_paranoid"] {
        assert_eq!(status(&root, id), "works", "they do not hold for root: {root:#}");
    }
}

#[test]
fn capabilities_of_a_user_namespace_are_none_of_the_kernels() {
    if !can_use(&["unshare"]) {
        return;
    }
    let ended = within(&["unshare", "--user", "--map-root-user"], &["--format", "json"]);
    if ended.stderr.contains("unshare failed") {
        machine::skip("no user namespaces");
        return;
    }
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let diagnosis = diagnosis(&ended);
    let reason = diagnosis["capture"]["kernel"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("initial user namespace"), "{reason}");
    assert_eq!(diagnosis["capture"]["auto"]["backend"], "inline", "{diagnosis:#}");
}

#[test]
fn the_text_has_the_verdicts_first_and_no_control_characters() {
    let ended = avtrace_with(["doctor", "--color", "never"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let mut lines = ended.stdout.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("--capture kernel  ")), "{ended:#?}");
    for option in ["--capture inline  ", "--capture auto    "] {
        assert!(lines.any(|line| line.starts_with(option)), "{option}: {ended:#?}");
    }
    assert!(!ended.stdout.contains(|c: char| c.is_control() && c != '\n'), "{ended:#?}");
    let painted = avtrace_with(["doctor", "--color", "always"]);
    assert!(painted.stdout.contains("\x1b["), "{painted:#?}");
    let mut named = Command::new(avtrace());
    named.arg("doctor").env("DEBUGINFOD_URLS", "https://a.example/\x1b[2J\u{202e}");
    let named = process::run(&mut named);
    assert!(!named.stdout.contains(['\x1b', '\u{202e}']), "{named:#?}");
}

#[test]
fn a_file_can_be_named_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("doctor.json");
    let arguments = ["doctor", "--format", "json", "-o", file.to_str().expect("text")];
    let ended = avtrace_with(arguments);
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), "", ""));
    let stdout = fs::read_to_string(&file).expect("the file");
    assert_eq!(diagnosis(&Ended { stdout, ..ended })["schema"], "avtrace-doctor/1");
    let nowhere = avtrace_with(["doctor", "-o", "/nonexistent/x"]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:#?}");
}

/// Returns the programs of this folder that run, also those that were removed.
fn running_from(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let programs = entries.filter_map(|entry| fs::read_link(entry.path().join("exe")).ok());
    let own = programs.filter(|program| program.starts_with(folder));
    own.map(|program| program.display().to_string()).collect()
}

/// Returns the BPF programs of avtrace that no process holds, if bpftool lists them.
fn orphans() -> Vec<Value> {
    let listed = Command::new("bpftool").args(["--json", "prog", "list"]).output();
    let listed =
        listed.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    let programs = listed.and_then(|listed| listed.as_array().cloned()).unwrap_or_default();
    let is_orphan = |program: &Value| {
        // Two that each run has.
        let is_own = program["name"] == "inline_lock" || program["name"] == "watchpoint";
        is_own && program["pids"].is_null()
    };
    programs.into_iter().filter(is_orphan).collect()
}

#[test]
fn nothing_stays() {
    require_bpf!();
    // Copies: other tests have processes of avtrace itself.
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("avtrace");
    fs::copy(avtrace(), &copy).expect("a copy");
    fs::copy("/bin/true", folder.path().join("true")).expect("a copy");
    for _ in 0..3 {
        let mut command = Command::new(&copy);
        let ended = process::run(command.arg("doctor").env("PATH", folder.path()));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(running_from(folder.path()), Vec::<String>::new());
    }
    // The kernel frees them a little later; programs of others may be on their way as well.
    let start = Instant::now();
    while !orphans().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", orphans());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn debug_files_from_servers_need_a_program_that_asks() {
    let run = |path: &str| {
        let mut command = Command::new(avtrace());
        command.args(["doctor", "--format", "json"]);
        command.env("DEBUGINFOD_URLS", "https://debuginfod.example").env("PATH", path);
        diagnosis(&process::run(&mut command))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(status(&run(path), "debuginfod"), "limited");
    fs::write(folder.path().join("debuginfod-find"), "").expect("a file");
    assert_eq!(status(&run(path), "debuginfod"), "works");
}
