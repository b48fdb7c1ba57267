//! Errors of avtrace: one line with the problem and its remedy, and a status that distinguishes bad usage (2), a bad
//! program (3) and avtrace's own failure (1).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tests::programs::install;
use tests::tracer::{avtrace, avtrace_with};
use tests::{Avtrace, Ended, c, machine, process, require_bpf};

/// Checks the status, and that standard error is one line with all of these parts.
#[track_caller]
fn check_one_line(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!((ended.code, &*ended.stdout), (Some(code), ""), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "one line:\n{}", ended.stderr);
    for part in parts {
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
}

fn write(path: &Path, contents: &[u8], mode: u32) {
    fs::write(path, contents).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn no_such_program() {
    require_bpf!();
    check_one_line(&Avtrace::on_path("./no/such/program").run(), 127, &["./no/such/program"]);
    check_one_line(&Avtrace::on_path("no-such-program").run(), 127, &["no-such-program", "PATH"]);
}

#[test]
fn not_an_elf_file() {
    require_bpf!();
    let folder = tests::folder();
    for (name, contents) in
        [("empty", &b""[..]), ("short", b"\x7fELF but no more"), ("data", b"a\0b")]
    {
        let path = folder.path().join(name);
        write(&path, contents, 0o755);
        check_one_line(&Avtrace::on_path(&path).run(), 3, &[name, "ELF"]);
    }
}

#[test]
fn no_permission_to_execute() {
    require_bpf!();
    let folder = tests::folder();
    let path = folder.path().join("bank");
    write(&path, &fs::read(c("bank", &["-g"]).path).expect("the program"), 0o644);
    check_one_line(&Avtrace::on_path(&path).run(), 126, &["bank", "execut", "chmod"]);
    check_one_line(&Avtrace::on_path(folder.path()).run(), 126, &["directory"]);
}

#[test]
fn an_unknown_symbol_to_watch_brings_up_near_names() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let watch = |what: &str| Avtrace::on(&bank).options(["--watch", what]).run();
    check_one_line(&watch("acount"), 2, &["--watch", "acount", "`account`"]);
    check_one_line(&watch("Account+40:8"), 2, &["Account", "`account`"]);
    check_one_line(&watch("nothing_like_it_at_all"), 2, &["nothing_like_it_at_all"]);
}

#[test]
fn what_a_watchpoint_cannot_be() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let watch = |what: &str| Avtrace::on(&bank).options(["--watch", what]).run();
    check_one_line(&watch("account:3"), 2, &["account:3", "8"]);
    // Eight bytes across an alignment boundary take four watchpoints: more than that is too much.
    let twice = ["--watch", "account+3:8", "--watch", "account+16:1"];
    check_one_line(&Avtrace::on(&bank).options(twice).run(), 2, &["--watch", "align"]);
    check_one_line(&watch("account+4000:8"), 2, &["account+4000"]);
    for outside in ["0xffffffffffffffff:8", "0xffff888000000000:8", "0x1000+0xffffffffffffffff:1"] {
        check_one_line(&watch(outside), 2, &[outside, "not in a program's memory"]);
    }
}

#[test]
fn a_variable_that_is_far_too_large() {
    require_bpf!();
    let program = c("large", &["-g"]);
    let ended = Avtrace::on(&program).options(["--watch", "large"]).run();
    check_one_line(&ended, 2, &["--watch", "134217728 ranges"]);
    // The program names it as well: that is a remark, and no reason not to run.
    let (ended, report) = Avtrace::on(&program).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "1\n"), "{}", ended.stderr);
    let notes = report.not_seen["notes"].to_string();
    assert!(notes.contains("`large` was not watched"), "{notes}");
}

#[test]
fn a_fifth_watchpoint() {
    require_bpf!();
    let program = c("watch_struct", &["-g", "-O2"]);
    let watches = [0, 1, 2, 4, 8].map(|offset| format!("--watch=record+{offset}:1"));
    check_one_line(&Avtrace::on(&program).options(watches).run(), 2, &["--watch", "4"]);
}

#[test]
fn what_was_typed_is_not_echoed_at_any_length() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let long = "x".repeat(100_000);
    let folder = tests::folder();
    let spec = folder.path().join("long.toml");
    write(&spec, format!("atomic = ['{}']\n", long.repeat(2)).as_bytes(), 0o644);
    let spec = format!("--spec={}", spec.display());
    for option in [
        format!("--atomic={long}"),
        format!("--atomic=re:({long}"),
        format!("--watch={long}"),
        format!("--watch=account:{long}"),
        format!("--lock={long}"),
        format!("--format={long}"),
        format!("--output=/{long}"),
        format!("--{long}"),
        spec,
    ] {
        let ended = Avtrace::on(&bank).options([&option]).run();
        assert!(matches!(ended.code, Some(1 | 2)), "{:?}: {}", ended.code, &option[..9]);
        assert!(ended.stderr.contains("..."), "{}", &option[..9]);
        assert!(ended.stderr.len() < 4_000, "{} for {}", ended.stderr.len(), &option[..9]);
    }
    let ended = Avtrace::on_path(&long).run();
    assert!(ended.stderr.len() < 1_000, "{}", ended.stderr.len());
}

#[test]
fn bad_usage() {
    let ended = avtrace_with::<&str>([]);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""));
    assert!(ended.stderr.contains("Usage"), "{}", ended.stderr);
    for arguments in [
        &["--no-such-option", "true"][..],
        &["--format", "pretty", "true"],
        &["--regions", "some", "true"],
        &["--error-exitcode", "many", "true"],
        &["--color", "blue", "true"],
        &["--watch"],
    ] {
        let ended = avtrace_with(arguments);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(arguments[0]), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn numbers_that_are_none() {
    for (option, number) in [
        ("--overhead", "-5"),
        ("--overhead", "abc"),
        ("--overhead", "1000001"),
        ("--probe-depth", "-1"),
        ("--probe-depth", "99999999999"),
    ] {
        for arguments in
            [vec![option.to_owned(), number.to_owned()], vec![format!("{option}={number}")]]
        {
            let ended = avtrace_with(arguments.iter().map(String::as_str).chain(["true"]));
            assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{}", ended.stderr);
            for part in [option, &format!("'{number}'"), "from 0 to"] {
                assert!(ended.stderr.contains(part), "{arguments:?}: {part} in {}", ended.stderr);
            }
        }
    }
}

#[test]
fn an_unknown_function_to_probe_brings_up_near_names() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let ended =
        |pattern: &str| Avtrace::on(&bank).seeing_memory().options(["--probe", pattern]).run();
    let check = |pattern: &str, parts: &[&str]| {
        let parts: Vec<&str> = ["--probe", pattern].iter().chain(parts).copied().collect();
        check_one_line(&ended(pattern), 2, &parts);
    };
    check("nothing_like_it_at_all", &["no function of the program itself"]);
    check("libc.so.6!mallox", &["`malloc`"]);
    check("malloc", &["libc.so.6!malloc"]);
    check("file:none.c:1", &["no lines of `none.c`"]);
    // The optimiser puts the last one in line.
    let line = format!("file:bank.c:{}", bank.line("transfer_read"));
    for known in ["main", &line, "libc.so.6!malloc", "give_turn"] {
        let ended = ended(known);
        assert_eq!(ended.code, Some(66), "{known}: {}", ended.stderr);
    }
}

#[test]
fn a_report_that_cannot_be_written() {
    require_bpf!();
    let ended = Avtrace::on_path("true").options(["-o", "/no/such/folder/report.txt"]).run();
    check_one_line(&ended, 1, &["/no/such/folder/report.txt"]);
}

#[test]
fn no_privileges() {
    let folder = tests::folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        install(from, &to, 0o755);
        to
    };
    let tracer = copy(avtrace(), "avtrace");
    let bank = copy(&c("bank", &["-g", "-O2"]).path, "bank");
    let mut command = if machine::can_drop_privileges() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        command.arg(&tracer);
        command
    } else if machine::is_root() {
        machine::skip("setpriv is not installed");
        return;
    } else {
        Command::new(&tracer)
    };
    let ended =
        process::run(command.arg("--all").arg(&bank).env_remove("SUDO_UID").env_remove("SUDO_GID"));
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("inline probes (order: "), "{}", ended.stderr);
}
