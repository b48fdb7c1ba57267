//! Threads, locks and processes over their lives: locks taken twice or not got, many threads, children, and the
//! end of avtrace itself.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection};
use tests::process::child_of;
use tests::tracer::captures_inline;
use tests::{Avtrace, Program, c, machine, process, require_bpf, runs};

#[test]
fn an_inner_unlock_is_no_release_and_a_failed_try_no_acquire() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let (ended, report) = Avtrace::on(&c("recursive", &["-g", level])).report();
        let expected = "trylock: busy\ntimedlock: timed out\nclocklock: timed out\n";
        assert_eq!((ended.code, &*ended.stdout), (Some(0), expected), "{}", ended.stderr);
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert!(report.counts.dependencies > 0, "they met at `meeting`");
    }
}

#[test]
fn an_outer_unlock_is_a_release_and_a_try_that_succeeds_an_acquire() {
    require_bpf!();
    let program = c("recursive", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program).arguments(["split"]).report();
    assert_eq!(ended.stdout, "trylock: got\ntimedlock: got\nclocklock: got\n");
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let violation = &report.violations[0];
    assert_eq!(violation.cycle(), ["owner", "prober", "owner"]);
    let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
    assert_eq!((there.name(), back.name()), ("recursive", "recursive"));
    let line = |place: &Option<tests::Location>| place.as_ref().and_then(|place| place.line);
    assert_eq!(line(&there.source), Some(program.line("owner_unlock")));
    assert_eq!(line(&there.sink), Some(program.line("prober_trylock")));
    assert_eq!(line(&back.sink), Some(program.line("owner_relock")));
}

#[test]
fn threads_come_and_go() {
    require_bpf!();
    let (ended, report) = Avtrace::on(&c("many_threads", &["-g", "-O2"])).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "count: 200\n"), "{}", ended.stderr);
    assert_eq!((report.counts.threads, report.counts.lost_events), (201, 0));
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 200);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

#[test]
fn an_identity_that_is_used_again_is_another_thread() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let (ended, report) = Avtrace::on(&c("reused_identity", &["-g", level])).report();
        assert_eq!(ended.stdout, "the same identity\n", "{}", ended.stderr);
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        assert_eq!(report.only_violation().cycle(), ["owner", "intruder", "owner"]);
        assert_eq!(
            report.not_seen["notes"].as_array().map(Vec::len),
            Some(0),
            "every join is known"
        );
    }
}

#[test]
fn a_region_that_is_left_by_longjmp_has_ended() {
    require_bpf!();
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-O2"],
        &["-g", "-O2", "-static"],
        &["-g", "-O2", "-D_FORTIFY_SOURCE=2"],
    ] {
        let program = c("jumps", flags);
        let (ended, report) = Avtrace::on(&program).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "jumped\n"), "{}", ended.stderr);
        assert!(report.violations.is_empty(), "{flags:?}: {:#?}", report.violations);
        let notes = report.not_seen["notes"].to_string();
        assert!(notes.contains("taken to end at a `longjmp`"), "{flags:?}: {notes}");

        let (ended, report) = Avtrace::on(&program).arguments(["returns"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "returned\n"), "{}", ended.stderr);
        assert_eq!(report.only_violation().region, "left");
    }
}

#[test]
fn a_child_process_is_another_one() {
    require_bpf!();
    let (ended, report) = Avtrace::on(&c("fork_exec", &["-g", "-O2"])).report();
    let expected = "child\nparent: the child's status was 0\n";
    assert_eq!((ended.code, &*ended.stdout), (Some(0), expected), "{}", ended.stderr);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert_eq!(report.counts.threads, 1, "the parent's");
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 1);
}

#[test]
fn a_program_that_replaces_itself_is_followed_to_its_end() {
    require_bpf!();
    let (ended, reports) =
        Avtrace::on_path("sh").arguments(["-c", "exec sh -c 'exit 5'"]).reports();
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    let [first, second] = &reports[..] else { panic!("two reports: {reports:#?}") };
    assert_eq!((first.subject.program, first.subject.replaced), (1, true));
    assert_eq!((first.subject.exit_code, first.subject.signal), (None, None));
    assert_eq!((second.subject.program, second.subject.replaced), (2, false));
    assert_eq!((second.subject.exit_code, second.subject.pid), (Some(5), first.subject.pid));
    assert_eq!(second.subject.argv, ["sh", "-c", "exit 5"]);
    for report in &reports {
        assert_eq!(report.not_seen["notes"].as_array().map(Vec::len), Some(0), "{report:#?}");
    }
}

#[test]
fn a_program_without_regions_has_nothing_to_check() {
    require_bpf!();
    let program = c("identity", &["-g", "-O2"]);
    let ended = Avtrace::on(&program).run();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("no region"), "{}", ended.stderr);
    assert!(ended.stderr.contains("AVTRACE_BEGIN"), "the remedy: {}", ended.stderr);
}

#[test]
fn killing_avtrace_leaves_the_program_alone() {
    require_bpf!();
    let program = c("long_run", &["-g", "-O2"]);
    let nop = begin_marker(&program);
    // For so long that the program outlives its probes: that all of them are gone takes the kernel a while.
    let mut running = Avtrace::on(&program).arguments(["8"]).start();
    running.await_stdout("ready");
    let tracee = child_of(running.pid(), &program.path).expect("the program runs");
    let probe = if captures_inline() { 0xe9 } else { 0xcc };
    assert_eq!(code_byte(tracee, &program.path, nop), Some(probe), "a jump, or a breakpoint");

    running.signal("KILL");
    running.await_end(|_| {});
    // A jump stays, to code that makes no records.
    if !captures_inline() {
        running.await_that("the probes are gone", |_| {
            code_byte(tracee, &program.path, nop).is_none_or(|byte| byte == 0x90)
        });
        assert_eq!(
            code_byte(tracee, &program.path, nop),
            Some(0x90),
            "gone, and the program still runs"
        );
    }
    check_no_link(&program.path);
    assert_eq!(running.await_closed_stdout(), "ready\ndone\n", "its normal end");
}

#[test]
fn a_kill_while_it_detaches_leaves_no_breakpoint_behind() {
    require_bpf!();
    let program = c("outlived", &["-g", "-O2"]);
    for _ in 0..runs(3) {
        let known = leaking_threads().len();
        let mut running = Avtrace::on(&program).start();
        let mut threads = Vec::new();
        // It detaches in threads of this name, for some hundredths of a second.
        running.await_that("it detaches", |pid| {
            let is_over = Instant::now() + Duration::from_millis(200);
            while Instant::now() < is_over {
                threads = threads_of(pid);
                let is_there = |(_, name): &(u32, String)| name.starts_with("avtrace-detach");
                // One that has ended has no memory.
                let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
                if maps.is_empty() || threads.iter().any(is_there) {
                    return true;
                }
            }
            false
        });
        running.signal("KILL");
        running.await_end(|_| {});
        let child = running.await_closed_stdout();
        // Whoever goes on with it has to end first.
        running.await_that("nobody detaches any more", |_| {
            let detaching = processes_called("avtrace-detach");
            threads.extend(detaching.iter().map(|&process| (process, String::new())));
            detaching.is_empty()
        });
        let leaked = leaking_threads();
        let ours = leaked
            .iter()
            .skip(known)
            .filter(|leaking| threads.iter().any(|(thread, _)| thread == *leaking));
        assert_eq!(ours.count(), 0, "breakpoints that the kernel could not remove");
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -KILL \"$1\"", "sh", child.trim()]);
        assert_eq!(process::run(&mut kill).code, Some(0), "the child that was left behind");
    }
}

/// The threads of a process, with their names.
fn threads_of(pid: u32) -> Vec<(u32, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, name))
        })
        .collect()
}

/// The processes whose names begin so.
fn processes_called(name: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let comm = fs::read_to_string(process.path().join("comm")).ok()?;
            comm.starts_with(name).then_some(pid)
        })
        .collect()
}

/// The threads for which the kernel could not remove a breakpoint, as its log names them
/// (`kernel/events/uprobes.c`, `uprobe_warn`).
fn leaking_threads() -> Vec<u32> {
    let log = process::run(&mut Command::new("dmesg")).stdout;
    let thread = |line: &str| {
        let (before, _) = line.split_once(" failed to unregister, leaking uprobe")?;
        before.rsplit_once(':')?.1.parse().ok()
    };
    log.lines().filter_map(thread).collect()
}

#[test]
fn a_crash_loses_nothing_that_was_found() {
    require_bpf!();
    let program = c("crashes", &["-g", "-O1"]);
    for _ in 0..runs(3) {
        let (ended, report) = Avtrace::on(&program).report();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        assert_eq!((report.subject.exit_code, report.subject.signal), (None, Some(11)));
        assert_eq!(report.counts.lost_events, 0);
        assert_eq!(report.only_violation().cycle(), ["transfer", "audit", "transfer"]);
    }
    let ended = Avtrace::on(&program).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let summary = ended.stderr.lines().last().expect("a summary");
    assert!(summary.starts_with("avtrace: 1 possible defect;"), "{summary}");
    assert!(summary.ends_with("; the program was killed by SIGSEGV"), "{summary}");
    assert!(ended.stderr.contains(" in `transfer`, by `audit`"), "{}", ended.stderr);
}

#[test]
fn a_run_leaves_no_link_behind() {
    require_bpf!();
    let program = c("bank", &["-g", "-O1"]);
    assert_eq!(Avtrace::on(&program).run().code, Some(66));
    check_no_link(&program.path);
}

/// The link-time address of the program's first region begin.
fn begin_marker(program: &Program) -> u64 {
    let data = fs::read(&program.path).expect("the program");
    let file = object::File::parse(&*data).expect("an ELF file");
    let notes = file.section_by_name(".note.stapsdt").expect("markers").data().expect("its data");
    let text = b"avtrace_begin\0";
    let provider = notes.windows(text.len()).position(|at| at == text).expect("a region begin");
    // Before the provider stand three addresses: of the marker, of the base section, of no semaphore.
    let address = notes[provider - 24..][..8].try_into().expect("eight bytes");
    u64::from_le_bytes(address)
}

/// The byte of code that a running program has at this link-time address; `None` when it is gone.
fn code_byte(pid: u32, program: &Path, address: u64) -> Option<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let first = maps.lines().find(|line| line.ends_with(program.to_str().expect("text")))?;
    let start = u64::from_str_radix(first.split('-').next()?, 16).ok()?;
    let mut byte = [0];
    // The program is position-independent: linked at 0 and loaded at its first mapping.
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut byte, start + address).ok()?;
    Some(byte[0])
}

/// Checks that the kernel has no BPF link on this program, where there is a tool to ask it.
fn check_no_link(program: &Path) {
    if !machine::have("bpftool") {
        eprintln!("not checked: bpftool is not installed");
        return;
    }
    let ended =
        process::run(std::process::Command::new("bpftool").args(["--json", "link", "show"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stdout.contains(program.to_str().expect("text")), "{}", ended.stdout);
}

#[test]
fn a_forged_record_is_counted_and_holds_up_nothing() {
    let (ended, report) = Avtrace::on(&c("forged", &["-g", "-O1"])).capturing("inline").report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "end\n"), "{}", ended.stderr);
    let limitations = report.not_seen["limitations"].to_string();
    assert!(limitations.contains("1 record could not be decoded"), "{limitations}");
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// Has programs write anything to the memory of their probes, and checks that avtrace comes to its end with a report.
fn scribble(seeds: std::ops::Range<u32>) {
    let program = c("scribbles", &["-g", "-O1"]);
    for seed in seeds {
        let folder = tests::folder();
        let file = folder.path().join("report.json");
        let seed = seed.to_string();
        let running = Avtrace::on(&program)
            .capturing("inline")
            .options(["--format", "json", "-o"])
            .options([&file])
            .arguments([&seed])
            .start();
        let ended = running.wait();
        assert!(!ended.stderr.contains("panicked"), "{seed}: {ended:#?}");
        let report = fs::read_to_string(&file).expect("a report");
        let report = tests::Report::parse(&report);
        // avtrace ends as the program has ended.
        let is_own =
            ended.signal == report.subject.signal && !matches!(ended.code, Some(1..=2 | 101));
        assert!(is_own && report.counts.threads > 0, "{seed}: {ended:#?}");
    }
}

#[test]
fn a_program_that_writes_to_the_memory_of_probes_harms_itself_alone() {
    scribble(0..8);
}

#[test]
#[ignore = "takes minutes: run with --long"]
fn many_programs_that_write_to_the_memory_of_probes_harm_themselves_alone() {
    scribble(100..400);
}

#[test]
fn a_repeated_signal_ends_a_program_that_does_not_and_leaves_a_report() {
    require_bpf!();
    let folder = tests::folder();
    let file = folder.path().join("report.txt");
    let program = c("ignores_signals", &["-g", "-O1"]);
    let mut running = Avtrace::on(&program).options(["-o"]).options([&file]).start();
    running.await_stdout("ready\n");
    // One of each is the program's.
    for signal in ["INT", "TERM"] {
        running.signal(signal);
        running.await_stdout(&format!("{signal}\n"));
    }
    running.signal("TERM");
    let ended = running.wait();
    assert_eq!((ended.code, ended.signal), (None, Some(9)), "{}", ended.stderr);
    check_cut(&file);
}

#[test]
fn once_the_program_is_gone_a_signal_ends_the_checking() {
    require_bpf!();
    if !cfg!(debug_assertions) {
        return machine::skip("readers are made slow in debug builds only");
    }
    let folder = tests::folder();
    let file = folder.path().join("report.txt");
    let program = c("bank_fixed", &["-g", "-O1"]);
    // The checker gets no events for hours.
    let mut running = Avtrace::on(&program)
        .environment("AVTRACE_TEST_READER_DELAY_MS", "9999999")
        .options(["-o"])
        .options([&file])
        .start();
    let mut has_begun = false;
    running.await_that("the program has ended", |pid| {
        let runs = child_of(pid, &program.path).is_some();
        has_begun |= runs;
        has_begun && !runs
    });
    running.signal("TERM");
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    check_cut(&file);
}

#[test]
fn a_signal_before_the_program_starts_ends_both_at_once() {
    if !cfg!(debug_assertions) {
        return machine::skip("plans are made slow in debug builds only");
    }
    let program = c("bank_fixed", &["-g", "-O1"]);
    for signal in [2, 15] {
        // The plan is not ready for hours.
        let mut running = Avtrace::on(&program)
            .capturing("inline")
            .environment("AVTRACE_TEST_PLAN_DELAY_MS", "9999999")
            .start();
        let mut held = None;
        running.await_that("the program is held", |pid| {
            held = child_of(pid, &program.path);
            held.is_some()
        });
        running.signal(&signal.to_string());
        let ended = running.wait();
        assert_eq!((ended.code, ended.signal), (None, Some(signal)), "{}", ended.stderr);
        let process = format!("/proc/{}", held.expect("a process"));
        let start = Instant::now();
        while Path::new(&process).exists() {
            assert!(start.elapsed() < Duration::from_secs(10), "the program is left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn signals_end_a_report_that_nobody_reads() {
    let folder = tests::folder();
    let file = folder.path().join("report");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let program = c("bank_fixed", &["-g", "-O1"]);
    let mut running =
        Avtrace::on(&program).capturing("inline").options(["-o"]).options([&file]).start();
    // It is where `open` waits for the other end.
    running.await_that("the report waits for its reader", |pid| {
        let waits = fs::read_to_string(format!("/proc/{pid}/syscall"));
        waits.is_ok_and(|call| call.starts_with(&format!("{} ", nix::libc::SYS_openat)))
    });
    // Two of the same kind may arrive as one.
    running.signal("TERM");
    running.signal("INT");
    let ended = running.wait();
    assert_eq!((ended.code, ended.signal), (Some(1), None), "{}", ended.stderr);
    assert!(ended.stderr.contains("ended by repeated signals"), "{}", ended.stderr);
}

/// Checks that a report says that it is not on all.
#[track_caller]
fn check_cut(file: &Path) {
    let report = fs::read_to_string(file).expect("a report");
    assert!(report.contains("signals have ended the checking before"), "{report}");
}

#[test]
fn a_child_that_is_killed_at_its_entry_point_holds_nobody_up() {
    require_bpf!();
    let program = c("killed_at_entry", &["-g", "-O1"]);
    let options = ["--capture", "inline", "--accesses", "sync", "--follow-forks"];
    let mut command = Command::new(tests::tracer::avtrace());
    command.args(options).arg("--").arg(&program.path).arg("60");
    let ended = process::run(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "all have ended\n", "{}", ended.stderr);
}
