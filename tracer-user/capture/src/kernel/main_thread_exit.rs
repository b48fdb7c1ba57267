//! Process whose main thread has ended before the others: anchors its probes, and reports a loss of some.
//!
//! The kernel may remove the probes of a process when its main thread ends. Another thread shows whether they are in
//! the memory still, and then they are anchored, which sets them anew.
//!
//! | breakpoints before   | anchored                | not anchored |
//! |----------------------|-------------------------|--------------|
//! | all there            | no loss                 | Unanchored   |
//! | some missing         | gap, Removed            | Unanchored   |
//! | memory not readable  | gap, Removed with error | Unanchored   |
//!
//! Where no other thread goes on, the process ends, and nothing is done.

use std::{fmt::Display, io};

use abi::PlanNumber;
use symbolize::ProcessAddr;

use super::Kernel;
use linux::{
    breakpoints::breakpoints,
    proc::{self, Stat, Status},
};

/// Loss of probes when a main thread has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeLoss {
    /// They are there, and the kernel may remove them later.
    Unanchored {
        /// Reason why they are not anchored.
        error: String,
    },
    /// They were missing until they were anchored. The kernel side has not counted the events that were lost.
    Removed {
        /// Reason why this is not certain.
        error: Option<String>,
    },
}

impl Kernel {
    /// Keeps the probes of a process whose main thread has ended, at these places. Returns their loss, if there is any.
    pub fn keep_without_leader(
        &mut self,
        plan: PlanNumber,
        process: u32,
        places: &[ProcessAddr],
    ) -> Option<ProbeLoss> {
        let thread = thread_that_goes_on(process)?;
        let found = breakpoints(thread, places.iter().map(|place| place.0));
        let were_there = found.map(|found| found.iter().all(|&is_there| is_there));
        let loss = loss(were_there, self.anchor_probes(plan));
        tracing::debug!(process, ?loss, "the main thread has ended");
        if let Some(ProbeLoss::Removed { .. }) = loss {
            self.mark_gap();
        }
        loss
    }
}

/// Returns the loss of probes, by whether all were there and whether they could be anchored.
fn loss(were_there: io::Result<bool>, anchored: Result<(), impl Display>) -> Option<ProbeLoss> {
    if let Err(error) = anchored {
        return Some(ProbeLoss::Unanchored { error: error.to_string() });
    }
    let error = match were_there {
        Ok(true) => return None,
        Ok(false) => None,
        Err(error) => Some(error.to_string()),
    };
    Some(ProbeLoss::Removed { error })
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
        let removed =
            |error: Option<&str>| Some(ProbeLoss::Removed { error: error.map(str::to_owned) });
        let unanchored = || Some(ProbeLoss::Unanchored { error: "refused".to_owned() });
        let rows: [(WereThere, Option<ProbeLoss>); 3] = [
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
