//! Lives of traced processes: they replace their programs, load and unload libraries, fork; and what is left when
//! avtrace is killed meanwhile.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tests::process::{child_of, run};
use tests::programs::{c_by, install, install_contents};
use tests::tracer::{avtrace_with, captures_inline, native};
use tests::{Avtrace, Location, Program, Report, Violation, c, machine, require_bpf};

/// The transfer of `bank.c`, with all that a report says of it.
fn check_bank(program: &Program, report: &Report) {
    let violation = report.only_violation();
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"], "{violation:#?}");
    let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
    assert_eq!((there.name(), back.name()), ("account.lock", "account.lock"));
    let line = |place: &Option<Location>| place.as_ref().and_then(|place| place.line);
    assert_eq!(line(&there.source), Some(program.line("transfer_unlock")));
    assert_eq!(line(&there.sink), Some(program.line("audit_lock")));
    assert_eq!(line(&back.sink), Some(program.line("transfer_relock")));
}

fn notes(report: &Report) -> String {
    report.not_seen["notes"].to_string()
}

#[test]
fn the_program_that_replaces_another_is_traced() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let bank = c("bank", &["-g", level]);
        let (ended, reports) = Avtrace::on_path("env").arguments([&bank.path]).reports();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
        let [env, traced] = &reports[..] else { panic!("two reports: {reports:#?}") };
        assert!(env.violations.is_empty() && env.subject.replaced, "{env:#?}");
        check_bank(&bank, traced);
        assert_eq!((notes(env), notes(traced)), ("[]".to_owned(), "[]".to_owned()));
        assert_eq!(traced.subject.exit_code, Some(0));
        assert_eq!(traced.subject.argv, [bank.path.to_str().expect("text")]);
    }
    let fixed = c("bank_fixed", &["-g", "-O2"]);
    let (ended, reports) = Avtrace::on_path("env").arguments([&fixed.path]).reports();
    assert_eq!((ended.code, reports.len()), (Some(0), 2), "{}", ended.stderr);
    assert!(reports.iter().all(|report| report.violations.is_empty()), "{reports:#?}");
}

#[test]
fn the_text_says_which_program_it_is_about() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let ended = Avtrace::on_path("env").arguments([&bank.path]).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let mut lines = ended.stderr.lines();
    let first = lines.next().expect("a name");
    assert!(first.ends_with("`), until it replaced its program:"), "{first}");
    let nothing = "nothing was checked: no region ran; the process replaced the program";
    assert_eq!(lines.next(), Some(nothing));
    assert_eq!(lines.next(), Some(""));
    let second = lines.next().expect("a name");
    assert!(second.ends_with(&format!("(`{}`):", bank.path.display())), "{second}");
    assert!(lines.next().is_some_and(|line| line.starts_with("possible d1: ")), "{ended:?}");
}

#[test]
fn a_variable_of_a_later_program_is_watched() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let (ended, reports) = Avtrace::on_path("env")
        .options(["--follow-forks", "--watch", "account.balance"])
        .arguments([&bank.path])
        .reports();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let [env, traced] = &reports[..] else { panic!("two reports: {reports:#?}") };
    assert!(notes(env).contains("no variable is called `account`"), "{}", notes(env));
    let evidence: Vec<&str> =
        traced.violations.iter().map(|violation| &*violation.evidence).collect();
    assert_eq!(evidence, ["data", "sync"], "{traced:#?}");
}

#[test]
fn a_script_is_its_interpreter_and_then_what_that_becomes() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let folder = tests::folder();
    let script = folder.path().join("script");
    install_contents(format!("#!/bin/sh -e\nexec {}\n", bank.path.display()), &script);
    let (ended, reports) = Avtrace::on_path("env").arguments([&script]).reports();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    let [env, shell, traced] = &reports[..] else { panic!("three reports: {reports:#?}") };
    assert_eq!(shell.subject.argv[..2], ["/bin/sh", "-e"]);
    let numbers = [env, shell, traced].map(|report| report.subject.program);
    assert_eq!(numbers, [1, 2, 3]);
    check_bank(&bank, traced);
}

#[test]
fn a_thread_that_is_not_the_first_replaces_the_program() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let program = c("exec_from_thread", &["-g", "-O2"]);
    let (ended, reports) = Avtrace::on(&program).arguments([&bank.path]).reports();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    let [old, new] = &reports[..] else { panic!("two reports: {reports:#?}") };
    assert!(old.violations.is_empty(), "its region never ended: {old:#?}");
    assert_eq!((old.counts.threads, new.counts.threads), (3, 3));
    check_bank(&bank, new);
}

#[test]
fn a_program_that_replaces_itself_many_times() {
    require_bpf!();
    let program = c("exec_loop", &["-g", "-O2"]);
    let (ended, reports) = Avtrace::on(&program).arguments(["20"]).reports();
    let expected = format!("{}done\n", "x".repeat(20));
    assert_eq!((ended.code, ended.stdout), (Some(7), expected), "{}", ended.stderr);
    assert_eq!(reports.len(), 21);
    for report in &reports {
        assert_eq!(notes(report), "[]");
        assert!(report.counts.events >= 2, "its lock: {report:#?}");
        assert_eq!(report.not_seen["skipped_probes"].as_array().map(Vec::len), Some(0));
    }
}

#[test]
fn programs_are_recorded_one_by_one() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let folder = tests::folder();
    let file = folder.path().join("t.avt");
    let file = file.to_str().expect("text");
    let bank = bank.path.to_str().expect("text");
    let capture = tests::capture::options();
    let options = capture.iter().map(String::as_str);
    let ended =
        avtrace_with(["record", "-o", file].into_iter().chain(options).chain(["env", bank]));
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 900\n"), "{}", ended.stderr);
    let second = file.replace("t.avt", "t.2.avt");
    assert!(ended.stderr.contains(&second), "{}", ended.stderr);
    assert_eq!(avtrace_with(["check", file]).code, Some(0));
    let checked = avtrace_with(["check", &second]);
    assert_eq!(checked.code, Some(66), "{}", checked.stderr);
    assert!(checked.stdout.contains("account.lock"), "{}", checked.stdout);
}

#[test]
fn signals_and_masks_are_those_of_the_program_alone() {
    require_bpf!();
    let script = "exec env grep -E '^(Sig[PBIC]|Shd|TracerPid)' /proc/self/status";
    for before in ["", "trap '' CONT; ", "trap '' INT CONT TSTP; "] {
        let script = format!("{before}{script}");
        let alone = native("sh", ["-c", &script], None);
        let traced = Avtrace::on_path("sh").arguments(["-c", &script]).run();
        assert_eq!(traced.code, Some(0), "{}", traced.stderr);
        // A process that inline probes are in has a tracer.
        let compared = |output: &str| -> Vec<String> {
            let is_compared = |line: &&str| !captures_inline() || !line.starts_with("TracerPid");
            output.lines().filter(is_compared).map(str::to_owned).collect()
        };
        assert_eq!(compared(&traced.stdout), compared(&alone.stdout));
    }
}

#[test]
fn a_set_user_id_program_is_not_traced() {
    require_bpf!();
    if !machine::is_root() || !machine::have("setpriv") {
        machine::skip("not root, or setpriv is not installed");
        return;
    }
    let folder = tests::folder();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    let copy = folder.path().join("identity");
    install(&c("identity", &[]).path, &copy, 0o4755);
    let arguments = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let alone = run(std::process::Command::new("setpriv").args(arguments).arg(&copy));
    if !alone.stdout.starts_with("65534 0 ") {
        machine::skip("set-user-ID does not work where temporary files are");
        return;
    }
    let (ended, reports) =
        Avtrace::on_path("setpriv").arguments(arguments).arguments([&copy]).reports();
    assert_eq!((ended.code, ended.stdout), (Some(0), alone.stdout), "{}", ended.stderr);
    let last = reports.last().expect("a report");
    assert!(notes(last).contains("not traced: it runs with privileges of its own"), "{last:#?}");
}

/// A library for `host.c`, under this name.
fn library(folder: &Path, name: &str, program: &str, flags: &[&str]) -> PathBuf {
    let flags = [&["-g", "-shared", "-fPIC"], flags].concat();
    let path = folder.join(name);
    fs::copy(c(program, &flags).path, &path).expect("a copy");
    path
}

/// The violation in `refill`, of a region with this name.
fn check_refill(violation: &Violation, name: &str) {
    let plugin = c("plugin", &["-g", "-shared", "-fPIC"]);
    assert_eq!(violation.cycle(), [name, "", "", name], "{violation:#?}");
    let line = |place: &Option<Location>| place.as_ref().and_then(|place| place.line);
    let first = violation.edges.first().expect("an edge");
    let last = violation.edges.last().expect("an edge");
    assert_eq!((first.name(), last.name()), ("lock", "lock"));
    assert_eq!(line(&first.source), Some(plugin.line("unlock")));
    assert_eq!(line(&first.sink), Some(plugin.line("intrude")));
    assert_eq!(line(&last.sink), Some(plugin.line("relock")));
    let file = first.source.as_ref().map(|place| place.file.ends_with("plugin.c"));
    assert_eq!(file, Some(true));
}

#[test]
fn regions_of_a_library_that_is_loaded_later() {
    require_bpf!();
    let folder = tests::folder();
    let host = c("host", &["-g", "-O2"]);
    for level in ["-O0", "-O2"] {
        let marked = library(folder.path(), "libmarked.so", "plugin", &[level, "-DMARKED"]);
        let plain = library(folder.path(), "libplain.so", "plugin", &[level]);
        for (library, options) in
            [(&marked, &[][..]), (&plain, &["--atomic", "libplain.so!refill"][..])]
        {
            let library = library.to_str().expect("text");
            let (ended, report) = Avtrace::on(&host).options(options).arguments([library]).report();
            assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 10\n"), "{ended:?}");
            check_refill(report.only_violation(), "refill");
            assert_eq!(notes(&report), "[]");
            let (ended, report) = Avtrace::on(&host)
                .options(options)
                .arguments([format!("{library}:fixed")])
                .report();
            assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 11\n"), "{ended:?}");
            assert_eq!(report.counts.transactions - report.counts.unary_transactions, 1);
        }
    }
}

#[test]
fn a_library_that_musl_loads_later() {
    require_bpf!();
    if !machine::have("musl-gcc") {
        machine::skip("musl-gcc is not installed");
        return;
    }
    let folder = tests::folder();
    let host = c_by("musl-gcc", "host", &["-g", "-O2"]);
    let flags = ["-g", "-O2", "-shared", "-fPIC", "-DMARKED"];
    let library = folder.path().join("libmarked.so");
    fs::copy(c_by("musl-gcc", "plugin", &flags).path, &library).expect("a copy");
    let (ended, report) = Avtrace::on(&host).arguments([&library]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 10\n"), "{}", ended.stderr);
    check_refill(report.only_violation(), "refill");
    let fixed = format!("{}:fixed", library.display());
    let (ended, report) = Avtrace::on(&host).arguments([&fixed]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 11\n"), "{}", ended.stderr);
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 1);
}

#[test]
fn a_second_copy_of_the_c_library() {
    require_bpf!();
    let folder = tests::folder();
    let library = library(folder.path(), "libone.so", "plugin", &["-O2", "-DMARKED"]);
    let host = c("host", &["-g", "-O2", "-DAPART"]);
    let (ended, report) = Avtrace::on(&host).arguments([&library]).report();
    if captures_inline() {
        // Probes are in the first copy alone.
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 10\n"), "{}", ended.stderr);
    } else {
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 10\n"), "{}", ended.stderr);
        check_refill(report.only_violation(), "refill");
    }
    assert!(notes(&report).contains("`libc.so.6` is loaded more than once"), "{}", notes(&report));
    let fixed = format!("{}:fixed", library.display());
    let (ended, report) = Avtrace::on(&host).arguments([&fixed]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 11\n"), "{}", ended.stderr);
    assert!(report.violations.is_empty(), "{report:#?}");
}

#[test]
fn a_library_that_never_comes_is_told() {
    require_bpf!();
    let bank = c("bank_fixed", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&bank).options(["--atomic", "libnone.so!f"]).report();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(notes(&report).contains("no library `libnone.so`"), "{}", notes(&report));
}

#[test]
fn a_function_that_a_later_library_does_not_have_is_told() {
    require_bpf!();
    let folder = tests::folder();
    let library = library(folder.path(), "libplain.so", "plugin", &["-O2"]);
    let (_, report) = Avtrace::on(&c("host", &["-g", "-O2"]))
        .options(["--atomic", "libplain.so!refil"])
        .arguments([&library])
        .report();
    assert!(notes(&report).contains("did you mean `refill`"), "{}", notes(&report));
}

#[test]
fn libraries_that_take_one_anothers_place() {
    require_bpf!();
    let folder = tests::folder();
    let host = c("host", &["-g", "-O2"]);
    let flags = ["-O2", "-DMARKED"];
    let one = library(folder.path(), "libone.so", "plugin", &flags);
    let other = library(
        folder.path(),
        "libother.so",
        "plugin_other",
        &["-O2", "-DMARKED", "-DNAME=\"other\""],
    );
    let (one, other) = (one.display(), other.display());
    let order =
        [one.to_string(), other.to_string(), format!("{one}:fixed"), format!("{other}:fixed")];
    let (ended, report) = Avtrace::on(&host).arguments(&order).report();
    let expected = "balance: 10\nsame\nbalance: 110\nsame\nbalance: 11\nsame\nbalance: 111\n";
    assert_eq!((ended.code, &*ended.stdout), (Some(66), expected), "{}", ended.stderr);
    let names: Vec<&str> = report.violations.iter().map(|violation| &*violation.region).collect();
    assert_eq!(names, ["refill", "other"], "{:#?}", report.violations);
    for violation in &report.violations {
        check_refill(violation, &violation.region);
    }
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 4);
    assert_eq!(notes(&report), "[]");
}

#[test]
fn a_library_that_comes_again_and_one_that_stays() {
    require_bpf!();
    let folder = tests::folder();
    let host = c("host", &["-g", "-O2"]);
    let one = library(folder.path(), "libone.so", "plugin", &["-O2", "-DMARKED"]);
    let stays = library(folder.path(), "libstays.so", "plugin", &["-O2", "-DMARKED"]);
    let order = [
        format!("{}:fixed", one.display()),
        format!("+{}", stays.display()),
        one.display().to_string(),
    ];
    let (ended, report) = Avtrace::on(&host).arguments(&order).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    // The same lines of the same source, in two libraries.
    assert_eq!(report.violations.iter().map(|violation| violation.occurrences).sum::<u64>(), 2);
    for violation in &report.violations {
        check_refill(violation, "refill");
    }
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 3);
}

#[test]
fn a_stop_for_a_library_is_not_seen_by_the_program() {
    require_bpf!();
    let folder = tests::folder();
    let library = library(folder.path(), "libone.so", "plugin", &["-O2", "-DMARKED"]);
    let program = c("late_signals", &["-g", "-O2"]);
    let ended = Avtrace::on(&program).arguments([&library]).run();
    let expected = "handled: 0\npending: 0, blocked: 1\n";
    assert_eq!((ended.code, &*ended.stdout), (Some(0), expected), "{}", ended.stderr);
}

/// The child's report and the parent's.
fn forked(split: &str) -> (Report, Report) {
    let program = c("forks", &["-g", "-O2"]);
    let (ended, reports) =
        Avtrace::on(&program).options(["--follow-forks"]).arguments([split]).reports();
    assert_eq!(ended.stdout, "the child's status was 3\n", "{}", ended.stderr);
    assert_eq!(ended.code, Some(if split == "none" { 0 } else { 66 }), "{}", ended.stderr);
    let reports: [Report; 2] = reports.try_into().expect("two reports");
    let [child, parent] = reports;
    assert_eq!((child.subject.exit_code, parent.subject.exit_code), (Some(3), Some(0)));
    assert_eq!((child.subject.parent, parent.subject.parent), (Some(parent.subject.pid), None));
    for report in [&child, &parent] {
        assert_eq!((report.counts.threads, &*notes(report)), (3, "[]"), "{report:#?}");
        assert_eq!(report.not_seen["unfollowed_processes"].as_array().map(Vec::len), Some(0));
    }
    (child, parent)
}

#[test]
fn children_are_traced_when_they_are_followed() {
    require_bpf!();
    let program = c("forks", &["-g", "-O2"]);
    for split in ["none", "child", "parent", "both"] {
        let (child, parent) = forked(split);
        for (report, is_split) in [
            (child, ["child", "both"].contains(&split)),
            (parent, ["parent", "both"].contains(&split)),
        ] {
            if !is_split {
                assert!(report.violations.is_empty(), "{split}: {report:#?}");
                continue;
            }
            let violation = report.only_violation();
            assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
            let [there, back] = &violation.edges[..] else { panic!("{violation:#?}") };
            assert_eq!((there.name(), back.name()), ("lock", "lock"));
            let line = |place: &Option<Location>| place.as_ref().and_then(|place| place.line);
            assert_eq!(line(&there.source), Some(program.line("unlock")));
            assert_eq!(line(&there.sink), Some(program.line("audit")));
            assert_eq!(line(&back.sink), Some(program.line("relock")));
        }
    }
}

#[test]
fn children_are_left_alone_when_they_are_not_followed() {
    require_bpf!();
    let (ended, report) = Avtrace::on(&c("forks", &["-g", "-O2"])).arguments(["child"]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "the child's status was 3\n"));
    assert_eq!(report.not_seen["unfollowed_processes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn children_that_are_not_followed_run_without_breakpoints() {
    require_bpf!();
    let program = c("untouched", &["-g", "-O2", "-static"]);
    let children = "child: restored\ngrandchild: restored\norphan: restored\n";
    // The jumps of inline probes stay in a copy of memory, to code that makes no records.
    let copies = if captures_inline() {
        children.replace("restored", "changed")
    } else {
        children.to_owned()
    };
    let alone = native(&program.path, [""; 0], None);
    assert_eq!(alone.stdout, format!("{children}parent: not probed, as before\n"));
    let probing = Avtrace::on(&program).seeing_memory().options(["--accesses", "probe"]);
    for avtrace in [Avtrace::on(&program), probing] {
        let (ended, report) = avtrace.report();
        let expected = format!("{copies}parent: probed, as before\n");
        assert_eq!((ended.code, ended.stdout), (Some(0), expected), "{}", ended.stderr);
        assert_eq!(report.not_seen["unfollowed_processes"].as_array().map(Vec::len), Some(4));
        assert_eq!(notes(&report), "[]");
    }
}

/// While a process and its child are followed that run `own_code.c`, whose code they show to have breakpoints. It has
/// no libraries, which others may trace meanwhile.
fn while_followed(during: impl FnOnce(&Program)) {
    let program = c("own_code", &["-g", "-O2", "-static"]);
    let folder = tests::folder();
    let pipe = folder.path().join("pipe");
    assert_eq!(run(std::process::Command::new("mkfifo").arg(&pipe)).code, Some(0));
    let mut running = Avtrace::on(&program).options(["--follow-forks"]).arguments([&pipe]).start();
    running.await_stdout("child: probed\nparent: probed\n");
    during(&program);
    fs::write(&pipe, "!").expect("the program reads");
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn other_processes_have_no_breakpoints_when_children_are_followed() {
    require_bpf!();
    while_followed(|program| {
        let other = native(&program.path, [""; 0], None);
        assert_eq!((other.code, &*other.stdout), (Some(0), "0\n"), "{}", other.stderr);
    });
}

#[test]
fn valgrind_works_beside_a_process_whose_children_are_followed() {
    require_bpf!();
    if !machine::have("valgrind") {
        machine::skip("valgrind is not installed");
        return;
    }
    while_followed(|program| {
        let arguments = ["--tool=none".as_ref(), "-q".as_ref(), program.path.as_os_str()];
        let ended = native("valgrind", arguments, None);
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{}", ended.stderr);
    });
}

#[test]
fn a_helper_that_is_spawned_is_followed_from_its_own_program_on() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let program = c("spawns", &["-g", "-O2"]);
    let (ended, reports) =
        Avtrace::on(&program).options(["--follow-forks"]).arguments([&bank.path]).reports();
    assert_eq!(ended.stdout, "balance: 900\nthe helper's status was 0\n", "{}", ended.stderr);
    let path = bank.path.to_str().expect("text");
    let traced = reports.iter().find(|report| report.subject.argv == [path]).expect("the bank");
    check_bank(&bank, traced);
    assert!(reports.iter().all(|report| notes(report) == "[]"), "{reports:#?}");
}

#[test]
fn children_are_not_followed_where_probes_would_be_everybodys() {
    require_bpf!();
    // Inline probes are never everybody's.
    if captures_inline() {
        return;
    }
    let program = c("forks", &["-g", "-O2"]);
    let ended = Avtrace::on(&program).options(["--follow-forks", "--perf-probes"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("--follow-forks is not possible here"), "{}", ended.stderr);
}

#[test]
fn programs_of_children_are_traced_when_they_are_followed() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let fixed = c("bank_fixed", &["-g", "-O2"]);
    let script = format!(
        "{} & {}; wait; env {}; exit 4",
        fixed.path.display(),
        bank.path.display(),
        bank.path.display()
    );
    let (ended, reports) = Avtrace::on_path("sh")
        .options(["--follow-forks", "--error-exitcode=70"])
        .arguments(["-c", &script])
        .reports();
    assert_eq!(ended.code, Some(70), "{}", ended.stderr);
    let runs = |program: &Program| -> Vec<&Report> {
        let path = program.path.to_str().expect("text");
        reports.iter().filter(|report| report.subject.argv == [path]).collect()
    };
    let (split, whole) = (runs(&bank), runs(&fixed));
    assert_eq!((split.len(), whole.len()), (2, 1), "{reports:#?}");
    split.iter().for_each(|report| check_bank(&bank, report));
    assert!(whole[0].violations.is_empty(), "{:#?}", whole[0]);
    let shell = reports.last().expect("a report");
    assert_eq!((shell.subject.exit_code, shell.subject.parent), (Some(4), None));
}

#[test]
fn children_that_outlive_their_parent_are_followed_to_their_end() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let script = format!("(read line; exec {}) <&3 & exit 0", bank.path.display());
    let script = format!("exec 3<&0; {script}");
    let (ended, reports) = Avtrace::on_path("sh")
        .options(["--follow-forks"])
        .arguments(["-c", &script])
        .input("\n")
        .reports();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    let traced = reports.iter().find(|report| report.subject.program == 2).expect("the bank");
    check_bank(&bank, traced);
    assert_eq!(traced.subject.exit_code, Some(0));
}

#[test]
fn killing_avtrace_leaves_no_stopped_process() {
    require_bpf!();
    let folder = tests::folder();
    let library = library(folder.path(), "libone.so", "plugin", &["-O2", "-DMARKED"]);
    let loads = vec![format!("{}:fixed", library.display()); 30];
    let exec_loop = c("exec_loop", &["-g", "-O2"]);
    let host = c("host", &["-g", "-O2"]);
    for round in 1..=6 {
        // After as many letters, or libraries; the process is stopped most of the time then.
        let (program, arguments, seen) = if round % 2 == 0 {
            (&exec_loop, vec!["30".to_owned()], "x".repeat(round))
        } else {
            (&host, loads.clone(), "balance: 11\nsame\n".repeat(round))
        };
        let mut running = Avtrace::on(program).arguments(&arguments).start();
        running.await_stdout(&seen);
        let mut tracee = None;
        running.await_that("the program is found", |pid| {
            tracee = child_of(pid, &program.path);
            tracee.is_some()
        });
        let tracee = tracee.expect("it was found");
        running.signal("KILL");
        running.await_end(|_| {});
        running.await_that("nothing is stopped", |_| {
            state(tracee).is_none_or(|state| state != 'T' && state != 't')
        });
        let output = running.await_closed_stdout();
        let (part, last) = if round % 2 == 0 { ("x", "done\n") } else { ("balance: 11\n", "") };
        assert_eq!(output.matches(part).count(), 30, "{output}");
        assert!(output.ends_with(last), "its normal end: {output}");
    }
}

/// The state of a process, as the kernel shows it.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next())
}

#[test]
fn a_helper_that_is_spawned_is_left_alone() {
    require_bpf!();
    let program = c("spawns", &["-g", "-O2"]);
    let helper = ["/bin/sh", "-c", "grep -w TracerPid /proc/self/status; exit 9"];
    let (ended, report) = Avtrace::on(&program).arguments(helper).report();
    let expected = "TracerPid:\t0\nthe helper's status was 9\n";
    assert_eq!((ended.code, &*ended.stdout), (Some(0), expected), "{}", ended.stderr);
    assert_eq!(report.not_seen["unfollowed_processes"].as_array().map(Vec::len), Some(1));
    assert!(report.violations.is_empty());
}
