//! Code that is not only executed where it was loaded, under probes in the process: it is copied, compared, summed up,
//! generated, replaced or unmapped, or it must not be interrupted. The program does as without probes.

use std::time::{Duration, Instant};

use tests::process::child_of;
use tests::tracer::native;
use tests::{Avtrace, Report, c, require_bpf, runs};

/// Runs a kind of `code.c` alone and with probes, with the same outcome, and returns its output.
#[track_caller]
fn does_as_alone(kind: &str, flags: &[&str], options: &[&str]) -> String {
    let program = c("code", &[&["-g", "-O2"], flags].concat());
    let alone = native(&program.path, [kind], None);
    assert_eq!(alone.code, Some(0), "{kind}: {}", alone.stderr);
    for _ in 0..runs(1) {
        let run = Avtrace::on(&program).inline().options(options).arguments([kind]);
        let (ended, report) = run.report();
        let outcome = (ended.code, &ended.stdout);
        assert_eq!(outcome, (Some(0), &alone.stdout), "{kind} {flags:?}: {}", ended.stderr);
        assert_eq!(report.counts.lost_events, 0, "{kind}");
    }
    alone.stdout
}

#[test]
fn a_copy_of_code_with_probes_gets_its_own_code_again() {
    for flags in [&[][..], &["-no-pie"]] {
        assert_eq!(does_as_alone("copied", flags, &[]), "600\n");
    }
}

#[test]
fn copies_of_code_are_all_the_same() {
    assert_eq!(does_as_alone("compared", &[], &[]), "0 0\n");
}

/// A program that compares its code with its file notices probes, unless it is asked to be left alone.
#[test]
fn a_program_that_checks_its_code_can_be_left_alone() {
    assert_eq!(does_as_alone("summed", &[], &["--own-code", "leave"]), "whole\n");
    let program = c("code", &["-g", "-O2"]);
    let ended = Avtrace::on(&program).inline().arguments(["summed"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "changed\n"), "{}", ended.stderr);
}

#[test]
fn generated_code_has_no_probes() {
    does_as_alone("generated", &[], &[]);
}

#[test]
fn other_code_in_the_place_of_code_with_probes_is_executed() {
    assert_eq!(does_as_alone("replaced", &[], &[]), "1\n7\n");
}

/// A probe at a marker never writes below the stack pointer, in the process and in the kernel.
#[test]
fn markers_leave_alone_what_is_below_the_stack_pointer() {
    assert_eq!(does_as_alone("leaf", &[], &[]), "done\n");
    require_bpf!();
    let program = c("code", &["-g", "-O2"]);
    let ended = Avtrace::on(&program).capturing("kernel").arguments(["leaf"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{}", ended.stderr);
}

/// All begins and ends of marked regions are seen: a marker has room for a probe wherever it is.
#[test]
fn each_marker_has_an_inline_probe() {
    for level in ["-O0", "-O2"] {
        let program = c("code", &["-g", level]);
        let (ended, report) = Avtrace::on(&program).inline().arguments(["leaf"]).report();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let regions = report.counts.transactions - report.counts.unary_transactions;
        assert_eq!(regions, 2000, "{level}");
    }
}

/// A function is a region whatever its first instruction is. The kernel refuses a probe on some.
#[test]
fn a_region_may_begin_with_any_instruction() {
    let features = std::fs::read_to_string("/proc/cpuinfo").expect("/proc/cpuinfo");
    if !features.split_whitespace().any(|feature| feature == "avx") {
        println!("skipped: no AVX");
        return;
    }
    let program = c("first", &["-g", "-O2"]);
    let atomic = ["--atomic", "count", "--atomic", "copy"];
    let (ended, report) = Avtrace::on(&program).inline().options(atomic).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "1004\n"), "{}", ended.stderr);
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 2000);
    let skipped = &report.not_seen["skipped_probes"];
    assert!(!skipped.to_string().contains("\"region"), "{skipped}");
    require_bpf!();
    let (ended, report) = Avtrace::on(&program).capturing("kernel").options(atomic).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "1004\n"), "{}", ended.stderr);
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 0);
}

/// All code of a program gets probes on its accesses, but not the C library, though it is linked statically.
#[test]
fn the_c_library_in_a_program_is_none_of_its_own_code() {
    for level in [&["-g", "-O2"][..], &["-O2"]] {
        let build = |flags: &[&str]| c("bank", &[level, flags].concat());
        let probes = |program: &tests::Program| {
            let run = Avtrace::on(program).inline().seeing_memory().options(["--accesses", "auto"]);
            let (ended, report) = run.report();
            assert_eq!(ended.code, Some(66), "{}", ended.stderr);
            assert!(report.violations.iter().any(|found| found.region == "transfer"));
            report.summary["probes_emulated"].as_u64().expect("a number")
        };
        let (dynamic, linked) = (probes(&build(&[])), probes(&build(&["-static"])));
        println!("{dynamic} probes, {linked} where it is linked statically");
        assert!(linked < 500, "{dynamic}, {linked}");
    }
}

/// Counters of restartable sequences lose no increment, in the program and in a library that is loaded later.
#[test]
fn restartable_sequences_are_not_left() {
    let program = c("percpu", &["-g", "-O2"]);
    let library = c("percpu", &["-g", "-O2", "-DLIBRARY", "-shared", "-fPIC"]);
    let library = library.path.to_str().expect("a path");
    let name = library.rsplit('/').next().expect("a name");
    let of_library = format!("{name}!*");
    let probe = ["--accesses", "probe", "--probe", "*", "--probe", &of_library];
    for (options, arguments) in [
        (&probe[..4], &["40000"][..]),
        (&probe, &["40000", library]),
        (&["--atomic", "count_up"], &["40000"]),
    ] {
        let run = Avtrace::on(&program).inline().seeing_memory();
        let ended = run.options(options).arguments(arguments).run();
        assert_eq!(&*ended.stdout, "0 missing\n", "{options:?} {arguments:?}: {}", ended.stderr);
    }
}

/// Two libraries, one after the other at the same address: each has its own probes.
#[test]
fn libraries_at_the_same_address_have_their_own_probes() {
    let host = c("host", &["-g", "-O2"]);
    let library = |flags: &[&str]| {
        let common = ["-g", "-O2", "-shared", "-fPIC", "-DMARKED"];
        let built = c("plugin", &[&common, flags].concat());
        built.path.to_str().expect("a path").to_owned()
    };
    let (one, two) = (library(&[]), library(&["-DNAME=\"again\""]));
    let arguments = [&*one, &*two, &format!("{one}:fixed"), &*two];
    let alone = native(&host.path, arguments, None);
    assert!(alone.stdout.contains("same"), "{}", alone.stdout);
    let (ended, report) = Avtrace::on(&host).inline().arguments(arguments).report();
    assert_eq!((ended.code, &ended.stdout), (Some(66), &alone.stdout), "{}", ended.stderr);
    let mut regions: Vec<&str> =
        report.violations.iter().map(|violation| &*violation.region).collect();
    regions.sort_unstable();
    regions.dedup();
    assert_eq!(regions, ["again", "refill"]);
}

/// Time for which avtrace stands still: four threads fill their rings meanwhile.
const STANDS: Duration = Duration::from_secs(2);

/// Threads wait for a reader that stands still, and go on with it; every lost event is counted.
#[test]
fn a_reader_that_stands_still_loses_nothing_in_silence() {
    let program = c("lockloop", &["-g", "-O2"]);
    let folder = tests::folder();
    let file = folder.path().join("report.json");
    for _ in 0..runs(1) {
        let run = Avtrace::on(&program).inline().options(["--format", "json", "-o"]);
        // Four events a pair.
        let mut running = run.options([&file]).arguments(["4", "100000"]).start();
        let path = program.path.clone();
        running.await_that("the program runs its threads", |avtrace| {
            let tasks = child_of(avtrace, &path).map(|child| format!("/proc/{child}/task"));
            let tasks = tasks.and_then(|tasks| std::fs::read_dir(tasks).ok());
            tasks.is_some_and(|tasks| tasks.count() == 5)
        });
        running.signal("STOP");
        std::thread::sleep(STANDS);
        running.signal("CONT");
        let ended = running.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let report = Report::parse(&std::fs::read_to_string(&file).expect("a report"));
        let regions = report.counts.transactions - report.counts.unary_transactions;
        assert!(regions == 400_000 || report.counts.lost_events > 0, "{regions} without a loss");
    }
}

/// Threads that wait for a reader that stands still go on when it is killed, and the program comes to its normal end.
#[test]
fn a_reader_that_is_killed_where_it_stands_stops_nobody() {
    let program = c("outlives_tracer", &["-g", "-O2"]);
    let folder = tests::folder();
    for run in 0..runs(2) {
        let [started, done] = ["started", "done"].map(|name| folder.path().join(name));
        let files = [&started, &done];
        files.iter().for_each(|file| drop(std::fs::remove_file(file)));
        let mut running = Avtrace::on(&program).inline().arguments(files).start();
        running.await_that("the program runs", |_| started.exists());
        std::thread::sleep(Duration::from_millis(200));
        let child = child_of(running.pid(), &program.path).expect("the program");
        running.signal("STOP");
        std::thread::sleep(STANDS);
        running.signal("KILL");
        let killed = Instant::now();
        let stat = format!("/proc/{child}/stat");
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(killed.elapsed() < Duration::from_secs(60), "{child} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(std::fs::read_to_string(&done).ok().as_deref(), Some("0"), "run {run}");
    }
}

/// A probe may compute an address from a register that the program needs no more.
#[test]
fn addresses_are_computed_from_registers_that_the_program_needs_no_more() {
    let program = c("dead_register", &["-O1", "-pthread"]);
    for capture in ["inline", "kernel"] {
        if capture == "kernel" {
            require_bpf!();
        }
        let run = Avtrace::on(&program).capturing(capture).seeing_memory();
        let (ended, report) = run.options(["--accesses", "probe"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{}", ended.stderr);
        let limitations = report.not_seen["limitations"].as_array().expect("a list");
        let kinds: Vec<_> = limitations.iter().map(|one| &one["kind"]).collect();
        assert!(!kinds.iter().any(|kind| *kind == "impossible_accesses"), "{limitations:#?}");
        assert!(report.violations.is_empty(), "{report:#?}");
    }
}

/// avtrace has another address in each run, so that a program that maps memory at a fixed address does not meet it.
#[test]
fn memory_of_probes_is_elsewhere_in_each_run() {
    let program = c("fixed_address", &["-g", "-O1", "-pthread"]);
    let places = [(); 2].map(|()| {
        let ended = Avtrace::on(&program).inline().seeing_memory().run();
        assert_eq!(ended.code, Some(0), "{} {:?}", ended.stderr, ended.signal);
        let (place, rest) = ended.stdout.split_once('\n').expect("an address");
        assert_eq!(rest, "done\n");
        u64::from_str_radix(place, 16).expect("an address")
    });
    assert_ne!(places[0], places[1]);
}
