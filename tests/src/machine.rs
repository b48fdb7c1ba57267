//! Abilities of the machine, and skipping of tests that need others. No program is run here.

use std::fs;
use std::path::Path;

use crate::capture::captures_as_nobody;

/// Leaves the test, with the reason printed, where avtrace cannot trace; fails it where `CI` is `true`.
#[macro_export]
macro_rules! require_bpf {
    () => {
        if let Err(reason) = $crate::machine::can_trace() {
            $crate::machine::skip(&reason);
            return;
        }
    };
}

/// Checks that this process may load BPF programs and attach uprobes.
///
/// # Errors
/// The reason why it may not.
pub fn can_trace() -> Result<(), String> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    const CAP_BPF: u64 = 1 << 39;

    for (path, what) in [
        ("/proc/sys/kernel/unprivileged_bpf_disabled", "the kernel has no BPF"),
        ("/sys/bus/event_source/devices/uprobe", "the kernel has no uprobes"),
        ("/sys/bus/event_source/devices/breakpoint", "the kernel has no hardware watchpoints"),
    ] {
        if !Path::new(path).exists() {
            return Err(format!("{what} ({path} does not exist)"));
        }
    }
    let capabilities = capabilities();
    if capabilities & CAP_SYS_ADMIN == 0
        && capabilities & (CAP_BPF | CAP_PERFMON) != CAP_BPF | CAP_PERFMON
    {
        return Err("not root: neither CAP_SYS_ADMIN nor CAP_BPF and CAP_PERFMON".to_owned());
    }
    Ok(())
}

/// The effective capabilities of this process, as a bit mask.
fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("CapEff");
    u64::from_str_radix(hex.trim(), 16).expect("a hexadecimal number")
}

/// Returns whether this process runs as root, and traces as root.
#[must_use]
pub fn is_root() -> bool {
    runs_as_root() && !captures_as_nobody()
}

/// Returns whether this process can run others as users without privileges.
#[must_use]
pub fn can_drop_privileges() -> bool {
    runs_as_root() && have("setpriv")
}

fn runs_as_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("Uid");
    ids.split_whitespace().nth(1) == Some("0")
}

/// Says that a test is skipped, and why.
///
/// # Panics
/// Where `CI` is `true`: there a skip is a failure.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "a test would be skipped under CI: {reason}"
    );
    eprintln!("skipped: {reason}");
}

/// Says that a test does nothing, since its subject is not there: a property of the running kernel, which nothing that
/// is installed changes. `cargo xtask kernels` has kernels with it.
pub fn absent(subject: &str) {
    eprintln!("nothing to test here without {subject}");
}

/// Returns whether a tool is installed. Without it the caller skips the test.
#[must_use]
pub fn have(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
}
