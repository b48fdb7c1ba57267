//! Overload: threads that only lock and unlock, and a slower reader. Lost events are counted and invent no findings;
//! with `--lossless` no event is lost.

use tests::{Avtrace, Report, c, machine, require_bpf};

/// Runs by default, and of the long tests.
const RUNS: (usize, usize) = (2, 50);

/// Variable by which the reader waits this number of milliseconds with each batch, in a debug build.
const DELAY: &str = "AVTRACE_TEST_READER_DELAY_MS";

/// Runs four threads with a slow reader.
fn overloaded(back_end: &str, options: &[&str], (delay, pairs): (u32, u32)) -> Report {
    let program = c("lockloop", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program)
        .capturing(back_end)
        .options(options)
        .environment(DELAY, &delay.to_string())
        .arguments(["4", &pairs.to_string()])
        .report();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    report
}

/// Returns whether avtrace was built with the delay.
fn can_be_slow() -> bool {
    if !cfg!(debug_assertions) {
        machine::skip("readers are made slow in debug builds only");
    }
    cfg!(debug_assertions)
}

/// Checks runs that lose events.
fn loses(back_end: &str, options: &[&str], load: (u32, u32), usual: usize) {
    for run in 0..tests::runs(usual) {
        let report = overloaded(back_end, options, load);
        let pairs = u64::from(load.1) * 4;
        assert!(report.violations.is_empty(), "run {run}: {:#?}", report.violations);
        let gaps = report.not_seen["gaps"].as_u64().expect("a number");
        assert!(report.counts.lost_events > 0 && gaps > 0, "run {run}: {:#}", report.not_seen);
        let all = report.counts.events + report.counts.lost_events;
        // A few records, of threads, are not events one to one.
        assert!(all.abs_diff(4 * pairs) < 50, "run {run}: {:?}", report.counts);
    }
}

/// More than the kernel's buffer of a MiB and the batches in flight take.
const KERNEL: (&[&str], (u32, u32)) = (&["--buffer", "1"], (40, 60_000));

/// More than the rings of four threads and the batches in flight take.
const INLINE: (&[&str], (u32, u32)) = (&["--drop"], (20, 100_000));

#[test]
fn the_kernel_side_counts_what_it_loses_and_makes_nothing_up() {
    require_bpf!();
    if can_be_slow() {
        loses("kernel", KERNEL.0, KERNEL.1, RUNS.0);
    }
}

#[test]
#[ignore = "takes minutes: run with --long"]
fn the_kernel_side_makes_nothing_up_in_many_runs() {
    require_bpf!();
    if can_be_slow() {
        loses("kernel", KERNEL.0, KERNEL.1, RUNS.1);
    }
}

#[test]
fn inline_probes_count_what_they_lose_and_make_nothing_up() {
    if can_be_slow() {
        loses("inline", INLINE.0, INLINE.1, RUNS.0);
    }
}

#[test]
#[ignore = "takes minutes: run with --long"]
fn inline_probes_make_nothing_up_in_many_runs() {
    if can_be_slow() {
        loses("inline", INLINE.0, INLINE.1, RUNS.1);
    }
}

#[test]
fn nothing_is_lost_where_threads_wait() {
    if !can_be_slow() {
        return;
    }
    let pairs = 100_000;
    let report = overloaded("inline", &["--lossless"], (2, pairs));
    assert_eq!(report.counts.lost_events, 0, "{:#}", report.not_seen);
    assert_eq!(report.not_seen["gaps"], 0, "{:#}", report.not_seen);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let regions = report.counts.transactions - report.counts.unary_transactions;
    assert_eq!(regions, 4 * u64::from(pairs));
    let capture = report.capture.expect("how it was captured");
    assert!(capture["waits"].as_u64().is_some_and(|waits| waits > 0), "{capture}");
}
