//! Signals to this process while the program runs: forwards them, except those that have reached the program by
//! themselves.

use std::{
    fmt, io, process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::unistd::{Pid, getpgid, getpgrp};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, SignalsInfo, exfiltrator::WithRawSiginfo},
    low_level::emulate_default_handler,
};

use super::live_processes::LiveProcesses;
use linux::{
    cut::{self, Cut, Demand, Insistence},
    proc::{Disposition, ProcessState, Stat, Status},
    tracee,
};

/// Signals while the program runs and its report is written, until this is dropped.
pub struct ForwardedSignals {
    handle: Handle,
    /// Set when signals are meant for this process: the program has ended, and its children are waited for.
    is_alone: Arc<AtomicBool>,
    told_to_end: Arc<AtomicBool>,
    /// All processes have ended, and the report is being made.
    is_over: Arc<AtomicBool>,
    /// Called when a signal asks this process to end.
    on_end: Arc<Mutex<Option<OnEnd>>>,
}

/// Reaction to a signal that asks this process to end.
type OnEnd = Box<dyn FnOnce() + Send>;

impl ForwardedSignals {
    /// Waits until all of these processes have ended, or a signal asks this one to end.
    pub fn await_children(&self, alive: &LiveProcesses) {
        const POLL: Duration = Duration::from_millis(10);
        /// Time that records of ends may take to arrive after the processes have gone.
        const END_TIMEOUT: Duration = Duration::from_secs(1);
        self.is_alone.store(true, Ordering::Release);
        let mut all_gone = Duration::ZERO;
        while !self.told_to_end.load(Ordering::Acquire) && all_gone < END_TIMEOUT {
            let alive = alive.now();
            if alive.is_empty() {
                return;
            }
            let runs = |pid: &u32| {
                Stat::of_process(*pid).is_ok_and(|stat| stat.state != ProcessState::Ended)
            };
            all_gone = if alive.iter().any(runs) { Duration::ZERO } else { all_gone + POLL };
            thread::sleep(POLL);
        }
    }

    /// From now on signals are meant for this process, as the program has ended. The first one calls `on_end`.
    pub fn be_alone(&self, on_end: impl FnOnce() + Send + 'static) {
        *self.on_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(on_end));
        self.is_alone.store(true, Ordering::Release);
    }

    /// From now on the first signal ends the checking at once: no process is left.
    pub fn be_over(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl fmt::Debug for ForwardedSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedSignals").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Drop for ForwardedSignals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Keeps this process alive until the program ends, and passes signals on to it.
///
/// Forwards signals that a process has sent. Signals of a terminal (`SIGINT`, `SIGQUIT`) go to the whole foreground
/// process group, and so reach a program in this process's group by themselves. A `kill` of the group looks like one
/// of this process: the program receives that signal twice.
///
/// A signal that is repeated ([`Insistence`]) kills the program and cuts the checking short.
///
/// Before `is_started` is set the program stands at its entry point, and dies with this process: a signal does what it
/// does without a handler.
///
/// # Errors
///
/// When the handlers cannot be installed.
pub fn forward(pid: u32, cut: &Cut, is_started: Arc<AtomicBool>) -> io::Result<ForwardedSignals> {
    const PASSED: [i32; 6] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    let before = Status::of_process(process::id())?;
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(PASSED)?;
    let handle = signals.handle();
    let (is_alone, told_to_end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (alone, end) = (Arc::clone(&is_alone), Arc::clone(&told_to_end));
    let reaction = Arc::<Mutex<Option<OnEnd>>>::default();
    let on_end = Arc::clone(&reaction);
    let is_over = Arc::<AtomicBool>::default();
    let (over, cut, mut insistence) = (Arc::clone(&is_over), cut.clone(), Insistence::default());
    thread::Builder::new().name("avtrace-signals".to_owned()).spawn(move || {
        for info in signals.forever() {
            if !is_started.load(Ordering::Acquire)
                && before.disposition(info.si_signo) == Disposition::Default
            {
                // It ends this process.
                let _ = emulate_default_handler(info.si_signo);
            }
            let is_over = over.load(Ordering::Acquire);
            match insistence.demand(info.si_signo, Instant::now(), is_over) {
                Demand::Usual => {}
                Demand::Cut => {
                    cut.ask();
                    end.store(true, Ordering::Release);
                    if !is_over && !alone.load(Ordering::Acquire) {
                        tracee::send_signal(pid, SIGKILL);
                    }
                }
                Demand::Exit => cut::exit(),
            }
            if is_over {
                continue;
            }
            if alone.load(Ordering::Acquire) {
                end.store(true, Ordering::Release);
                let react = on_end.lock().unwrap_or_else(PoisonError::into_inner).take();
                react.into_iter().for_each(|react| react());
            } else if !has_reached(info.si_signo, info.si_code, is_in_own_group(pid)) {
                tracee::send_signal(pid, info.si_signo);
            }
        }
    })?;
    Ok(ForwardedSignals { handle, is_alone, told_to_end, is_over, on_end: reaction })
}

/// Returns whether a signal that this process has received was sent to the program as well.
const fn has_reached(signal: i32, code: i32, is_in_own_group: bool) -> bool {
    /// Sent by the kernel: `drivers/tty/n_tty.c`, `__isig` passes on what was typed.
    const SI_KERNEL: i32 = 0x80;
    matches!(signal, SIGINT | SIGQUIT) && code == SI_KERNEL && is_in_own_group
}

/// Returns whether a process is in this one's process group, as it was at its start.
fn is_in_own_group(pid: u32) -> bool {
    getpgid(Some(Pid::from_raw(pid as i32))) == Ok(getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_terminal_sends_reaches_its_process_group() {
        const SI_KERNEL: i32 = 0x80;
        for signal in [SIGINT, SIGQUIT] {
            assert!(has_reached(signal, SI_KERNEL, true));
            assert!(!has_reached(signal, SI_KERNEL, false), "it has a group of its own");
            for code in [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL] {
                assert!(!has_reached(signal, code, true), "sent to this process: {code}");
            }
        }
        assert!(!has_reached(SIGHUP, SI_KERNEL, true), "it may be for the session's leader alone");
        assert!(!has_reached(SIGTERM, libc::SI_USER, true));
    }

    #[test]
    fn groups_are_compared() {
        assert!(is_in_own_group(std::process::id()));
        assert!(!is_in_own_group(u32::MAX), "it has ended");
    }
}
