//! Explanation of why the kernel refuses ptrace, from the state of this process and the settings of the machine.

use std::{fs, io};

use super::proc::Status;

/// Makes the error for a program that the kernel does not let this process trace.
pub(super) fn explain(error: &io::Error) -> io::Error {
    let scope = yama_scope().unwrap_or_default();
    let status = Status::of_self().ok();
    let tracer = status.as_ref().and_then(Status::tracer).unwrap_or(0);
    let is_filtered = status.as_ref().is_some_and(has_filter);
    let reason = reason(tracer, &scope, is_filtered);
    io::Error::other(format!("it cannot be traced with ptrace: {error}: {reason}"))
}

/// Returns the reason why the kernel does not let this process trace a running process, with the remedy.
#[must_use]
pub fn explain_attach(error: &io::Error, pid: u32) -> String {
    if error.kind() == io::ErrorKind::TimedOut {
        // Its text has the remedy.
        return error.to_string();
    }
    let scope = yama_scope().unwrap_or_default();
    let is_filtered = Status::of_self().is_ok_and(|status| has_filter(&status));
    reason_of_attach(error, pid, &scope, is_filtered)
}

fn reason_of_attach(error: &io::Error, pid: u32, scope: &str, is_filtered: bool) -> String {
    let remedy = match (error.raw_os_error(), scope) {
        (Some(libc::EPERM), "1") => format!(
            "`kernel.yama.ptrace_scope` is 1, so that users may trace children of their own only: run `sudo avtrace \
             attach --pid {pid}`, or allow it until the next boot (`sudo sysctl kernel.yama.ptrace_scope=0`)"
        ),
        (Some(libc::EPERM), "2") => format!(
            "`kernel.yama.ptrace_scope` is 2, so that it takes CAP_SYS_PTRACE: run `sudo avtrace attach --pid {pid}`, or \
             allow it until the next boot (`sudo sysctl kernel.yama.ptrace_scope=0`)"
        ),
        (Some(libc::EPERM), "3") => reason(0, scope, is_filtered),
        (Some(libc::EPERM), _) if is_filtered => reason(0, scope, is_filtered),
        (Some(libc::EPERM), _) => format!(
            "another tracer has come first, it is of another user, or a security module forbids it: run `sudo avtrace \
             attach --pid {pid}`"
        ),
        _ => "`pgrep NAME` lists the processes of a name".to_owned(),
    };
    format!("{error}: {remedy}")
}

/// Returns the value of `kernel.yama.ptrace_scope`; `None` where the kernel has no Yama.
#[must_use]
pub fn yama_scope() -> Option<String> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    Some(scope.trim().to_owned())
}

/// Returns whether a process has a filter of system calls.
#[must_use]
pub fn has_filter(status: &Status) -> bool {
    status.seccomp() == Some(2)
}

fn reason(tracer: u32, yama_scope: &str, is_filtered: bool) -> String {
    match (tracer, yama_scope) {
        (1.., _) => format!(
            "avtrace is traced itself, by process {tracer}, which traces the program as well: run avtrace without it"
        ),
        (0, "3") => {
            "`kernel.yama.ptrace_scope` is 3, so that no process may trace another one until the next boot".to_owned()
        }
        (0, "2") => {
            "`kernel.yama.ptrace_scope` is 2: run avtrace as root (`sudo avtrace …`), or allow it until the next boot (`sudo \
             sysctl kernel.yama.ptrace_scope=1`)"
                .to_owned()
        }
        (0, _) if is_filtered => {
            "a seccomp filter, as of a container, may forbid it: allow ptrace there (`--cap-add SYS_PTRACE` of docker \
             and podman)"
                .to_owned()
        }
        (0, _) => "a security module may forbid it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_reason_is_named() {
        assert!(reason(7, "3", true).contains("by process 7"));
        assert!(reason(0, "3", true).contains("next boot"));
        assert!(reason(0, "2", false).contains("as root"));
        assert!(reason(0, "1", true).contains("seccomp"));
        assert!(reason(0, "", false).contains("security module"));
    }

    #[test]
    fn a_process_that_runs_has_a_remedy_of_its_own() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let at = |scope| reason_of_attach(&denied, 7, scope, false);
        let yama = at("1");
        assert!(yama.contains("`sudo avtrace attach --pid 7`"), "{yama}");
        assert!(yama.contains("`sudo sysctl kernel.yama.ptrace_scope=0`"), "{yama}");
        assert!(at("2").contains("`sudo avtrace attach --pid 7`"), "{}", at("2"));
        assert!(at("3").contains("until the next boot"));
        assert!(at("0").contains("another tracer"));
    }
}
