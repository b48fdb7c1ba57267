//! A program under avtrace behaves as it does alone: input, output, arguments, descriptors, exit status, signals.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use tests::process::{TIME_LIMIT, child_of, run};
use tests::tracer::{avtrace, avtrace_with, native, native_as_traced};
use tests::{Avtrace, Running, c, machine, require_bpf};

#[test]
fn a_filter_filters() {
    require_bpf!();
    let input: String =
        (0..100_000).map(|number| format!("{}\n", number * 7919 % 100_003)).collect();
    let alone = native("sort", ["-n"], Some(input.clone().into()));
    let traced = Avtrace::on_path("sort").arguments(["-n"]).input(input).run();
    assert_eq!((traced.code, alone.code), (Some(0), Some(0)), "{}", traced.stderr);
    assert!(traced.stdout == alone.stdout, "the same output");
}

#[test]
fn no_input_is_no_input() {
    require_bpf!();
    let traced = Avtrace::on_path("sort").run();
    assert_eq!((traced.code, &*traced.stdout), (Some(0), ""), "{}", traced.stderr);
}

#[test]
fn an_exit_status_is_passed_on() {
    require_bpf!();
    assert_eq!(Avtrace::on_path("true").run().code, Some(0));
    assert_eq!(Avtrace::on_path("false").run().code, Some(1));
    assert_eq!(Avtrace::on_path("sh").arguments(["-c", "exit 42"]).run().code, Some(42));
}

#[test]
fn an_abort_is_passed_on() {
    require_bpf!();
    let program = c("aborts", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program).report();
    assert_eq!((ended.signal, &*ended.stdout), (Some(6), "before the abort\n"), "{}", ended.stderr);
    assert_eq!((report.subject.exit_code, report.subject.signal), (None, Some(6)));
    assert!(report.violations.is_empty(), "a region without an end is no violation");
}

#[test]
fn an_interrupt_reaches_the_program_and_the_report_is_written() {
    require_bpf!();
    let program = c("interrupted", &["-g", "-O2"]);
    let mut running = Avtrace::on(&program).start();
    running.await_stdout("ready");
    running.signal_group("INT");
    let ended = running.wait();
    assert_eq!((ended.code, &*ended.stdout), (Some(5), "ready\ninterrupted\n"), "{}", ended.stderr);
    let summary = ended.stderr.lines().last().expect("a report");
    assert!(summary.contains("no violation"), "{summary}");
}

#[test]
fn an_interrupt_that_kills_the_program_is_passed_on() {
    require_bpf!();
    let program = c("interrupted", &["-g", "-O2"]);
    let mut running = Avtrace::on(&program).arguments(["dies"]).start();
    running.await_stdout("ready");
    running.signal_group("INT");
    let ended = running.wait();
    assert_eq!((ended.signal, &*ended.stdout), (Some(2), "ready\n"), "{}", ended.stderr);
    let summary = ended.stderr.lines().last().expect("a report");
    assert!(summary.contains("no violation"), "{summary}");
}

#[test]
fn signals_without_a_name_are_passed_on() {
    require_bpf!();
    let script = "kill -s 37 $$";
    assert_eq!(native("sh", ["-c", script], None).signal, Some(37), "a real-time signal");
    let (ended, report) = Avtrace::on_path("sh").arguments(["-c", script]).report();
    assert_eq!(ended.signal, Some(37), "{}", ended.stderr);
    assert_eq!((report.subject.exit_code, report.subject.signal), (None, Some(37)));
}

#[test]
fn signals_to_avtrace_reach_the_program() {
    require_bpf!();
    for signal in ["TERM", "HUP", "USR1", "USR2", "INT", "QUIT"] {
        // The child comes before the trap, and the signal is one that it cannot catch: the shell's copy takes note of a
        // signal that has a trap, and forgets it when it becomes `sleep`.
        let script = format!(
            "sleep 1000 & trap 'kill -s KILL $!; echo got {signal}; exit 3' {signal}; \
             echo ready; wait"
        );
        let mut running = Avtrace::on_path("sh").arguments(["-c", &script]).start();
        running.await_stdout("ready");
        running.signal(signal);
        let ended = running.wait();
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert_eq!(ended.stdout, format!("ready\ngot {signal}\n"));
    }
}

#[test]
fn what_a_process_sends_to_avtrace_alone_is_received_once() {
    require_bpf!();
    let program = c("counts_interrupts", &["-g", "-O2"]);
    for signal in ["INT", "QUIT"] {
        let mut running = Avtrace::on(&program).start();
        running.await_stdout("ready");
        running.signal(signal);
        running.await_stdout("interrupted");
        // It is passed on after all that came before.
        running.signal("TERM");
        let ended = running.wait();
        assert_eq!(ended.code, Some(11), "{signal}: {}", ended.stderr);
    }
}

#[test]
fn what_is_typed_is_received_once() {
    require_bpf!();
    let program = c("counts_interrupts", &["-g", "-O2"]);
    let folder = tests::folder();
    let typed = folder.path().join("typed");
    assert_eq!(run(Command::new("mkfifo").arg(&typed)).code, Some(0));
    // In the terminal's process group, and in a new one.
    for how in ["with", "apart"] {
        let (tracer, program) = (avtrace(), program.path.display());
        let capture = tests::capture::options().join(" ");
        let tracer_path = tracer.display();
        let command = format!("exec {tracer_path} {capture} --accesses sync -- {program} {how}");
        // Both ends: that it opens must not wait for who types.
        let mut script = Command::new("sh");
        script.args(["-c", "exec script -qec \"$1\" /dev/null <>\"$2\"", "sh", &command]);
        script.arg(&typed);
        let mut running = Running::start(&mut script, None, TIME_LIMIT);
        running.await_stdout("ready");
        fs::write(&typed, b"\x03").expect("a pipe");
        running.await_stdout("interrupted");
        let traces = child_of(running.pid(), tracer).expect("avtrace");
        let terminated =
            run(Command::new("sh").args(["-c", "kill \"$1\"", "sh"]).arg(traces.to_string()));
        assert_eq!(terminated.code, Some(0), "{}", terminated.stderr);
        let ended = running.wait();
        assert_eq!(ended.code, Some(11), "{how}: {}", ended.stdout);
    }
}

#[test]
fn a_kill_at_any_time_is_the_programs_end() {
    require_bpf!();
    let program = c("long_run", &["-g", "-O2"]);
    // First while it is held at its entry point, or as near to that as can be hit; then while it runs.
    for is_ready in [false, true] {
        let mut running = Avtrace::on(&program).arguments(["1000"]).start();
        if is_ready {
            running.await_stdout("ready");
        }
        running.await_that("the program is there", |pid| child_of(pid, &program.path).is_some());
        let tracee = child_of(running.pid(), &program.path).expect("the program");
        let killed =
            run(Command::new("sh").args(["-c", "kill -KILL \"$1\"", "sh"]).arg(tracee.to_string()));
        assert_eq!(killed.code, Some(0), "{}", killed.stderr);
        let ended = running.wait();
        assert_eq!(ended.signal, Some(9), "{}", ended.stderr);
        assert!(!ended.stderr.contains("error"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("do not trust"), "{}", ended.stderr);
    }
}

#[test]
fn nobody_reads_the_report() {
    require_bpf!();
    let status = |program: &str| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Avtrace::on_path(program).command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
        command.status().expect("avtrace runs").code()
    };
    assert_eq!(status("./no/such/program"), Some(127), "and no panic");
    assert_eq!(status("true"), Some(1), "the report was not written");
}

#[test]
fn a_closed_pipe_ends_the_program() {
    require_bpf!();
    let mut child = Avtrace::on_path("yes")
        .command()
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("avtrace runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "y\n");
    let status = child.wait().expect("its end");
    assert_eq!((status.code(), status.signal()), (None, Some(13)), "SIGPIPE");
}

#[test]
fn arguments_after_the_program_are_its_own() {
    require_bpf!();
    let script = "printf '<%s>' \"$0\" \"$@\"";
    let expected = "<--watch><--><-o><a b><>";
    for separator in [&["--"][..], &[]] {
        let arguments =
            [separator, &["sh", "-c", script, "--watch", "--", "-o", "a b", ""]].concat();
        let ended = avtrace_with(arguments);
        assert_eq!((ended.code, &*ended.stdout), (Some(0), expected), "{}", ended.stderr);
    }
    let ended = avtrace_with(["run", "sh", "-c", script, "--watch", "--", "-o", "a b", ""]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), expected), "{}", ended.stderr);
}

#[test]
fn the_surroundings_are_the_same() {
    require_bpf!();
    // Descriptors, directory, environment (its names: values are nobody's business in a log), signals that are
    // blocked or ignored, privileges, limits.
    let script = "ls /proc/self/fd; pwd; env | cut -d= -f1 | grep -vx _ | sort; echo \"$PATH\" | cksum; \
                  grep -E '^(SigBlk|SigIgn|SigCgt|Uid|Gid|Groups|Cap|NoNewPrivs)' /proc/self/status; \
                  ulimit -a; umask";
    let alone = native_as_traced("sh", ["-c", script]);
    let traced = Avtrace::on_path("sh").arguments(["-c", script]).run();
    assert_eq!(traced.code, Some(0), "{}", traced.stderr);
    assert_eq!(traced.stdout, alone.stdout);
}

#[test]
fn standard_error_of_the_program_comes_through() {
    require_bpf!();
    let folder = tests::folder();
    let file = folder.path().join("report.txt");
    let ended = Avtrace::on_path("sh")
        .options(["-o"])
        .options([&file])
        .arguments(["-c", "echo out; echo err >&2"])
        .run();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("out\n", "err\n"));
}

#[test]
fn under_sudo_the_program_runs_as_the_user_who_called() {
    require_bpf!();
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let as_user = |options: &[&str]| {
        let ended = Avtrace::on_path("sh")
            .options(options)
            .environment("SUDO_UID", "65534")
            .environment("SUDO_GID", "65534")
            .environment("SUDO_USER", "nobody")
            .arguments(["-c", "id -u; id -g; grep CapEff /proc/self/status"])
            .run();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    assert_eq!(as_user(&[]), "65534\n65534\nCapEff:\t0000000000000000\n");
    assert!(as_user(&["--as-root"]).starts_with("0\n0\n"));
}
