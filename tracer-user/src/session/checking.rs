//! The checker's thread: consumes batches of records, feeds the checker and the recorder, and changes what is attached
//! when the records tell of a need.

use std::{collections::BTreeMap, io, thread};

use checker::{Checker, Davida, Options, event::EventNumber, finding::Findings};

use super::{breakpoints, record::Recorder, watches};
use crate::{
    kernel::Kernel,
    live::{
        reader::Batches,
        source::{Item, ObservedValue, Source},
    },
    symbolize::ProcessAddr,
};

/// A running check.
#[derive(Debug)]
pub struct Checking {
    thread: thread::JoinHandle<Checked>,
}

/// What is traced.
#[derive(Clone, Debug)]
pub struct Target {
    /// The process.
    pub pid: u32,
    /// Where its probes are.
    pub probes: Vec<ProcessAddr>,
}

/// What a check leaves behind.
#[derive(Debug)]
pub struct Checked {
    /// What was found; only counts when nothing was checked.
    pub findings: Findings,
    /// The recording, to be ended.
    pub recorder: Option<Recorder>,
    /// The source, which knows what ids stand for.
    pub source: Source,
    /// The kernel side.
    pub kernel: Kernel,
    /// About variables that could not be watched, and what else went on meanwhile.
    pub notes: Vec<String>,
    /// Values that were observed around the findings' events.
    pub values: BTreeMap<EventNumber, ObservedValue>,
}

/// Observed values that are kept for the report at most.
const MAX_KEPT: usize = 1 << 20;

impl Checking {
    /// Starts to check, with `options`, and to record what the reader passes on, either or both.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start(
        batches: Batches,
        source: Source,
        kernel: Kernel,
        options: Option<Options>,
        recorder: Option<Recorder>,
        target: Target,
    ) -> io::Result<Self> {
        let thread = thread::Builder::new()
            .name("avtrace-checker".to_owned())
            .spawn(move || check(batches, source, kernel, options, recorder, target))?;
        Ok(Self { thread })
    }

    /// Waits for the end; the reader must have been told to finish.
    ///
    /// # Panics
    ///
    /// When the checker's thread has.
    #[must_use]
    pub fn finish(self) -> Checked {
        match self.thread.join() {
            Ok(checked) => checked,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn check(
    batches: Batches,
    mut source: Source,
    mut kernel: Kernel,
    options: Option<Options>,
    mut recorder: Option<Recorder>,
    Target { pid, probes }: Target,
) -> Checked {
    let mut checker = options.map(|options| Box::new(Davida::new(options)));
    let mut items = Vec::new();
    let (mut notes, mut values) = (Vec::new(), BTreeMap::new());
    let (mut witnesses, mut is_leaderless) = (0, false);
    batches.for_each(|records| {
        items.clear();
        for record in records {
            source.record(record, &mut |item| items.push(item));
        }
        if let Some(recorder) = &mut recorder {
            recorder.record(&source, &items);
        }
        let mut found = 0;
        if let Some(checker) = &mut checker {
            for item in &items {
                match item {
                    // A lenient checker counts what does not fit and goes on.
                    Item::Event(event) => drop(checker.event(event)),
                    Item::Gap => checker.gap(),
                }
            }
            found = checker.counts().distinct_witnesses;
        }
        if found != witnesses && values.len() < MAX_KEPT {
            values.extend(source.recent_values());
        }
        witnesses = found;
        if source.has_lost_leader() && !is_leaderless {
            is_leaderless = true;
            notes.extend(follow_without_leader(&mut kernel, &probes, pid));
        }
        for (site, registers) in source.take_shared() {
            notes.extend(watches::arm_late(&mut source, &mut kernel, site, &registers));
        }
    });
    notes.sort();
    notes.dedup();
    let findings = match (checker, &recorder) {
        (Some(checker), _) => checker.finish(),
        (None, Some(recorder)) => Findings { counts: recorder.counts(), ..Findings::default() },
        (None, None) => Findings::default(),
    };
    Checked { findings, recorder, source, kernel, notes, values }
}

/// Keeps the probes of a process whose main thread has ended; says so when some are lost.
fn follow_without_leader(kernel: &mut Kernel, probes: &[ProcessAddr], pid: u32) -> Option<String> {
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
