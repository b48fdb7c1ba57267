//! Refusals of probes in the process: each has its reason and a remedy, as root and as an ordinary user. Restrictions
//! that a program sets for itself later do no harm.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use tests::{Avtrace, Ended, Program, c, machine, require_bpf, tracer::native};

const NOTHING: [&str; 0] = [];

/// Exit status of the program where it cannot restrict itself.
const UNABLE: i32 = 77;

/// Runs as root, and as a user without privileges where this process can become one.
fn users() -> &'static [bool] {
    if machine::is_root() && machine::have("setpriv") { &[false, true] } else { &[false] }
}

fn inline(program: &Program, as_nobody: bool) -> Avtrace {
    let run = Avtrace::on(program).inline();
    if as_nobody { run.as_nobody() } else { run }
}

/// Builds a program whose library restricts it before its entry point, with these definitions.
fn early(definitions: &[&str]) -> Program {
    let library = [&["-g", "-O1", "-shared", "-fPIC", "-DEARLY"], definitions].concat();
    let library = c("restricts_itself", &library);
    let library = library.path.to_str().expect("text");
    c("restricts_itself", &["-g", "-O1", "-Wl,--no-as-needed", library])
}

/// Checks that a run has failed before the program did anything, for this reason.
fn is_refused(ended: &Ended, reason: &str) {
    let Ended { code, stdout, stderr, .. } = ended;
    assert_eq!((*code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains(reason), "{reason}: {stderr}");
    assert_eq!(stderr.matches("avtrace: error: ").count(), 1, "{stderr}");
}

#[test]
fn a_program_that_cannot_have_probes_is_refused_with_the_reason() {
    let (plain, with_gs) = (early(&[]), early(&["-DGS"]));
    for (how, reason, program) in [
        ("mdwe", "PR_SET_MDWE", &plain),
        ("strict", "strict seccomp mode", &plain),
        ("no-memfd", "may not call memfd_create", &plain),
        ("no-mmap", "may not call mmap", &plain),
        ("false-mmap", "answers mmap in the kernel's place", &plain),
        ("killed", "seccomp filter kills it", &plain),
        ("gs", "uses the GS base", &with_gs),
    ] {
        for &as_nobody in users() {
            let ended = inline(program, as_nobody).environment("EARLY", how).run();
            if ended.code == Some(UNABLE) {
                machine::skip(&format!("this kernel has no {how}"));
                continue;
            }
            is_refused(&ended, reason);
            assert!(ended.stderr.contains("use `--capture kernel`, as root"), "{}", ended.stderr);
        }
    }
}

#[test]
fn a_file_that_a_program_passes_off_as_new_stays_as_it_is() {
    let program = early(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let victim = folder.path().join("victim");
    fs::write(&victim, "of somebody else").expect("a file");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).expect("its mode");
    let empty = folder.path().join("empty");
    fs::write(&empty, "").expect("a file");
    let sudo = [("SUDO_UID", "65534"), ("SUDO_GID", "65534")];
    let nothing = [];
    let callers = if machine::is_root() { &[&nothing[..], &sudo][..] } else { &[&nothing[..]] };
    for variables in callers {
        for file in [victim.as_path(), &empty, Path::new("/dev/full"), folder.path()] {
            let run = inline(&program, false).environment("EARLY", "false-memfd");
            let run = run.environment("FILE", file.to_str().expect("text"));
            let ended =
                variables.iter().fold(run, |run, (name, value)| run.environment(name, value));
            is_refused(&ended.run(), "answers memfd_create in the kernel's place");
            assert_eq!(fs::read_to_string(&victim).expect("the file"), "of somebody else");
            assert_eq!(fs::metadata(&empty).expect("the file").len(), 0, "{variables:?}");
        }
    }
}

#[test]
fn a_program_that_hides_its_memory_is_refused_for_users_alone() {
    let program = early(&[]);
    for &as_nobody in users() {
        let ended = inline(&program, as_nobody).environment("EARLY", "undumpable").run();
        if as_nobody || !machine::is_root() {
            is_refused(&ended, "PR_SET_DUMPABLE");
        } else {
            assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{}", ended.stderr);
        }
    }
}

#[test]
fn without_barriers_a_common_counter_orders_events() {
    let program = early(&[]);
    let as_nobody = users().contains(&true);
    for (how, order) in [("no-membarrier", "shared_counter"), ("nothing", "time_stamp_counter")] {
        let run = inline(&program, as_nobody).environment("EARLY", how);
        let folder = tempfile::tempdir().expect("a folder");
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), open).expect("permissions");
        let file = folder.path().join("report.json");
        let ended = run.options(["--format", "json", "-o"]).options([&file]).run();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{}", ended.stderr);
        let report = tests::Report::parse(&fs::read_to_string(&file).expect("a report"));
        let capture = report.capture.expect("how it was captured");
        assert_eq!(capture["backend"], "inline");
        // On machines of which the counters do not agree, it is the common one in any case.
        if capture["order_reason"].is_null() || how == "no-membarrier" {
            assert_eq!(capture["order"], order, "{capture}");
        }
        assert_eq!(report.counts.lost_events, 0);
    }
}

#[test]
fn what_a_program_does_to_itself_later_harms_nothing() {
    let program = c("restricts_itself", &["-g", "-O1"]);
    let as_nobody = users().contains(&true);
    for how in ["mdwe", "strict", "no-membarrier", "no-mmap", "undumpable", "no-tsc"] {
        if native(&program.path, [how], None).code == Some(UNABLE) {
            machine::skip(&format!("this kernel has no {how}"));
            continue;
        }
        let ended = inline(&program, as_nobody).options(["--all"]).arguments([how]).run();
        let Ended { code, stdout, stderr, .. } = &ended;
        assert_eq!((*code, stdout.as_str()), (Some(0), "done\n"), "{how}: {stderr}");
        assert!(stderr.contains("202 events"), "{how}: {stderr}");
    }
}

#[test]
fn code_that_takes_rings_away_is_found_before_it_runs() {
    for (how, definition, reason) in [
        ("gs", "-DGS", "uses the GS base"),
        ("computed", "-DCOMPUTED", "uses the GS base"),
        ("untraced", "-DUNTRACED", "threads that no tracer sees"),
    ] {
        let program = c("restricts_itself", &["-g", "-O1", definition]);
        for &as_nobody in users() {
            is_refused(&inline(&program, as_nobody).arguments([how]).run(), reason);
        }
    }
}

#[test]
fn what_probes_depend_on_can_be_taken_from_them_while_the_program_runs() {
    let program = c("own_threads", &["-g", "-O1", "-pthread"]);
    let as_nobody = users().contains(&true);
    for (how, reason) in [
        ("base", "has set the GS base itself"),
        ("null", "has set the GS base itself"),
        ("made", "has set the GS base itself"),
        ("thread", "a thread that no tracer sees"),
        ("unmap", "has unmapped memory of inline probes"),
        ("calls", "answers system calls itself"),
    ] {
        let alone = native(&program.path, [how], None);
        if alone.code != Some(0) {
            machine::skip(&format!("this processor or kernel has no {how}"));
            continue;
        }
        assert_eq!(alone.stdout, "counted kept\n", "{how}");
        for options in [&[][..], &["--drop"], &["--follow-forks"]] {
            let ended = inline(&program, as_nobody).options(options).arguments([how]).run();
            let Ended { code, stdout, stderr, .. } = &ended;
            assert!(matches!(code, Some(0 | 66)), "{how} {options:?}: {code:?} {stderr}");
            assert_eq!(*stdout, alone.stdout, "{how} {options:?}: {stderr}");
            let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(stderr.contains(reason), "{how} {options:?}: {stderr}");
            assert!(stderr.contains("its probes were taken out"), "{how} {options:?}: {stderr}");
        }
    }
}

#[test]
fn a_program_that_may_not_be_read_is_refused() {
    if users().len() < 2 {
        return machine::skip("not root, or no setpriv");
    }
    let program = c("restricts_itself", &["-g", "-O1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let mode = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(folder.path(), 0o755).expect("permissions");
    let hidden = folder.path().join("hidden");
    fs::copy(&program.path, &hidden).expect("a copy");
    mode(&hidden, 0o711).expect("permissions");
    let ended = Avtrace::on_path(&hidden).inline().as_nobody().run();
    assert_eq!((ended.code, &*ended.stdout), (Some(3), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot read"), "{}", ended.stderr);
}

#[test]
fn where_ptrace_is_denied_the_reason_is_named() {
    let program = c("restricts_itself", &["-g", "-O1"]);
    let command = Avtrace::on(&program).inline().command();
    let avtrace: Vec<_> =
        std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let under = |program: &str, arguments: &[&str]| {
        let arguments = arguments.iter().map(|argument| argument.as_ref());
        native(program, arguments.chain(avtrace.iter().copied()), None)
    };
    let filter = program.path.to_str().expect("text");
    is_refused(&under(filter, &["no-ptrace"]), "a seccomp filter, as of a container");
    if machine::have("strace") {
        let ended = under("strace", &["-f", "-o", "/dev/null"]);
        is_refused(&ended, "avtrace is traced itself, by process");
    }
}

#[test]
fn without_privileges_probes_are_in_the_program_and_the_report_says_so() {
    if users().len() < 2 {
        return machine::skip("not root, or no setpriv");
    }
    let program = c("bank", &["-g", "-O1"]);
    let auto =
        || Avtrace::on(&program).options(["--capture", "auto"]).without_capture().as_nobody();
    let ended = auto().options(["--all"]).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert!(ended.stderr.contains("inline probes (order: "), "{}", ended.stderr);
    let ended = auto().options(["--perf-probes"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("run avtrace as root (`sudo avtrace"), "{}", ended.stderr);
}

#[test]
fn leak_sanitizer_keeps_probes_out_of_the_program() {
    let program = c("one_access", &["-g", "-O1", "-fsanitize=address"]);
    for &as_nobody in users() {
        is_refused(&inline(&program, as_nobody).run(), "has LeakSanitizer");
        let off = inline(&program, as_nobody).environment("ASAN_OPTIONS", "detect_leaks=0").run();
        let alone = native(&program.path, NOTHING, None);
        assert_eq!((off.code, &off.stdout), (alone.code, &alone.stdout), "{}", off.stderr);
    }
    require_bpf!();
    let auto = Avtrace::on(&program).without_capture();
    let (ended, report) = auto.report();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let capture = report.capture.expect("how it was captured");
    assert_eq!(
        (&capture["backend"], &capture["reason_kind"]),
        (&"kernel".into(), &"refused".into())
    );
}

#[test]
fn what_becomes_a_program_with_leak_sanitizer_runs_without_a_tracer() {
    let program = c("one_access", &["-g", "-O1", "-fsanitize=address"]);
    let path = program.path.display();
    for (script, option) in [
        // The first process, then a followed child.
        (format!("exec {path}"), "--lossless"),
        (format!("{path}; status=$?; echo ended; exit $status"), "--follow-forks"),
    ] {
        let alone = native("/bin/sh", ["-c", &script], None);
        assert_eq!(alone.code, Some(0), "{}", alone.stderr);
        for &as_nobody in users() {
            let run = Avtrace::on_path("/bin/sh").inline().options([option]);
            let run = if as_nobody { run.as_nobody() } else { run };
            let ended = run.arguments(["-c", &script]).run();
            assert_eq!(
                (ended.code, &ended.stdout),
                (alone.code, &alone.stdout),
                "{}",
                ended.stderr
            );
            assert!(ended.stderr.contains("it has LeakSanitizer, which"), "{}", ended.stderr);
        }
    }
}

#[test]
fn root_too_has_probes_in_the_program_unless_an_option_needs_the_kernel() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    let backend = |options: &[&str]| {
        let run = Avtrace::on(&program).without_capture().seeing_memory();
        let run = run.options(options.iter().copied());
        run.report().1.capture.expect("how it was captured")["backend"].clone()
    };
    assert_eq!(backend(&[]), "inline");
    assert_eq!(backend(&["--accesses", "watch"]), "kernel");
}

#[test]
fn threads_wait_or_lose_events_as_is_asked_for() {
    let program = c("lockloop", &["-g", "-O2"]);
    let run = |option: &str| {
        Avtrace::on(&program).inline().options([option]).arguments(["4", "20000"]).report()
    };
    let (ended, report) = run("--lossless");
    assert_eq!((ended.code, report.counts.lost_events), (Some(0), 0), "{}", ended.stderr);
    assert_eq!(report.capture.expect("how it was captured")["lossless"], true);
    let (ended, report) = run("--drop");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let capture = report.capture.expect("how it was captured");
    assert_eq!((&capture["lossless"], &capture["waits"]), (&false.into(), &0.into()));
    let gaps = report.not_seen["gaps"].as_u64().expect("a number");
    assert_eq!(report.counts.lost_events > 0, gaps > 0, "{}", ended.stderr);
    let ended = Avtrace::on(&program)
        .without_capture()
        .options(["--capture", "kernel", "--lossless"])
        .arguments(NOTHING)
        .run();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}
