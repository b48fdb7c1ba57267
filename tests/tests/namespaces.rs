//! Processes that see other files and other process numbers than avtrace does, and files that are gone.

use std::{fs, path::Path, process::Command};

use tests::{
    Avtrace, Program, Report, Service, c, c_by, folder, machine,
    process::run,
    programs::{c_file, install},
    require_bpf,
    tracer::{avtrace, captures_inline},
};

/// Back ends that attach.
const BACK_ENDS: [&str; 2] = ["kernel", "inline"];

/// Options of `unshare` for new PID and mount namespaces.
const OWN: [&str; 4] = ["--pid", "--fork", "--mount", "--mount-proc"];

/// Leaves the test where it cannot make namespaces.
macro_rules! require_namespaces {
    () => {
        require_bpf!();
        if !machine::is_root() || !machine::have("unshare") {
            machine::skip("not root, or unshare is not installed");
            return;
        }
    };
}

/// Has avtrace find the split transfer of a service with each back end, and ends the service. Returns both reports.
fn check(mut service: Service) -> [Report; 2] {
    let reports = BACK_ENDS.map(|back_end| check_by(back_end, &mut service));
    service.end();
    reports
}

fn check_by(back_end: &str, service: &mut Service) -> Report {
    let avtrace = service.attach(&["--capture", back_end, "--accesses", "probe"]);
    // Threads are held where they load libraries.
    service.does("lt");
    avtrace.signal("INT");
    let ended = avtrace.wait();
    let report = service.report();
    assert_eq!(ended.code, Some(66), "{}\n{report:#?}", ended.stderr);
    check_transfer(&report);
    let capture = report.capture.as_ref().expect("how it was captured");
    assert_eq!(capture["backend"], back_end, "{capture:#}");
    service.await_own_code();
    service.is_left_alone();
    report
}

fn check_transfer(report: &Report) {
    let violation = report.only_violation();
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"], "{violation:#?}");
    assert_eq!(report.counts.lost_events, 0);
    let source = violation.edges[0].source.as_ref().expect("a place");
    assert!(source.line.is_some(), "debug information: {source:#?}");
}

fn service() -> Program {
    c("service", &["-g", "-O2"])
}

/// A folder with a program of musl, and all that it needs.
fn other_root(root: &Path, name: &str) {
    let program = c_by("musl-gcc", name, &["-g", "-O2"]);
    install(&program.path, &root.join(name), 0o755);
    let linker = "lib/ld-musl-x86_64.so.1";
    fs::create_dir(root.join("lib")).expect("a folder");
    install(&Path::new("/").join(linker), &root.join(linker), 0o755);
}

fn command(program: &str, arguments: &[&str], rest: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).args(rest);
    command
}

#[test]
fn a_process_in_namespaces_of_its_own_is_attached_to_from_outside() {
    require_namespaces!();
    let service = Service::start_by(&service(), "service", |_, program, fifo| {
        command("unshare", &OWN, &[program, fifo])
    });
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("its status");
    let ids = status.lines().find(|line| line.starts_with("NSpid:")).expect("its numbers");
    assert!(ids.ends_with("\t1"), "the first of its namespace: {ids}");
    let pid = service.pid();
    assert!(check(service).iter().all(|report| report.subject.pid == pid));
}

#[test]
fn avtrace_attaches_in_a_namespace_of_its_own() {
    require_namespaces!();
    // It, the test and the service each have different process numbers.
    let cases = BACK_ENDS.map(|back_end| [(&[][..], back_end), (&OWN[..], back_end)]);
    for (layers, back_end) in cases.into_iter().flatten() {
        let (program, folder) = (service(), tempfile::tempdir().expect("a folder"));
        let [fifo, report, out] = ["fifo", "report", "out"].map(|name| folder.path().join(name));
        let script = "
            mkfifo \"$FIFO\"; exec 3<>\"$FIFO\"
            $LAYERS \"$PROGRAM\" \"$FIFO\" >\"$OUT\" 3>&- &
            until grep -q ready \"$OUT\"; do :; done
            for file in /proc/[0-9]*/exe; do
                if [ \"$(readlink $file)\" = \"$PROGRAM\" ]; then pid=${file%/exe}; fi
            done
            \"$AVTRACE\" attach --pid ${pid#/proc/} --capture $BACK_END --accesses probe --format json -o \"$REPORT\" \
                2>\"$OUT.err\" 3>&- &
            avtrace=$!
            until grep -q 'attached to' \"$OUT.err\"; do kill -0 $avtrace || exit 1; done
            printf t >&3; until grep -q 't done' \"$OUT\"; do :; done
            kill -INT $avtrace; wait $avtrace; status=$?
            printf q >&3; until grep -q 'q' \"$OUT\" || ! kill -0 ${pid#/proc/} 2>/dev/null; do :; done
            exit $status";
        let layers = [&["unshare"][..], layers].concat().join(" ");
        let layers = if layers == "unshare" { String::new() } else { layers };
        let mut shell = command("unshare", &OWN, &[]);
        shell.args(["bash", "-c", script]).env("LAYERS", layers).env("AVTRACE", avtrace());
        shell.env("BACK_END", back_end);
        shell.env("PROGRAM", &program.path).env("FIFO", &fifo).env("OUT", &out);
        let ended = run(shell.env("REPORT", &report));
        let said = fs::read_to_string(out.with_extension("err")).unwrap_or_default();
        assert_eq!(ended.code, Some(66), "{}{said}", ended.stderr);
        check_transfer(&Report::parse(&fs::read_to_string(&report).expect("a report")));
    }
}

#[test]
fn a_process_in_another_root_is_attached_to() {
    require_namespaces!();
    let service_of = |wrapper: &'static [&'static str]| {
        let musl = c_by("musl-gcc", "service", &["-g", "-O2"]);
        Service::start_by(&musl, "service", |root, _, _| {
            fs::create_dir(root.join("lib")).expect("a folder");
            let linker = "lib/ld-musl-x86_64.so.1";
            install(&Path::new("/").join(linker), &root.join(linker), 0o755);
            let mut command = Command::new(wrapper[0]);
            command.args(&wrapper[1..]).arg(root).args(["/service", "/commands"]);
            command
        })
    };
    // In the mount namespace of the test, whose names of files begin with the folder, and in one of its own.
    for wrapper in [&["chroot"][..], &["unshare", "--mount", "chroot"]] {
        for report in check(service_of(wrapper)) {
            let notes = report.not_seen["notes"].to_string();
            assert!(!notes.contains("libraries that are loaded later"), "{notes}");
        }
    }
}

#[test]
fn a_program_runs_in_another_root() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let folder = folder();
    other_root(folder.path(), "bank");
    let (ended, reports) = Avtrace::on_path("chroot")
        .seeing_memory()
        .options(["--overhead", "1000000"])
        .arguments([folder.path(), Path::new("/bank")])
        .reports();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    let [_, bank] = &reports[..] else { panic!("two programs: {reports:#?}") };
    check_transfer(bank);
}

#[test]
fn a_removed_program_is_attached_to() {
    require_namespaces!();
    // The name may lead to another file meanwhile.
    for with in [None, Some("/bin/true")] {
        let service = Service::start_by(&service(), "service", |_, program, fifo| {
            command("env", &[], &[program, fifo])
        });
        let program = service.folder().join("service");
        fs::remove_file(&program).expect("it goes");
        if let Some(other) = with {
            install(Path::new(other), &program, 0o755);
        }
        check(service);
    }
}

#[test]
fn a_library_whose_file_is_removed_keeps_its_probes() {
    require_bpf!();
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let library = c("plugin", &["-g", "-shared", "-fPIC", "-O2", "-DMARKED"]);
    install(&library.path, &at("libone.so"), 0o755);
    install(&library.path, &at("libtwo.so"), 0o755);
    // It goes after it was loaded, and before the next one is.
    let source = at("removes.c");
    let code = "#include <stdlib.h>\n#include <unistd.h>\nint run(int fixed);\nint run(int fixed)\n{\n    return \
                fixed + unlink(getenv(\"REMOVED\"));\n}\n";
    fs::write(&source, code).expect("a file");
    install(&c_file(&source, &["-shared", "-fPIC"]).path, &at("removes.so"), 0o755);
    let one = format!("+{}", at("libone.so").display());
    let [removes, two] = ["removes.so", "libtwo.so"].map(|name| at(name).display().to_string());
    let (ended, report) = Avtrace::on(&c("host", &["-g", "-O2"]))
        .environment("REMOVED", &one[1..])
        .arguments([&one, &removes, &two, &one])
        .report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let balances: Vec<_> =
        ended.stdout.lines().filter_map(|line| line.strip_prefix("balance: ")).collect();
    assert_eq!(balances, ["10", "0", "10", "20"], "{}", ended.stderr);
    assert!(!at("libone.so").exists());
    let occurrences = report.violations.iter().map(|violation| violation.occurrences);
    assert_eq!(occurrences.sum::<u64>(), 3, "{report:#?}");
    assert_eq!(report.not_seen["notes"].to_string(), "[]");
    let skipped = report.not_seen["skipped_probes"].to_string();
    assert!(!skipped.contains("No such file"), "nothing is attached once more: {skipped}");
}

#[test]
fn a_child_in_another_pid_namespace_is_followed_or_said_not_to_be() {
    require_namespaces!();
    let bank = c("bank", &["-g", "-O2"]);
    let (ended, reports) = Avtrace::on_path("unshare")
        .options(["--follow-forks"])
        .arguments(OWN)
        .arguments([&bank.path])
        .reports();
    assert_eq!(ended.stdout, "balance: 900\n", "{}", ended.stderr);
    if captures_inline() {
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        let bank = reports.iter().find(|report| !report.violations.is_empty()).expect("the bank");
        check_transfer(bank);
        return;
    }
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let [unshare] = &reports[..] else { panic!("one report: {reports:#?}") };
    assert_eq!(unshare.not_seen["unfollowed_processes"].as_array().map(Vec::len), Some(1));
    let ended = Avtrace::on_path("unshare")
        .options(["--follow-forks"])
        .arguments(OWN)
        .arguments(["true"])
        .run();
    assert!(ended.stderr.contains("`--capture inline` also those in a PID"), "{}", ended.stderr);
}
