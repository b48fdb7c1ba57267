//! Many events: none lost, and memory that does not grow with them.

use std::fs;
use std::sync::Mutex;

use tests::{Avtrace, c, require_bpf};

/// These runs take the machine for themselves.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_million_lock_operations_lose_no_event() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let pairs_each = 250_000;
    let (ended, report) = Avtrace::on(&program).arguments(["2", &pairs_each.to_string()]).report();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{:#}", report.not_seen);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let regions = 2 * pairs_each;
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, regions);
    assert!(
        report.counts.events >= 4 * regions,
        "begin, acquire, release, end: {:?}",
        report.counts
    );
}

#[test]
fn operations_outside_regions_are_counted_too() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program).arguments(["2", "50000", "bare"]).report();
    assert_eq!((ended.code, report.counts.lost_events), (Some(0), 0), "{}", ended.stderr);
    assert!(report.counts.events >= 200_000, "{:?}", report.counts);
    assert_eq!(report.counts.transactions, report.counts.unary_transactions);
}

#[test]
fn memory_stays_flat() {
    require_bpf!();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = c("lockloop", &["-g", "-O2"]);
    let peak = |pairs: u64| {
        let mut running = Avtrace::on(&program).arguments(["2", &pairs.to_string()]).start();
        let mut peak = 0;
        let status = running.await_end(|pid| peak = peak.max(resident_kib(pid).unwrap_or(0)));
        assert_eq!(status.code(), Some(0), "{}", running.stderr());
        assert!(peak > 0, "its memory was seen");
        peak
    };
    let (tenth, whole) = (peak(25_000), peak(250_000));
    eprintln!("peak resident memory: {tenth} KiB at a tenth, {whole} KiB at the whole");
    assert!(whole < tenth + tenth / 4 + 4096, "{tenth} KiB, then {whole} KiB");
}

/// The highest resident memory of a process so far, in KiB; `None` when it has ended.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}
