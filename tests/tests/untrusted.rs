//! Files, names and programs that mean harm: their bytes never reach a terminal raw, damaged programs get clear errors
//! within bounded memory, and a program gets nothing from avtrace's rights to files. The promises are those of
//! `docs/security.md`.

use std::{
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use tests::{
    Avtrace, Ended, Program, c, capture, folder, machine,
    process::{Running, TIME_LIMIT, run},
    programs::{c_file, install, install_contents},
    require_bpf,
    tracer::avtrace,
};

/// Ends of names: a title of a window, colours, one byte of a control sequence as UTF-8 has it, text that goes back.
const TITLE: &str = "\x1b]0;owned\x07";
const COLOURS: &str = "\x1b[31m";
const CONTROL: &str = "\u{9b}2J";
const BACK: &str = "\u{202e}";

/// Checks that standard error has only printable text and line breaks.
#[track_caller]
fn check_printable(ended: &Ended) {
    let is_raw = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    let raw = ended.stderr.lines().find(|line| line.contains(is_raw));
    assert_eq!(raw, None, "{}", ended.stderr.escape_debug());
}

#[test]
fn names_are_escaped() {
    require_bpf!();
    let folder = folder();
    // Of a folder and a file, which debug information has as well; of a thread; of functions and variables.
    let sources = folder.path().join(format!("sources{COLOURS}"));
    fs::create_dir(&sources).expect("a folder");
    let source = sources.join(format!("bank{BACK}.c"));
    let programs = tests::root().join("tests/programs/c");
    let bank = fs::read_to_string(programs.join("hostile.c")).expect("the source");
    let thread =
        "prctl(15, \"t\\033[2J\\r\\302\\233\");\n    await_turn(go_transfer);\n    transfer();";
    let named = bank.replace("await_turn(go_transfer);\n    transfer();", thread);
    assert_ne!(named, bank, "the thread has a name");
    fs::write(
        &source,
        named.replace("#include <pthread.h>", "#include <pthread.h>\n#include <sys/prctl.h>"),
    )
    .expect("the source");
    let include = format!("-I{}", programs.display());
    for flags in [&["-g", "-O1"][..], &["-O1"]] {
        let built = c_file(&source, &[flags, &[&include]].concat());
        let program = folder.path().join(format!("program{TITLE}"));
        let mut rename = Command::new("objcopy");
        rename.arg(format!("--redefine-sym=transfer=transfer{TITLE}{CONTROL}"));
        rename.arg(format!("--redefine-sym=lock=lock{COLOURS}{BACK}"));
        let ended = run(rename.arg(&built.path).arg(folder.path().join("draft")));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        install(&folder.path().join("draft"), &program, 0o755);

        let ended = Avtrace::on_path(&program).seeing_memory().options(["--all"]).run();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        check_printable(&ended);
        // Debug information has other names than the symbols.
        let named = if flags[0] == "-g" { r"\x1b[31m/bank\u{202e}.c" } else { r"lock\x1b[31m" };
        assert!(ended.stderr.contains(named), "{}", ended.stderr);
        assert!(ended.stderr.contains(r"t\x1b[2J\r"), "the thread: {}", ended.stderr);
        // Near names, and all places.
        let ended = Avtrace::on_path(&program).options(["--watch", "locc"]).run();
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        check_printable(&ended);
        let mut probes = Command::new(avtrace());
        let mut ended = run(probes.args(["probes", "--atomic", "transfer*"]).arg(&program));
        ended.stderr += &ended.stdout;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        check_printable(&ended);
        let is_named = ended.stderr.contains(r"\x1b]0;owned\x07");
        assert!(is_named, "the program: {}", ended.stderr);
    }
}

/// Lists the probes of a program, or runs it, with this much address space, in KiB.
fn limited(arguments: &[&str], program: &Path) -> Ended {
    /// Enough for any program of the tests.
    const ROOM: u64 = 4 << 20;
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {ROOM}; exec \"$@\""), "sh"]);
    run(shell.arg(avtrace()).args(arguments).arg(program))
}

/// Checks an end with a result or with an error, and no panic.
fn check_end(mut ended: Ended, program: &Path, what: &str) {
    // Messages of the dynamic linker about a damaged program are that program's own output.
    let start = format!("{}: ", program.display());
    let is_linkers = |line: &str| {
        line.starts_with(&start) || line.starts_with("Inconsistency detected by ld.so")
    };
    let lines = ended.stderr.split_inclusive('\n').filter(|line| !is_linkers(line));
    ended.stderr = lines.collect();
    check_printable(&ended);
    let is_end = matches!(ended.code, Some(0..=3));
    assert!(is_end && !ended.stderr.contains("panicked"), "{what}: {ended:#?}");
    assert!(ended.code == Some(0) || ended.stderr.lines().count() <= 3, "{what}: {ended:#?}");
}

/// A sequence of numbers that is the same in every run (Marsaglia, Xorshift RNGs).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Writes absurd sizes and places into every `step`th field.
fn absurd_sizes(step: usize) {
    let folder = folder();
    let path = folder.path().join("program");
    let whole = fs::read(c("bank", &["-g", "-O2"]).path).expect("the program");
    // Fields of the header (`include/uapi/linux/elf.h`, `Elf64_Ehdr`), of the first program and section headers, and of
    // the sections that avtrace reads.
    let sections = u64::from_le_bytes(whole[0x28..0x30].try_into().expect("eight bytes")) as usize;
    let header = [(0x18, 8), (0x20, 8), (0x28, 8), (0x36, 2), (0x38, 2), (0x3a, 2), (0x3c, 2)];
    let segments = (0..8).flat_map(|index| [8, 32, 40].map(|field| (0x40 + index * 56 + field, 8)));
    let fields =
        (0..30).flat_map(|index| [24, 32, 56].map(|field| (sections + index * 64 + field, 8)));
    let places: Vec<(usize, usize)> = header.into_iter().chain(segments).chain(fields).collect();
    for (number, (at, length)) in places.into_iter().enumerate().step_by(step) {
        if at + length > whole.len() {
            continue;
        }
        // One field at a time takes a second: each gets one of these, in turn.
        let value = [u64::MAX, 1 << 62, whole.len() as u64 - 1][number % 3];
        let mut damaged = whole.clone();
        damaged[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        install_contents(&damaged, &path);
        check_end(limited(&["probes"], &path), &path, &format!("{at:#x} = {value:#x}"));
    }
}

#[test]
fn sizes_that_no_file_has_are_errors() {
    require_bpf!();
    absurd_sizes(8);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn all_sizes_that_no_file_has_are_errors() {
    require_bpf!();
    absurd_sizes(1);
}

fn damaged_programs(rounds: usize) {
    let folder = folder();
    let path = folder.path().join("program");
    let whole = fs::read(c("bank", &["-g", "-O2"]).path).expect("the program");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let mut damaged = whole.clone();
        for _ in 0..=numbers.below(20) {
            let at = numbers.below(damaged.len());
            damaged[at] = [0, 0xff, 0x80, numbers.below(256) as u8][numbers.below(4)];
        }
        if round % 4 == 0 {
            damaged.truncate(numbers.below(whole.len()));
        }
        install_contents(&damaged, &path);
        check_end(limited(&["probes"], &path), &path, &format!("round {round}"));
    }
}

#[test]
fn damaged_programs_are_listed_or_refused() {
    require_bpf!();
    damaged_programs(10);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn many_damaged_programs_are_listed_or_refused() {
    require_bpf!();
    damaged_programs(1000);
}

/// Caller of sudo without privileges, whose program runs without any, too.
const SUDO: [(&str, &str); 2] = [("SUDO_UID", "65534"), ("SUDO_GID", "65534")];
const NOBODY: u32 = 65534;

/// Makes a folder that anybody may enter.
fn open_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    folder
}

/// Builds `hostile.c` in a folder, with other text in some places.
fn changed(folder: &Path, changes: &[(&str, &str)]) -> Program {
    let programs = tests::root().join("tests/programs/c");
    let mut text = fs::read_to_string(programs.join("hostile.c")).expect("the source");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let source = folder.join("changed.c");
    fs::write(&source, text).expect("the source");
    c_file(&source, &["-g", "-O1", &format!("-I{}", programs.display())])
}

/// Start of the lines of a file that root alone may read.
const PRIVATE: &str = "PRIVATE-LINE";

/// Makes a program whose line table says that a region is in a file that root alone may read.
fn program_of_private_lines(folder: &Path) -> Program {
    let secret = folder.join("secret");
    let lines: String = (1..=40).map(|number| format!("{PRIVATE}-{number}\n")).collect();
    fs::write(&secret, lines).expect("a file");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("its mode");
    let transfer = "__attribute__((noinline)) static void transfer";
    let line = format!("#line 1 \"{}\"\n{transfer}", secret.display());
    changed(folder, &[(transfer, &line)])
}

#[test]
fn lines_of_files_that_a_user_may_not_read_are_not_in_reports() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let folder = open_folder();
    let program = program_of_private_lines(folder.path());
    let (json, trace) = (folder.path().join("report.json"), folder.path().join("t.avt"));
    for (variables, is_shown) in [(&[][..], true), (&SUDO, false)] {
        let check = |text: &str, what: &str| {
            assert_eq!(text.contains(PRIVATE), is_shown, "{what}: {text}");
            assert!(text.contains("transfer"), "{what}: {text}");
        };
        let set = |run: Avtrace, (name, value): &(&str, &str)| run.environment(name, value);
        let run_of = || variables.iter().fold(Avtrace::on(&program), set);
        let ended = run_of().run();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        check(&ended.stderr, "text");
        let ended = run_of().options(["--format", "json", "-o"]).options([&json]).run();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        check(&fs::read_to_string(&json).expect("a report"), "JSON");
        // It has no lines: a report looks for them.
        let mut record = Command::new(avtrace());
        record.arg("record").args(capture::options()).arg("-o");
        let ended = run(record.arg(&trace).arg(&program.path).envs(variables.to_vec()));
        assert!(trace.exists(), "{}", ended.stderr);
        let mut check_trace = Command::new(avtrace());
        let ended = run(check_trace.arg("check").arg(&trace).envs(variables.to_vec()));
        check(&(ended.stdout + &ended.stderr), "a recording");
    }
}

#[test]
fn lines_of_files_that_a_process_may_not_read_are_not_in_reports() {
    require_bpf!();
    if !machine::is_root() || !machine::have("setpriv") {
        machine::skip("not root, or no setpriv");
        return;
    }
    let folder = open_folder();
    let program = program_of_private_lines(folder.path());
    let path = folder.path().join("program");
    install(&program.path, &path, 0o755);
    let fifo = folder.path().join("commands");
    assert_eq!(run(Command::new("mkfifo").arg("-m666").arg(&fifo)).code, Some(0));
    let mut commands = File::options().read(true).write(true).open(&fifo).expect("the pipe");
    let nobody: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    for (wrapper, is_shown) in [(&["env"][..], true), (nobody, false)] {
        for back_end in ["kernel", "inline"] {
            let mut command = Command::new(wrapper[0]);
            command.args(&wrapper[1..]).args(["sh", "-c", "exec \"$0\" code wait <\"$1\""]);
            let mut process = Running::start(command.arg(&path).arg(&fifo), None, TIME_LIMIT);
            process.await_stdout("ready\n");
            let mut attach = Command::new(avtrace());
            attach.args(["attach", "--capture", back_end, "--accesses", "sync", "--pid"]);
            attach.arg(process.pid().to_string());
            let mut tracer = Running::start(&mut attach, None, TIME_LIMIT);
            tracer.await_stderr("attached to process");
            writeln!(commands).expect("a reader");
            let (_, ended) = (process.wait(), tracer.wait());
            let what = format!("{back_end}: {}", ended.stderr);
            assert_eq!(ended.stderr.contains(PRIVATE), is_shown, "{what}");
            assert!(ended.stderr.contains("transfer"), "{what}");
        }
    }
}

/// Puts a program without its debug information into a folder, and the debug information into a file that it names.
fn split(built: &Program, folder: &Path) -> (PathBuf, PathBuf) {
    let (program, debug) = (folder.join("program"), folder.join("program.debug"));
    let copy = |options: &[&str], to: &Path| {
        let ended = run(Command::new("objcopy").args(options).arg(&built.path).arg(to));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    copy(&["--only-keep-debug"], &debug);
    copy(&["--strip-all", &format!("--add-gnu-debuglink={}", debug.display())], &program);
    (program, debug)
}

#[test]
fn debug_files_that_a_user_may_not_read_are_not_read() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let folder = open_folder();
    let (program, debug) = split(&changed(folder.path(), &[]), folder.path());
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its mode");
    for (mode, variables, is_read) in
        [(0o600, &[][..], true), (0o600, &SUDO, false), (0o644, &SUDO, true)]
    {
        fs::set_permissions(&debug, Permissions::from_mode(mode)).expect("its mode");
        let set = |run: Avtrace, (name, value): &(&str, &str)| run.environment(name, value);
        let ended = variables.iter().fold(Avtrace::on_path(&program), set).run();
        assert!(ended.stderr.contains("transfer"), "{mode:o}: {}", ended.stderr);
        assert_eq!(ended.stderr.contains("changed.c:"), is_read, "{mode:o}: {}", ended.stderr);
    }
}

#[test]
fn a_program_that_cuts_its_debug_file_changes_nothing() {
    require_bpf!();
    let folder = folder();
    let start = "    await_turn(go_transfer);\n    transfer();";
    let cut = format!("    if (truncate(getenv(\"CUT\"), 0))\n        abort();\n{start}");
    let built = changed(folder.path(), &[(start, &cut)]);
    let (program, debug) = split(&built, folder.path());
    for file in [&debug, &program] {
        fs::set_permissions(file, Permissions::from_mode(0o777)).expect("its mode");
    }
    let run = Avtrace::on_path(&program).environment("CUT", debug.to_str().expect("text"));
    let (ended, report) = run.report();
    assert_eq!((ended.code, ended.signal), (Some(66), None), "{}", ended.stderr);
    assert_eq!(fs::metadata(&debug).expect("the file").len(), 0);
    assert_eq!(report.only_violation().cycle(), ["transfer", "audit", "transfer"]);
    let steps = format!("{:?}", report.only_violation());
    assert!(steps.contains("changed.c"), "{steps}");
}

#[test]
fn nobody_cuts_the_memory_that_a_program_shares_with_avtrace() {
    let script = "for f in /proc/$$/map_files/*; do case $(readlink $f) in
        /memfd:avtrace*) truncate -s 0 $f && echo cut; true;; esac; done; exec true";
    if !machine::is_root() {
        machine::skip("not root, who alone may open what is mapped");
        return;
    }
    let ended = Avtrace::on_path("sh").inline().arguments(["-c", script]).run();
    assert_eq!((ended.code, ended.signal, &*ended.stdout), (Some(0), None, ""), "{}", ended.stderr);
    let tried = ended.stderr.matches("Operation not permitted").count();
    assert!(tried > 0, "{}", ended.stderr);
}

/// A child that has fewer privileges than its parent would have the parent write anywhere.
#[test]
fn a_child_changes_no_memory_that_probes_of_its_parent_depend_on() {
    let program = c("separated", &["-g", "-O1"]);
    let stdout = "nothing was written, count 1200\nend\n";
    for arguments in [&[][..], &["filtered"]] {
        let (ended, reports) = Avtrace::on(&program).inline().arguments(arguments).reports();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), stdout), "{}", ended.stderr);
        let report = reports.last().expect("a report");
        assert_eq!(report.counts.lost_events, 0);
        assert!(report.counts.events > 0, "there are no probes");
        let limitations = report.not_seen["limitations"].to_string();
        assert!(!limitations.contains("could not be decoded"), "{limitations}");
    }
}

/// A folder of a user without privileges, and one of root beside it.
struct Folders {
    all: TempDir,
    theirs: PathBuf,
    roots: PathBuf,
}

impl Folders {
    fn new() -> Self {
        let all = open_folder();
        let (theirs, roots) = (all.path().join("theirs"), all.path().join("roots"));
        for path in [&theirs, &roots] {
            fs::create_dir(path).expect("a folder");
        }
        chown(&theirs, Some(NOBODY), Some(NOBODY)).expect("its owner");
        fs::write(roots.join("victim"), "of root").expect("a file");
        Self { all, theirs, roots }
    }

    /// Checks that root's files are unchanged.
    fn check(&self, what: &str) {
        let names = fs::read_dir(&self.roots)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
        assert_eq!(names.collect::<Vec<_>>(), ["victim"], "{what}");
        let victim = fs::read_to_string(self.roots.join("victim")).expect("the file");
        assert_eq!(victim, "of root", "{what}");
    }
}

#[test]
fn links_of_a_program_lead_avtrace_to_no_file_of_others() {
    require_bpf!();
    if !machine::is_root() || !machine::have("setpriv") {
        machine::skip("not root, or no setpriv");
        return;
    }
    let by_root = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let cases: [(&str, &[&str], &str); 7] = [
        (
            "a further recording",
            &["record", "-o", "t.avt"],
            "ln -s ../roots/victim t.2.avt; exec true",
        ),
        ("a new one", &["record", "-o", "t.avt"], "ln -s ../roots/new t.2.avt; exec true"),
        (
            "in another folder",
            &["record", "-o", "out/t.avt"],
            "mv out old; ln -s ../roots out; exec true",
        ),
        (
            "segments",
            &["record", "--keep", "8M", "-o", "segments"],
            "mv segments old; ln -s ../roots segments; exec true",
        ),
        ("a report", &["run", "--format", "json", "-o", "r.json"], "ln -s ../roots/victim r.json"),
        ("a new report", &["run", "--format", "json", "-o", "r.json"], "ln -s ../roots/new r.json"),
        (
            "a report in another folder",
            &["run", "--format", "html", "-o", "out/r.html"],
            "mv out old; ln -s ../roots out",
        ),
    ];
    for (what, options, script) in cases {
        for (wrapper, variables) in [(&[][..], &SUDO[..]), (&by_root, &[])] {
            let folders = Folders::new();
            fs::create_dir(folders.theirs.join("out")).expect("a folder");
            chown(folders.theirs.join("out"), Some(NOBODY), Some(NOBODY)).expect("its owner");
            chown(&folders.theirs, Some(NOBODY), Some(NOBODY)).expect("its owner");
            let mut command = Command::new(avtrace());
            command.current_dir(&folders.theirs).envs(variables.to_vec());
            command.args(options).args(capture::options()).arg("--").args(wrapper);
            // The folder of segments is root's, and is moved by a user all the same: it is in one of this user's.
            let ended = run(command.args(["sh", "-c", script]));
            let what = format!("{what}, {variables:?}: {ended:#?}");
            folders.check(&what);
            assert!(ended.signal.is_none() && !ended.stderr.contains("panicked"), "{what}");
            let _ = &folders.all;
        }
    }
}

/// Makes a folder of another user, inside a folder that anybody may enter.
fn folder_of_nobody(parent: &TempDir) -> PathBuf {
    let folder = parent.path().join("theirs");
    fs::create_dir(&folder).expect("a folder");
    chown(&folder, Some(NOBODY), Some(NOBODY)).expect("its owner");
    folder
}

/// Writes a script that adds a line with its user to a file.
fn script(folder: &Path, log: &Path, lines: &str) -> PathBuf {
    let path = folder.join("script");
    let text = format!("#!/bin/sh\necho \"$(id -u) $1\" >> {}\n{lines}\n", log.display());
    fs::write(&path, text).expect("the script");
    path
}

fn hunt(results: &Path, options: &[&str], variables: &[(&str, &str)], script: &Path) -> Ended {
    let mut command = Command::new(avtrace());
    command.args(["hunt", "--quiet", "--runs", "1", "--results"]).arg(results).args(options);
    command.args(capture::options()).args(["--", "/bin/sh"]).arg(script);
    run(command.envs(variables.to_vec()))
}

#[test]
fn under_sudo_a_hunt_runs_nothing_as_root() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let folder = open_folder();
    let (theirs, log) = (folder_of_nobody(&folder), folder.path().join("log"));
    File::create(&log).expect("a file");
    fs::set_permissions(&log, Permissions::from_mode(0o666)).expect("its mode");
    let script =
        script(folder.path(), &log, "test \"$1\" = --gtest_list_tests && printf 'S.\\n  C\\n'; :");
    let condition =
        format!("echo \"$(id -u) asked $(cat $AVTRACE_OUTPUT)\" >> {}; false", log.display());
    for (options, user) in [(&[][..], NOBODY), (&["--as-root"], 0)] {
        fs::write(&log, "").expect("written");
        let options = [options, &["--per-test", "--fail-if", &condition]].concat();
        let ended = hunt(&theirs.join("results"), &options, &SUDO, &script);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let lines = fs::read_to_string(&log).expect("the log");
        let lines: Vec<&str> = lines.lines().collect();
        let expected = ["--gtest_list_tests", "--gtest_filter=S.C", "asked "];
        assert_eq!(lines, expected.map(|what| format!("{user} {what}")));
    }
}

#[test]
fn links_beside_results_lead_a_hunt_to_no_file_of_others() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let folder = open_folder();
    let (theirs, log) = (folder_of_nobody(&folder), folder.path().join("log"));
    let roots = folder.path().join("roots");
    fs::create_dir(&roots).expect("a folder");
    let script = script(folder.path(), &log, "");
    for name in ["results", "results-journal", "results-wal", "results-shm"] {
        for contents in [None, Some("precious")] {
            let target = roots.join(name);
            if let Some(contents) = contents {
                fs::write(&target, contents).expect("a file");
            }
            let link = theirs.join(name);
            std::os::unix::fs::symlink(&target, &link).expect("a link");
            std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).expect("its owner");
            let ended = hunt(&theirs.join("results"), &[], &[], &script);
            let what = format!("{name}: {contents:?}: {}", ended.stderr);
            assert!(ended.code.is_some() && !ended.stderr.contains("panicked"), "{what}");
            let there = fs::read(&target).ok();
            assert!(there.as_deref() == contents.map(str::as_bytes), "{what}");
            let _ = fs::remove_file(&target);
            for entry in theirs.read_dir().expect("a folder") {
                fs::remove_file(entry.expect("an entry").path()).expect("removed");
            }
        }
    }
    // Without links, the results are there.
    let results = theirs.join("results");
    let ended = hunt(&results, &[], &[], &script);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // They belong to another user now, who may have named any command in them.
    fs::write(&log, "").expect("written");
    let replay = |options: &[&str]| {
        let mut replay = Command::new(avtrace());
        replay.args(["hunt", "--quiet", "--repeat", "1", "--replay"]);
        run(replay.arg(format!("{}#1", results.display())).args(options))
    };
    let ended = replay(&[]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("belongs to another user"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&log).expect("the log"), "");
    chown(&results, Some(0), Some(0)).expect("its owner");
    chown(&theirs, Some(0), Some(0)).expect("its owner");
    let ended = replay(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&log).expect("the log").lines().count(), 1);
}

/// Runs avtrace in a directory, in which it looks for its configuration.
fn run_in(directory: &Path) -> Ended {
    let mut command = Command::new(avtrace());
    run(command.current_dir(directory).args(capture::options()).args(["--", "/bin/true"]))
}

#[test]
fn a_configuration_that_nobody_named_leads_to_no_file_of_others_and_holds_nothing_up() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let folder = open_folder();
    let (theirs, secret) = (folder_of_nobody(&folder), folder.path().join("secret"));
    fs::write(&secret, "PRIVATE = 1\n").expect("a file");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("its mode");
    let below = theirs.join("below");
    fs::create_dir(&below).expect("a folder");
    let config = theirs.join("avtrace.toml");
    let link_to = |target: &Path| {
        std::os::unix::fs::symlink(target, &config).expect("a link");
        std::os::unix::fs::lchown(&config, Some(NOBODY), Some(NOBODY)).expect("its owner");
    };
    // One of another user in a directory above does not count, and a link is such a one.
    link_to(&secret);
    let ended = run_in(&below);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let check_refused = |what: &str| {
        let ended = run_in(&theirs);
        assert_eq!(ended.code, Some(2), "{what}: {}", ended.stderr);
        assert!(ended.stderr.contains("avtrace.toml"), "{what}: {}", ended.stderr);
        assert!(!ended.stderr.contains("PRIVATE"), "{what}: {}", ended.stderr);
        fs::remove_file(&config).expect("removed");
    };
    check_refused("a link");
    link_to(Path::new("/dev/zero"));
    check_refused("a link to a device");
    assert_eq!(run(Command::new("mkfifo").arg(&config)).code, Some(0));
    check_refused("a pipe");
    let large = File::create(&config).expect("a file");
    large.set_len(1 << 40).expect("a length");
    check_refused("a large file");
    // Root's own link is followed.
    std::os::unix::fs::symlink(&secret, &config).expect("a link");
    let ended = run_in(&theirs);
    assert!(ended.stderr.contains("PRIVATE"), "{}", ended.stderr);
}
