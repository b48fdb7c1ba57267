//! A process whose main thread has ended before the others: its probes are kept, and it is said when some were lost.

use super::breakpoints;
use crate::{kernel::Kernel, symbolize::ProcessAddr};

/// Keeps the probes of a process whose main thread has ended; says so when some are lost.
pub(super) fn follow_without_leader(
    kernel: &mut Kernel,
    probes: &[ProcessAddr],
    pid: u32,
) -> Option<String> {
    let thread = thread_that_goes_on(pid)?;
    let were_there = breakpoints(thread, probes).iter().all(|&is_there| is_there);
    if let Err(error) = kernel.anchor_probes() {
        return Some(format!(
            "the main thread ended before the others, and the probes may have gone with it: {error}"
        ));
    }
    if were_there {
        return None;
    }
    kernel.mark_gap();
    Some(
        "the main thread ended before the others, and the kernel removed probes then: what happened until they \
         were set anew was not seen"
            .to_owned(),
    )
}

/// A thread of a process that is not about to end. The main thread has ended: when that was the end of the process, all
/// others have been told so before.
fn thread_that_goes_on(pid: u32) -> Option<u32> {
    /// The kernel cuts a list short when the thread that it has come to ends (`fs/proc/base.c`, `next_tid`).
    const LISTS: usize = 16;
    (0..LISTS).find_map(|_| listed_thread_that_goes_on(pid))
}

fn listed_thread_that_goes_on(pid: u32) -> Option<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.flatten().find_map(|thread| {
        let read =
            |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        // In this order: the signal goes when the end begins.
        let (status, stat) = (read("status"), read("stat"));
        let tid = thread.file_name().to_str()?.parse().ok()?;
        (tid != pid && lives(&status, &stat)).then_some(tid)
    })
}

fn lives(status: &str, stat: &str) -> bool {
    const EXITING: u32 = 0x4;
    let killed = status
        .lines()
        .find_map(|line| line.strip_prefix("SigPnd:"))
        .and_then(|pending| u64::from_str_radix(pending.trim(), 16).ok())
        .is_none_or(|pending| pending & (1 << (libc::SIGKILL - 1)) != 0);
    // The flags are the seventh field after the name, which ends with the last parenthesis.
    let flags: Option<u32> = stat
        .rsplit_once(") ")
        .and_then(|(_, fields)| fields.split_whitespace().nth(6)?.parse().ok());
    !killed && flags.is_some_and(|flags| flags & EXITING == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_about_to_end_are_told() {
        let stat = |flags: u32| format!("7 (a) b) S 1 7 7 0 -1 {flags} 0 0");
        let status = |pending: &str| format!("Name:\ta\nSigPnd:\t{pending}\nShdPnd:\t0\n");
        let none = status("0000000000000000");
        assert!(lives(&none, &stat(0x40_0040)));
        assert!(!lives(&none, &stat(0x40_0044)), "on its way out");
        assert!(!lives(&status("0000000000000100"), &stat(0x40_0040)), "killed");
        assert!(!lives("", &stat(0x40_0040)), "gone");
        assert!(!lives(&none, ""));
    }

    #[test]
    fn this_process_goes_on() {
        let pid = std::process::id();
        assert!(thread_that_goes_on(pid).is_some(), "tests run in threads of their own");
        assert!(thread_that_goes_on(u32::MAX).is_none());
    }
}
