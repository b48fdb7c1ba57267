//! Programs that receive `SIGTRAP`, from avtrace or from elsewhere, and the report on it.

use tests::tracer::{captures_inline, native};
use tests::{Avtrace, Ended, Report, c, require_bpf};

/// Runs `copies.c` with this argument. `-O2` keeps the copied function free of addresses.
fn copies(what: &str) -> (Ended, Report) {
    Avtrace::on(&c("copies", &["-g", "-O2"])).arguments([what]).report()
}

/// A key of the report's section on the death.
fn trap<'report>(report: &'report Report, key: &str) -> &'report str {
    let trap = report.trap.as_ref().expect("the cause of death");
    trap[key].as_str().unwrap_or_default()
}

#[test]
fn a_copy_of_code_with_a_breakpoint_in_it_explains_a_death() {
    require_bpf!();
    let program = c("copies", &["-g", "-O2"]);
    assert_eq!(native(&program.path, ["copied"], None).code, Some(0), "it does not die alone");
    let (ended, report) = copies("copied");
    if captures_inline() {
        // The copy of a jump is found where it leads to, and gets the program's own code.
        assert_eq!((ended.code, report.trap), (Some(0), None), "{}", ended.stderr);
        return;
    }
    assert_eq!((ended.signal, report.subject.signal), (Some(5), Some(5)), "{}", ended.stderr);
    assert_eq!(trap(&report, "cause"), "copied_code");
    let message = trap(&report, "message");
    assert!(message.contains("deposit+") && message.contains("copies.c:"), "{message}");
    assert!(trap(&report, "help").contains("--own-code leave"));
    let text = Avtrace::on(&program).arguments(["copied"]).run().stderr;
    assert!(text.contains("warning: avtrace caused the death of the program by SIGTRAP"), "{text}");
    let summary = text.lines().last().expect("a summary");
    assert!(
        summary.ends_with("SIGTRAP: a breakpoint of avtrace in code that it had copied"),
        "{summary}"
    );
}

#[test]
fn signals_that_avtrace_has_caused_and_the_program_has_handled_are_counted() {
    require_bpf!();
    // The markers are instructions of one byte: the handler returns behind them.
    let (ended, report) = copies("handled");
    if captures_inline() {
        // Jumps cause no `SIGTRAP`.
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "0 signals\n2\n"), "{}", ended.stderr);
        return;
    }
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "2 signals\n2\n"), "{}", ended.stderr);
    assert!(report.trap.is_none());
    let notes = report.not_seen["notes"].to_string();
    assert!(notes.contains("handled 2 SIGTRAPs"), "{notes}");
}

#[test]
fn a_programs_own_sigtrap_is_its_own() {
    require_bpf!();
    for (what, cause, text) in [
        ("own", "program", "a breakpoint instruction of its own at main+"),
        ("icebp", "program", "a breakpoint instruction of its own at main+"),
        ("raised", "program", "which it has raised itself"),
        ("sent", "program", "has sent"),
        if captures_inline() {
            // No breakpoint is avtrace's.
            ("generated", "program", "a breakpoint instruction of its own at")
        } else {
            ("generated", "breakpoint", "either the program has made it itself")
        },
    ] {
        let (ended, report) = copies(what);
        assert_eq!(ended.signal, Some(5), "{what}: {}", ended.stderr);
        assert_eq!(trap(&report, "cause"), cause, "{what}: {:?}", report.trap);
        assert!(trap(&report, "message").contains(text), "{what}: {:?}", report.trap);
    }
}

#[test]
fn code_that_is_moved_is_left_alone() {
    require_bpf!();
    // The moved page is the only one with markers.
    let program = c("remaps", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "2\n"), "{}", ended.stderr);
    let skipped = report.not_seen["skipped_probes"].to_string();
    assert!(skipped.contains("everything in remaps"), "{skipped}");
    assert!(skipped.contains("MapStaticCodeToLargePages"), "{skipped}");
    // Who wants probes there gets them, and what comes of that is explained.
    for options in [["--own-code", "probe"], ["--atomic", "deposit"]] {
        let (ended, report) = Avtrace::on(&program).options(options).report();
        if captures_inline() {
            // The code is moved with the jumps, which lead to the same places.
            assert_eq!((ended.code, &*ended.stdout), (Some(0), "2\n"), "{}", ended.stderr);
            continue;
        }
        assert_eq!((ended.signal, &*ended.stdout), (Some(5), ""), "{}", ended.stderr);
        assert_eq!(trap(&report, "cause"), "remapped_code");
        assert!(trap(&report, "location").starts_with("deposit+"), "{:?}", report.trap);
        let notes = report.not_seen["notes"].to_string();
        assert!(notes.contains("breakpoints in it kill the program"), "{notes}");
    }
}

#[test]
fn a_programs_own_code_is_left_alone_when_asked() {
    require_bpf!();
    let program = c("copies", &["-g", "-O2"]);
    let run = |options: &[&str]| {
        Avtrace::on(&program)
            .options(["--own-code", "leave"])
            .options(options)
            .arguments(["copied"])
    };
    for options in [&[][..], &["--not-atomic", "no_such_function"]] {
        let (ended, report) = run(options).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "2\n"), "{}", ended.stderr);
        assert!(report.trap.is_none());
        let skipped = report.not_seen["skipped_probes"].to_string();
        assert!(skipped.contains("everything in copies"), "{skipped}");
        assert!(report.counts.events > 0, "the C library's locks are seen");
    }
    let refused = run(&["--atomic", "deposit"]).run();
    assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("name functions of the program itself"), "{}", refused.stderr);
}
