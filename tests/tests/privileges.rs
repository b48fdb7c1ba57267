//! Whom programs run as, what avtrace may do with which capabilities, and settings of the kernel that deny. What lacks
//! is named with the command that grants it, and no program runs with other privileges than alone without that being
//! said.

use std::{
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tempfile::TempDir;
use tests::{
    Avtrace, Ended, Running, c, machine,
    process::{TIME_LIMIT, run},
    programs::install,
    require_bpf,
    tracer::{FAIL_ON, avtrace},
};

/// Arguments of setpriv for an ordinary user.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Returns whether this process is root and these tools are there; says so where not.
fn can_use(tools: &[&str]) -> bool {
    if !machine::is_root() {
        machine::skip("not root");
        return false;
    }
    let missing = tools.iter().find(|tool| !machine::have(tool));
    if let Some(missing) = missing {
        machine::skip(&format!("`{missing}` is not installed"));
    }
    missing.is_none()
}

/// Held by tests that trace as an ordinary user, and by that which changes whether one may for itself alone.
static MAY_TRACE: RwLock<()> = RwLock::new(());

/// Folder that everybody can look into, with copies of programs.
struct Place {
    folder: TempDir,
    _may_trace: Option<RwLockReadGuard<'static, ()>>,
}

impl Place {
    fn new() -> Self {
        // A failed run has released it.
        let guard = MAY_TRACE.read().unwrap_or_else(PoisonError::into_inner);
        let folder = folder_in(parent().unwrap_or(&std::env::temp_dir()));
        Self { folder, _may_trace: Some(guard) }
    }

    /// Makes one for who holds [`MAY_TRACE`].
    fn of_holder(_: &RwLockWriteGuard<'static, ()>) -> Self {
        Self { folder: folder_in(&std::env::temp_dir()), _may_trace: None }
    }

    fn copy(&self, from: &Path, name: &str, mode: u32) -> PathBuf {
        let to = self.folder.path().join(name);
        install(from, &to, mode);
        to
    }

    /// Copies avtrace, with these capabilities of its file; `None` where files cannot have capabilities.
    fn tracer(&self, name: &str, capabilities: &str) -> Option<PathBuf> {
        let copy = self.copy(avtrace(), name, 0o755);
        (capabilities.is_empty() || give(&copy, capabilities)).then_some(copy)
    }

    /// Copies the program that shows as whom it runs.
    fn identity(&self, name: &str, mode: u32) -> PathBuf {
        self.copy(&c("identity", &[]).path, name, mode)
    }

    fn bank(&self) -> PathBuf {
        self.copy(&c("bank", &["-g", "-O1"]).path, "bank", 0o755)
    }
}

fn folder_in(parent: &Path) -> TempDir {
    let folder = tempfile::tempdir_in(parent).expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    folder
}

/// Returns a folder where an ordinary user can execute files, and their capabilities have an effect: on some machines
/// temporary files are mounted without it.
fn parent() -> Option<&'static Path> {
    static PARENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let have_effect = |folder: &PathBuf| {
        const NET_RAW: u64 = 1 << 13;
        let folder = folder_in(folder);
        let copy = folder.path().join("cat");
        install(Path::new("/bin/cat"), &copy, 0o755);
        if run(Command::new("setcap").arg("cap_net_raw+ep").arg(&copy)).code != Some(0) {
            return false;
        }
        let shown = run(command(&NOBODY, &copy).arg("/proc/self/status")).stdout;
        let effective = shown.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        effective.is_some_and(|effective| effective & NET_RAW != 0)
    };
    let found = PARENT.get_or_init(|| {
        let mut folders = [std::env::temp_dir(), tests::target_dir()].into_iter();
        folders.find(|folder| {
            ["setpriv", "setcap"].into_iter().all(machine::have) && have_effect(folder)
        })
    });
    found.as_deref()
}

/// Gives a file in a [`Place`] capabilities; says so where they would have no effect.
fn give(file: &Path, capabilities: &str) -> bool {
    if parent().is_none() {
        machine::skip(
            "capabilities of files have no effect in the folders for temporary files and of Cargo",
        );
        return false;
    }
    let given = run(Command::new("setcap").arg(format!("{capabilities}+ep")).arg(file));
    if given.code != Some(0) {
        machine::skip(&format!("files have no capabilities here: {}", given.stderr));
    }
    given.code == Some(0)
}

/// Command of a program, without the variables of the test's own sudo.
fn command(words: &[&str], program: &Path) -> Command {
    let mut command = Command::new(words.first().map_or(program.as_os_str(), |word| word.as_ref()));
    if let [_, rest @ ..] = words {
        command.args(rest).arg(program);
    }
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
        command.env_remove(variable);
    }
    command.env(FAIL_ON.0, FAIL_ON.1);
    command
}

/// Runs avtrace as an ordinary user, with these options and this program.
fn by_nobody(tracer: &Path, options: &[&str], program: &Path) -> Ended {
    let mut command = command(&NOBODY, tracer);
    run(command.args(["--accesses", "sync"]).args(options).arg("--").arg(program))
}

/// Checks that a run has failed before the program did anything, with an error of one line that has all of these.
#[track_caller]
fn is_refused(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!((ended.code, &*ended.stdout), (Some(code), ""), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    for part in parts {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

/// Returns how a path is written in a command that avtrace names.
fn named(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn under_sudo_the_program_has_the_groups_and_the_environment_of_the_user() {
    require_bpf!();
    if !can_use(&["unshare", "mount"]) {
        return;
    }
    let place = Place::new();
    let database = |name: &str, lines: &str| {
        let file = place.folder.path().join(name);
        let of_machine = fs::read_to_string(format!("/etc/{name}")).expect("the database");
        fs::write(&file, of_machine + lines).expect("a file");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("its mode");
        file
    };
    let users = database("passwd", "eve:x:400042:400043::/users/eve:/bin/eves\n");
    let groups = database("group", "eves:x:400043:\nother:x:400050:eve\nacted:x:400060:\n");
    // A new mount namespace has the account, and the machine does not.
    let script = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/group && shift 2 && exec \"$@\"";
    let identity = place.identity("identity", 0o755);
    let show = format!("{}; env", named(&identity));
    let shown = |capture: &str, options: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(&["unshare", "--mount", "sh", "-c", script, "sh"], &users);
        command.arg(&groups).arg(avtrace()).args(["--capture", capture, "--accesses", "sync"]);
        command.args(options).args(["--", "sh", "-c", &show]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs([("SUDO_UID", "400042"), ("SUDO_GID", "400060"), ("SUDO_USER", "eve")]);
        command.envs([("SUDO_COMMAND", "avtrace"), ("SUDO_HOME", "/users/eve"), ("KEPT", "yes")]);
        let ended = run(command.envs(variables.iter().copied()));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let (first, rest) = ended.stdout.split_once('\n').expect("a line");
        let is_users = |line: &&str| {
            !["PWD=", "_=", "PATH=", "SHLVL=", "OLDPWD="].iter().any(|name| line.starts_with(name))
        };
        let mut variables: Vec<_> = rest.lines().filter(is_users).map(str::to_owned).collect();
        variables.sort();
        (first.to_owned(), variables.join(" "))
    };
    let shell = fs::read_to_string("/etc/passwd").expect("the database");
    let shell = shell.lines().find(|line| line.starts_with("root:")).expect("root");
    let shell = shell.rsplit(':').next().expect("a shell").to_owned();
    let roots = [
        ("HOME", "/root"),
        ("USER", "root"),
        ("LOGNAME", "root"),
        ("SHELL", &*shell),
        ("MAIL", "/var/mail/root"),
    ];
    for capture in ["kernel", "inline"] {
        let (ids, variables) = shown(capture, &[], &roots);
        assert_eq!(ids, "400042 400042 400060 400060: 400043 400050");
        let expected =
            "HOME=/users/eve KEPT=yes LOGNAME=eve MAIL=/var/mail/eve SHELL=/bin/eves USER=eve";
        assert_eq!(variables, expected, "{capture}");
        let asked = [("HOME", "/asked/for"), ("USER", "root"), ("LOGNAME", "kept")];
        let (_, variables) = shown(capture, &[], &asked);
        assert_eq!(variables, "HOME=/asked/for KEPT=yes LOGNAME=kept USER=eve", "{capture}");
        let (ids, variables) = shown(capture, &["--as-root"], &roots);
        assert!(ids.starts_with("0 0 0 0:"), "{ids}");
        assert!(variables.contains("HOME=/root KEPT=yes LOGNAME=root"), "{variables}");
        assert!(variables.contains("SUDO_UID=400042"), "{variables}");
    }
}

/// Returns the output of `identity` for an ordinary user without avtrace; `None` where it gains no rights.
fn alone(identity: &Path) -> Option<String> {
    let alone = run(&mut command(&NOBODY, identity)).stdout;
    if !alone.starts_with("65534 0 ") {
        machine::skip("set-user-ID does not work where temporary files are");
        return None;
    }
    Some(alone)
}

#[test]
fn a_set_user_id_program_has_the_ids_that_it_has_alone() {
    require_bpf!();
    if !can_use(&["setpriv", "chown"]) {
        return;
    }
    let place = Place::new();
    let of_root = place.identity("of-root", 0o4755);
    let of_nobody = place.identity("of-nobody", 0o755);
    let owned = Command::new("chown").arg("65534").arg(&of_nobody).status();
    assert!(owned.is_ok_and(|status| status.success()));
    fs::set_permissions(&of_nobody, Permissions::from_mode(0o4755)).expect("its mode");
    if alone(&of_root).is_none() {
        return;
    }
    for capture in ["kernel", "inline"] {
        let traced = |program: &Path, variables: &[(&str, &str)]| {
            let run = Avtrace::on_path(program).capturing(capture);
            let set = |run: Avtrace, (name, value): &(&str, &str)| run.environment(name, value);
            let ended = variables.iter().fold(run, set).run();
            assert_eq!(ended.code, Some(0), "{capture}: {}", ended.stderr);
            ended.stdout
        };
        let by_root = run(&mut command(&[], &of_nobody)).stdout;
        assert!(by_root.starts_with("0 65534 "), "{by_root}");
        assert_eq!(traced(&of_nobody, &[]), by_root, "{capture}");
        let sudo = [("SUDO_UID", "65534"), ("SUDO_GID", "65534")];
        assert!(traced(&of_root, &sudo).starts_with("65534 0 65534 65534:"), "{capture}");
        assert!(traced(&of_nobody, &sudo).starts_with("65534 65534 "), "{capture}");
    }
}

#[test]
fn a_program_that_would_lose_its_privileges_is_refused() {
    require_bpf!();
    if !can_use(&["setpriv", "setcap"]) {
        return;
    }
    let place = Place::new();
    let set_user_id = place.identity("set-user-id", 0o4755);
    let set_group_id = place.identity("set-group-id", 0o2755);
    let capable = place.identity("capable", 0o755);
    if alone(&set_user_id).is_none() || !give(&capable, "cap_net_raw") {
        return;
    }
    for (name, capabilities, captures) in [
        ("plain", "", &["inline", "auto"][..]),
        ("bpf", "cap_bpf,cap_perfmon", &["kernel", "inline", "auto"]),
        // The kernel leaves it its privileges then, and its memory is closed to the tracer.
        ("all", "cap_bpf,cap_perfmon,cap_sys_ptrace", &["kernel", "inline", "auto"]),
    ] {
        let Some(tracer) = place.tracer(name, capabilities) else { return };
        let sudo = format!("run `sudo {} …`", named(&tracer));
        for capture in captures {
            for program in [&set_user_id, &set_group_id, &capable] {
                let ended = by_nobody(&tracer, &["--capture", capture], program);
                is_refused(&ended, 1, &["the program's file is set-user-ID", &sudo]);
            }
        }
    }
    // Root without the capability, as in containers.
    let without = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    for capture in ["kernel", "inline"] {
        let mut command = command(&without, avtrace());
        command.args(["--capture", capture]).arg(&set_user_id);
        let ended = run(command.envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")]));
        is_refused(&ended, 1, &["with CAP_SYS_PTRACE: run avtrace where root has", "`--cap-add`"]);
    }
}

#[test]
fn a_set_user_id_program_that_is_executed_later_is_as_alone_or_said_to_differ() {
    require_bpf!();
    if !can_use(&["setpriv", "setcap"]) {
        return;
    }
    let place = Place::new();
    let identity = place.identity("identity", 0o4755);
    let (Some(alone), Some(plain), Some(tracer)) =
        (alone(&identity), place.tracer("plain", ""), place.tracer("bpf", "cap_bpf,cap_perfmon"))
    else {
        return;
    };
    let scripted = |tracer: &Path, capture: &str, script: &str| {
        let mut command = command(&NOBODY, tracer);
        command.args(["--capture", capture, "--accesses", "sync", "sh", "-c", script, "sh"]);
        let ended = run(command.arg(&identity));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended
    };
    let said = "runs without them";
    // Nobody traces the child when it executes the program, nor the process with probes of the kernel.
    for (tracer, capture, script) in [
        (&plain, "inline", "\"$1\"; true"),
        (&tracer, "kernel", "\"$1\"; true"),
        (&tracer, "kernel", "exec \"$1\""),
    ] {
        let ended = scripted(tracer, capture, script);
        assert_eq!(ended.stdout, alone, "{capture} {script}");
        assert!(!ended.stderr.contains(said), "{}", ended.stderr);
    }
    let ended = scripted(&plain, "inline", "exec \"$1\"");
    assert!(ended.stdout.starts_with("65534 65534 "), "the kernel's rule has changed: {ended:?}");
    let flat = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(said) && flat.contains("run avtrace as root"), "{flat}");
    // Root may trace it with all that it gains.
    let mut by_root = command(&[], avtrace());
    by_root.args(["--capture", "inline", "--accesses", "sync", "sh", "-c", "exec \"$1\"", "sh"]);
    by_root.envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")]);
    let ended = run(by_root.arg(&identity));
    assert!(ended.stdout.starts_with("65534 0 "), "{ended:?}");
    assert!(!ended.stderr.contains(said), "{}", ended.stderr);
}

#[test]
fn capabilities_of_the_file_are_enough_and_each_that_lacks_is_named() {
    require_bpf!();
    if !can_use(&["setpriv", "setcap"]) {
        return;
    }
    let place = Place::new();
    let bank = place.bank();
    for (name, capabilities, missing, all) in [
        ("none", "", "CAP_BPF and no CAP_PERFMON", "cap_bpf,cap_perfmon"),
        ("bpf", "cap_bpf", "CAP_PERFMON", "cap_bpf,cap_perfmon"),
        ("perfmon", "cap_perfmon", "CAP_BPF", "cap_bpf,cap_perfmon"),
        ("ptrace", "cap_sys_ptrace,cap_perfmon", "CAP_BPF", "cap_bpf,cap_perfmon,cap_sys_ptrace"),
        ("enough", "cap_bpf,cap_perfmon", "", ""),
        ("all", "cap_bpf,cap_perfmon,cap_sys_ptrace", "", ""),
    ] {
        let Some(tracer) = place.tracer(name, capabilities) else { return };
        let ended = by_nobody(&tracer, &["--capture", "kernel"], &bank);
        if missing.is_empty() {
            assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{ended:?}");
            continue;
        }
        let tracer = named(&tracer);
        let command = format!("(`sudo setcap {all}+ep {tracer}`)");
        let missing = format!("avtrace has no {missing}: run avtrace as root (`sudo {tracer} …`)");
        is_refused(&ended, 1, &["no permission to load BPF programs", &missing, &command]);
    }
}

/// A running `service.c` of root's.
struct Service {
    running: Running,
    commands: File,
    folder: TempDir,
}

impl Service {
    fn start() -> Self {
        let program = c("service", &["-g", "-O2"]).path;
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("commands");
        assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()));
        let mut running = Running::start(Command::new(program).arg(&fifo), None, TIME_LIMIT);
        running.await_stdout("ready\n");
        let commands = File::options().read(true).write(true).open(&fifo).expect("the fifo");
        Self { running, commands, folder }
    }

    /// Command that attaches to it as an ordinary user.
    fn attaching(&self, tracer: &Path, capture: &str) -> Command {
        let mut command = command(&NOBODY, tracer);
        let pid = self.running.pid().to_string();
        command.args(["attach", "--capture", capture, "--accesses", "sync", "--pid", &pid]);
        command
    }

    /// Ends it; it must have been left alone.
    fn end(mut self) {
        let pid = self.running.pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        write!(self.commands, "tq").expect("a reader");
        self.running.await_stdout("t done\n");
        let Ended { code, signal, stderr, .. } = self.running.wait();
        assert_eq!((code, signal, &*stderr), (Some(7), None, ""));
        drop(self.folder);
    }
}

#[test]
fn a_process_of_another_user_takes_capabilities_that_are_named() {
    require_bpf!();
    if !can_use(&["setpriv", "setcap", "mkfifo"]) {
        return;
    }
    let place = Place::new();
    let mut service = Service::start();
    let pid = service.running.pid();
    for (name, capabilities, capture) in [
        ("kernel", "cap_bpf,cap_perfmon,cap_sys_ptrace", "kernel"),
        ("inline", "cap_sys_ptrace,cap_dac_override", "inline"),
    ] {
        let Some(tracer) = place.tracer(name, capabilities) else { return };
        let mut avtrace =
            Running::start(&mut service.attaching(&tracer, capture), None, TIME_LIMIT);
        avtrace.await_stderr("attached to process");
        write!(service.commands, "t").expect("a reader");
        avtrace.await_stderr("found: `transfer` at ");
        avtrace.signal("INT");
        let ended = avtrace.wait();
        assert_eq!(ended.code, Some(66), "{capture}: {}", ended.stderr);
    }
    let sudo = format!("`sudo avtrace attach --pid {pid}`");
    for (name, capabilities, capture, code, parts) in [
        ("neither", "", "kernel", 3, &["of another user", &*sudo][..]),
        ("nothing", "", "inline", 3, &["of another user", &sudo]),
        ("no-ptrace", "cap_bpf,cap_perfmon", "kernel", 3, &["of another user", &sudo]),
        ("no-bpf", "cap_sys_ptrace", "kernel", 1, &["avtrace has no CAP_BPF and no CAP_PERFMON"]),
        (
            "no-files",
            "cap_sys_ptrace",
            "inline",
            3,
            &[
                "has CAP_SYS_PTRACE but no CAP_DAC_OVERRIDE",
                "`sudo setcap cap_sys_ptrace,cap_dac_override+ep ",
            ],
        ),
    ] {
        let Some(tracer) = place.tracer(name, capabilities) else { return };
        is_refused(&run(&mut service.attaching(&tracer, capture)), code, parts);
    }
    service.end();
}

/// Setting of the kernel that has its value again when this is dropped, and also when this process is killed: another
/// one waits for that. Tests that change a setting run beside others, so that each says why it disturbs none.
struct Setting {
    path: &'static str,
    restorer: Child,
    alive: Option<ChildStdin>,
}

impl Setting {
    /// Returns the setting, with its value; prints a message where the kernel does not have it.
    fn of(path: &'static str) -> Option<(Self, String)> {
        let Ok(value) = fs::read_to_string(path) else {
            machine::absent(&format!("{path} of this kernel"));
            return None;
        };
        let value = value.trim().to_owned();
        let script = "trap '' HUP INT TERM; read -r end; echo \"$2\" > \"$1\"";
        let mut restorer = Command::new("setsid");
        restorer.args(["sh", "-c", script, "sh", path, &value]).stdin(Stdio::piped());
        let mut restorer = restorer.spawn().expect("a shell");
        let alive = restorer.stdin.take();
        Some((Self { path, restorer, alive }, value))
    }

    /// Changes it, and returns whether the kernel has such a value.
    fn set(&self, value: &str) -> bool {
        fs::write(self.path, value).is_ok()
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        drop(self.alive.take());
        // If it fails, the next test finds another value than it expects.
        let _ = self.restorer.wait();
    }
}

#[test]
fn the_level_of_perf_events_denies_nothing_that_is_needed() {
    require_bpf!();
    if !can_use(&["setpriv", "setcap", "setsid"]) {
        return;
    }
    let place = Place::new();
    let bank = place.bank();
    let plain = place.tracer("plain", "").expect("a copy");
    let Some(tracer) = place.tracer("bpf", "cap_bpf,cap_perfmon") else { return };
    let path = "/proc/sys/kernel/perf_event_paranoid";
    // It decides about ordinary users' own perf events, which no other test depends on.
    let Some((setting, before)) = Setting::of(path) else { return };
    for level in ["-1", "0", "1", "2", "3", "4"] {
        if !setting.set(level) {
            machine::absent("a level of perf events that can be changed");
            return;
        }
        for (tracer, capture) in [(&tracer, "kernel"), (&plain, "inline")] {
            let options = ["--capture", capture, "--watch", "account.balance"];
            let ended = by_nobody(tracer, &options, &bank);
            let found = (ended.code, &*ended.stdout);
            assert_eq!(found, (Some(66), "balance: 900\n"), "{level} {capture}: {}", ended.stderr);
        }
    }
    drop(setting);
    assert_eq!(fs::read_to_string(path).expect("the level").trim(), before);
}

#[test]
fn the_scope_of_yama_is_named_with_what_it_denies() {
    if !can_use(&["setpriv", "setsid", "mkfifo"]) {
        return;
    }
    let path = "/proc/sys/kernel/yama/ptrace_scope";
    let alone = MAY_TRACE.write().unwrap_or_else(PoisonError::into_inner);
    // It holds for ordinary users' avtrace, of which other tests wait meanwhile.
    let Some((setting, before)) = Setting::of(path) else { return };
    let place = Place::of_holder(&alone);
    let (bank, plain) = (place.bank(), place.tracer("plain", "").expect("a copy"));
    for scope in ["0", "1", "2"] {
        // The last value cannot be taken back before the next boot; `cargo xtask kernels` tries it.
        if before == "3" || !setting.set(scope) {
            machine::absent("a scope that can be changed before the next boot");
            return;
        }
        let ended = by_nobody(&plain, &["--capture", "inline"], &bank);
        if scope == "2" {
            let parts =
                ["`kernel.yama.ptrace_scope` is 2", "`sudo sysctl kernel.yama.ptrace_scope=1`"];
            is_refused(&ended, 1, &parts);
        } else {
            assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        }
        let by_root = Avtrace::on_path(&bank).inline().run();
        assert_eq!(by_root.code, Some(66), "root may at {scope}: {}", by_root.stderr);
    }
    drop(setting);
    assert_eq!(fs::read_to_string(path).expect("the scope").trim(), before);
}

#[test]
fn lockdown_is_named_where_it_denies() {
    require_bpf!();
    let Ok(modes) = fs::read_to_string("/sys/kernel/security/lockdown") else {
        machine::absent("lockdown: this kernel has none, or securityfs is not mounted");
        return;
    };
    let ended = Avtrace::on(&c("bank", &["-g", "-O1"])).capturing("kernel").run();
    if modes.contains("[confidentiality]") {
        is_refused(&ended, 1, &["lockdown=confidentiality"]);
    } else {
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    }
}
