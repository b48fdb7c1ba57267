//! Process whose main thread has ended before the others: anchors its probes, and reports a loss of some.
//!
//! The kernel may remove the probes of a process when its main thread ends. Another thread shows whether they are in
//! the memory still, and then they are anchored, which sets them anew.
//!
//! | breakpoints before   | anchored                      | not anchored     |
//! |----------------------|-------------------------------|------------------|
//! | all there            | nothing                       | UnanchoredProbes |
//! | some missing         | gap, RemovedProbes            | UnanchoredProbes |
//! | memory not readable  | gap, RemovedProbes with error | UnanchoredProbes |
//!
//! Where no other thread goes on, the process ends, and nothing is done.

use std::{fmt::Display, io};

use symbolize::ProcessAddr;

use super::program_id::ProgramId;
use capture::kernel::Kernel;
use linux::{
    breakpoints::breakpoints,
    proc::{self, Stat, Status},
};
use report::Limitation;

/// Keeps the probes of a process whose main thread has ended; returns the limitation when some are lost.
pub(super) fn follow_without_leader(
    kernel: &mut Kernel,
    probes: &[ProcessAddr],
    id: &ProgramId,
) -> Option<Limitation> {
    let thread = thread_that_goes_on(id.pid)?;
    let found = breakpoints(thread, probes.iter().map(|probe| probe.0));
    let were_there = found.map(|found| found.iter().all(|&is_there| is_there));
    let loss = loss(were_there, kernel.anchor_probes(id.plan))?;
    if loss.is_gap {
        kernel.mark_gap();
    }
    Some(loss.limitation)
}

/// Loss of probes.
#[derive(Debug, PartialEq, Eq)]
struct Loss {
    limitation: Limitation,
    /// Set if events were lost that the kernel side does not count.
    is_gap: bool,
}

/// Returns the loss of probes, by whether all were there and whether they could be anchored.
fn loss(were_there: io::Result<bool>, anchored: Result<(), impl Display>) -> Option<Loss> {
    if let Err(error) = anchored {
        let limitation = Limitation::UnanchoredProbes { error: error.to_string() };
        return Some(Loss { limitation, is_gap: false });
    }
    let error = match were_there {
        Ok(true) => return None,
        Ok(false) => None,
        Err(error) => Some(error.to_string()),
    };
    Some(Loss { limitation: Limitation::RemovedProbes { error }, is_gap: true })
}

/// Returns a thread of a process that is not about to end. The main thread has ended: at the end of the process, all
/// other threads have been notified before.
fn thread_that_goes_on(pid: u32) -> Option<u32> {
    /// A list may be cut short.
    const LISTS: usize = 16;
    (0..LISTS).find_map(|_| listed_thread_that_goes_on(pid))
}

fn listed_thread_that_goes_on(pid: u32) -> Option<u32> {
    proc::threads(pid).ok()?.into_iter().filter(|&thread| thread != pid).find(|&thread| {
        // In this order: the signal goes when the end begins.
        let status = Status::of_thread(pid, thread).unwrap_or_default();
        Stat::of_thread(pid, thread).is_ok_and(|stat| lives(&status, stat))
    })
}

fn lives(status: &Status, stat: Stat) -> bool {
    const EXITING: u32 = 0x4;
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let is_killed = status.pending_signals().is_none_or(|pending| pending & KILL != 0);
    !is_killed && stat.flags & EXITING == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::proc::ProcessState;

    #[test]
    fn threads_that_are_about_to_end_are_told() {
        let stat = |flags| Stat { state: ProcessState::Alive, flags, first_stack: None };
        let status = |pending: &str| {
            Status::from_text(format!("Name:\ta\nSigPnd:\t{pending}\nShdPnd:\t0\n"))
        };
        let none = status("0000000000000000");
        assert!(lives(&none, stat(0x40_0040)));
        assert!(!lives(&none, stat(0x40_0044)), "on its way out");
        assert!(!lives(&status("0000000000000100"), stat(0x40_0040)), "killed");
        assert!(!lives(&Status::default(), stat(0x40_0040)), "gone");
    }

    #[test]
    fn the_table_is_followed() {
        type WereThere = fn() -> io::Result<bool>;
        let removed = |error: Option<&str>| {
            let limitation = Limitation::RemovedProbes { error: error.map(str::to_owned) };
            Some(Loss { limitation, is_gap: true })
        };
        let unanchored = || {
            let limitation = Limitation::UnanchoredProbes { error: "refused".to_owned() };
            Some(Loss { limitation, is_gap: false })
        };
        let rows: [(WereThere, Option<Loss>); 3] = [
            (|| Ok(true), None),
            (|| Ok(false), removed(None)),
            (|| Err(io::Error::other("gone")), removed(Some("gone"))),
        ];
        for (were_there, expected) in rows {
            assert_eq!(loss(were_there(), Ok::<_, &str>(())), expected);
            assert_eq!(loss(were_there(), Err("refused")), unanchored());
        }
    }

    #[test]
    fn this_process_goes_on() {
        let pid = std::process::id();
        assert!(thread_that_goes_on(pid).is_some(), "tests run in threads of their own");
        assert!(thread_that_goes_on(u32::MAX).is_none());
    }
}
