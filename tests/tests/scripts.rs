//! Scripts as programs: avtrace traces the programs that they execute, and ends as the script does alone.

use std::path::{Path, PathBuf};

use tests::programs::install_contents;
use tests::tracer::{avtrace_with, native};
use tests::{Avtrace, Program, c, folder, require_bpf};

/// A program with a defect.
fn bank() -> Program {
    c("bank", &["-g", "-O1"])
}

/// Installs an executable text.
fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    install_contents(text, &path);
    path
}

#[test]
fn what_a_script_executes_is_traced() {
    require_bpf!();
    let folder = folder();
    let program = bank().path.display().to_string();
    let inner = script(folder.path(), "inner", "#!/usr/bin/env sh\nexec \"$@\"\n");
    for (name, text) in [
        ("replaced", format!("#!/bin/sh\nexec {program}\n")),
        ("child", format!("#! /bin/sh -e\necho a | sed s/a/b/ >/dev/null\n{program}\nexit 7\n")),
        ("chain", format!("#!{} {program}\n", inner.display())),
        ("text", format!("{program}\nexit 7\n")),
    ] {
        let path = script(folder.path(), name, &text);
        let (ended, reports) = Avtrace::on_path(&path).reports();
        assert_eq!(ended.code, Some(66), "{name}: {}", ended.stderr);
        let [report] = &reports[..] else { panic!("{name}: {}", reports.len()) };
        assert_eq!(report.subject.argv[0], program, "{name}");
        assert_eq!(report.violations[0].region, "transfer", "{name}");
    }
}

#[test]
fn a_script_ends_as_it_does_alone() {
    require_bpf!();
    let folder = folder();
    for (text, code, signal) in [
        ("#!/bin/sh\ntrue\necho \"<$0> <$1>\"\nexit 7\n", Some(7), None),
        ("#!/bin/sh\necho \"<$0> <$1>\"\nkill -s TERM $$\n", None, Some(15)),
    ] {
        let path = script(folder.path(), "script", text);
        let ended = Avtrace::on_path(&path).arguments(["a b"]).run();
        assert_eq!((ended.code, ended.signal), (code, signal), "{}", ended.stderr);
        let alone = native(&path, ["a b"], None);
        assert_eq!((ended.code, &ended.stdout), (alone.code, &alone.stdout), "{}", ended.stderr);
        let reports = ended.stderr.lines().filter(|line| line.starts_with("nothing was checked"));
        assert_eq!(reports.count(), 1, "none for `true`: {}", ended.stderr);
    }
}

#[test]
fn a_script_whose_interpreter_cannot_be_traced_runs_without() {
    require_bpf!();
    let folder = folder();
    let text = format!("#!{}\n", script(folder.path(), "data", "\0").display());
    let path = script(folder.path(), "script", &text);
    let ended = Avtrace::on_path(&path).run();
    let first = ended.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("avtrace: not traced: "), "{}", ended.stderr);
    let missing = script(folder.path(), "missing", "#!/no/such/interpreter\n");
    assert_eq!(Avtrace::on_path(&missing).run().code, Some(127));
}

#[test]
fn programs_that_cannot_be_executed_have_the_statuses_of_shells() {
    require_bpf!();
    let folder = folder();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("a file");
    for (program, status) in
        [(plain.as_path(), 126), (folder.path(), 126), (Path::new("/no/such"), 127)]
    {
        let ended = Avtrace::on_path(program).run();
        assert_eq!(ended.code, Some(status), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    let ended = avtrace_with(["rnu", "/bin/true"]);
    assert_eq!(ended.code, Some(127), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("did you mean the command `run`?\n"), "{}", ended.stderr);
}

#[test]
fn avtrace_dies_as_its_program_and_leaves_no_core_file() {
    require_bpf!();
    let folder = folder();
    // Without a limit, the program may leave one; avtrace does not.
    let dies = "ulimit -S -c unlimited; cd \"$1\"; shift; exec \"$@\"";
    let mut command = Avtrace::on_path("sh").arguments(["-c", "ulimit -c 0; kill -s ABRT $$"]);
    command = command.environment("AVTRACE_FORMAT", "json");
    let traced = command.command();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", dies, "sh"]).arg(folder.path()).arg(traced.get_program());
    shell.args(traced.get_args()).envs(traced.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let ended = tests::process::run(&mut shell);
    assert_eq!(ended.signal, Some(6), "{}", ended.stderr);
    assert!(ended.stderr.contains("\"signal\": 6"), "the report is there: {}", ended.stderr);
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "a core file");
}
