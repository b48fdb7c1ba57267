//! Settings that decide what this process may do: capabilities, limits, and switches of the kernel.

use std::fs;

use super::model::{
    Check, CheckId,
    CheckStatus::{Fails, Limited, Untested, Works},
};
use capture::kernel::privileges::{Capabilities, Capability};
use linux::{memory, ptrace_refusal};
use report::CaptureBackend::{Inline, Kernel};

/// Checks the capabilities in effect; without them the kernel decides.
pub(super) fn capabilities(held: Option<Capabilities>) -> Check {
    let Some(held) = held else {
        return Check::new(CheckId::Capabilities, Untested, "/proc/self/status cannot be read")
            .used_by(&[Kernel]);
    };
    let names =
        |all: &[Capability]| all.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let has: Vec<Capability> =
        Capability::ALL.into_iter().filter(|capability| held.has(*capability)).collect();
    let missing = held.missing();
    let (status, found) = match (has.as_slice(), missing.as_slice()) {
        (_, []) => (Works, names(&has)),
        ([], missing) => (Fails, format!("none; {} are needed", names(missing))),
        (has, missing) => (Fails, format!("{}; {} is missing", names(has), names(missing))),
    };
    Check::new(CheckId::Capabilities, status, found).used_by(&[Kernel])
}

/// Checks the limit of locked memory, which kernels since 5.11 do not charge BPF maps to (`kernel/bpf/syscall.c`,
/// `bpf_map_save_memcg`).
pub(super) fn memlock() -> Check {
    let limit = memory::locked_memory_limit();
    let limit = limit.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    let found = format!("{limit}; nothing of avtrace is charged to it since Linux 5.11");
    Check::new(CheckId::Memlock, Works, found).used_by(&[Kernel])
}

/// Checks who may open perf events.
pub(super) fn perf_event_paranoid(held: Option<Capabilities>) -> Check {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let is_privileged =
        held.is_some_and(|held| held.has(Capability::Perfmon) || held.has(Capability::SysAdmin));
    judge_paranoid(text.trim(), is_privileged)
}

fn judge_paranoid(text: &str, is_privileged: bool) -> Check {
    /// From this level on users may not even observe their own processes; a patch of Debian's and others'.
    const NOBODY: i32 = 3;
    let id = CheckId::PerfEventParanoid;
    match text.parse::<i32>() {
        Err(_) => Check::new(id, Untested, "kernel.perf_event_paranoid cannot be read"),
        Ok(level) if is_privileged => {
            Check::new(id, Works, format!("{level}; it does not hold for this user"))
        }
        Ok(level) if level >= NOBODY => {
            let found = format!(
                "{level}: users have no watchpoints through perf, even in their own processes"
            );
            Check::new(id, Limited, found).with_command("sudo sysctl kernel.perf_event_paranoid=2")
        }
        Ok(level) => Check::new(
            id,
            Works,
            format!("{level}: watchpoints through perf in a user's own processes"),
        ),
    }
}

/// Checks the kernel's lockdown.
pub(super) fn lockdown() -> Check {
    judge_lockdown(fs::read_to_string("/sys/kernel/security/lockdown").ok().as_deref())
}

fn judge_lockdown(text: Option<&str>) -> Check {
    let mode = text.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0));
    let (status, found) = match (text, mode) {
        (None, _) => (Works, "none, or not to be seen (/sys/kernel/security)".to_owned()),
        (Some(_), Some("confidentiality")) => {
            (Fails, "confidentiality: BPF programs may not read the kernel's memory; boot without `lockdown=confidentiality`"
                .to_owned())
        }
        (Some(_), Some(mode @ ("none" | "integrity"))) => (Works, mode.to_owned()),
        (Some(text), _) => (Untested, format!("it has an unknown form: `{}`", text.trim())),
    };
    Check::new(CheckId::Lockdown, status, found).used_by(&[Kernel])
}

/// Command that allows ptrace of own children, where Yama forbids it.
const ALLOW_PTRACE: &str = "sudo sysctl kernel.yama.ptrace_scope=1";

/// Command that allows ptrace of a user's processes that run already.
const ALLOW_ATTACH: &str = "sudo sysctl kernel.yama.ptrace_scope=0";

/// Checks whom Yama lets a process trace.
pub(super) fn ptrace_scope(held: Option<Capabilities>) -> Check {
    let is_privileged = held.is_some_and(|held| held.has(Capability::SysPtrace));
    judge_scope(ptrace_refusal::yama_scope().as_deref(), is_privileged)
}

/// Returns the command that allows ptrace, where Yama forbids it and lets that be changed.
pub(super) fn allow_ptrace(check: &Check) -> Option<String> {
    (check.status == Fails).then(|| check.command.clone()).flatten()
}

fn judge_scope(scope: Option<&str>, is_privileged: bool) -> Check {
    let new = |status, found: &str| Check::new(CheckId::PtraceScope, status, found);
    let check = match scope {
        None => new(Works, "this kernel has no Yama"),
        Some("0") => new(Works, "0: a user's processes may be traced"),
        Some("1") if is_privileged => new(Works, "1: this process has CAP_SYS_PTRACE"),
        Some("1") => {
            let found = "1: children may be traced, and a process that runs already takes root";
            new(Limited, found).with_command(ALLOW_ATTACH)
        }
        Some("2") if is_privileged => new(Works, "2: this process has CAP_SYS_PTRACE"),
        Some("2") => new(Fails, "2: it takes CAP_SYS_PTRACE").with_command(ALLOW_PTRACE),
        Some("3") => new(
            Fails,
            "3: no process may trace another one; set it to 1 in /etc/sysctl.d, and boot",
        ),
        Some(other) => new(Untested, &format!("it has an unknown value: `{other}`")),
    };
    check.used_by(&[Kernel, Inline])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_events_are_for_some() {
        let judged = |text, is_privileged| judge_paranoid(text, is_privileged).status;
        assert_eq!(["-1", "0", "2"].map(|text| judged(text, false)), [Works; 3]);
        assert_eq!(["3", "4"].map(|text| judged(text, false)), [Limited; 2]);
        assert_eq!(
            [judged("4", true), judged("", true), judged("x", false)],
            [Works, Untested, Untested]
        );
        let command = judge_paranoid("3", false).command;
        assert_eq!(command.as_deref(), Some("sudo sysctl kernel.perf_event_paranoid=2"));
    }

    #[test]
    fn the_bracketed_mode_is_in_force() {
        let judged = |text| judge_lockdown(text).status;
        assert_eq!(judged(None), Works);
        assert_eq!(judged(Some("[none] integrity confidentiality\n")), Works);
        assert_eq!(judged(Some("none [integrity] confidentiality\n")), Works);
        assert_eq!(judged(Some("none integrity [confidentiality]\n")), Fails);
        assert_eq!([judged(Some("")), judged(Some("[new]")), judged(Some("]["))], [Untested; 3]);
    }

    #[test]
    fn yama_decides_for_children() {
        let judged = |scope, is_privileged| judge_scope(scope, is_privileged).status;
        assert_eq!([None, Some("0")].map(|scope| judged(scope, false)), [Works; 2]);
        assert_eq!([judged(Some("1"), true), judged(Some("1"), false)], [Works, Limited]);
        let limited = judge_scope(Some("1"), false);
        assert_eq!(limited.command.as_deref(), Some(ALLOW_ATTACH));
        assert_eq!(allow_ptrace(&limited), None, "programs that are started may be traced");
        assert_eq!([judged(Some("2"), true), judged(Some("2"), false)], [Works, Fails]);
        assert_eq!([judged(Some("3"), true), judged(Some("?"), true)], [Fails, Untested]);
        assert_eq!(allow_ptrace(&judge_scope(Some("2"), false)).as_deref(), Some(ALLOW_PTRACE));
        assert_eq!(allow_ptrace(&judge_scope(Some("3"), false)), None);
    }

    #[test]
    fn capabilities_are_named() {
        let all = capabilities(Some(Capabilities::of(&Capability::ALL)));
        assert_eq!(all.found, "CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_ADMIN");
        assert_eq!(all.status, Works);
        let none = capabilities(Some(Capabilities::of(&[])));
        assert_eq!((none.status, &*none.found), (Fails, "none; CAP_BPF, CAP_PERFMON are needed"));
        let some = capabilities(Some(Capabilities::of(&[Capability::Bpf])));
        assert_eq!((some.status, &*some.found), (Fails, "CAP_BPF; CAP_PERFMON is missing"));
        assert_eq!(capabilities(None).status, Untested);
    }
}
