//! Signals to this process while the program runs: which are passed on, and which have reached the program by themselves.

use std::{
    io,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, Signals},
};

use super::following::Alive;
use crate::sys::{
    proc::{Stat, State},
    tracee,
};

/// Signals while the program runs.
#[derive(Debug)]
pub struct ForwardedSignals {
    handle: Handle,
    thread: thread::JoinHandle<()>,
    /// Set when signals are meant for this process: the program has ended, and its children are waited for.
    is_alone: Arc<AtomicBool>,
    told_to_end: Arc<AtomicBool>,
}

impl ForwardedSignals {
    /// Waits until all of these processes have ended, or a signal tells this one to end.
    pub fn await_children(&self, alive: &Alive) {
        const POLL: Duration = Duration::from_millis(10);
        /// How long records of ends may be late, when the processes have gone.
        const PATIENCE: Duration = Duration::from_secs(1);
        self.is_alone.store(true, Ordering::Release);
        let mut all_gone = Duration::ZERO;
        while !self.told_to_end.load(Ordering::Acquire) && all_gone < PATIENCE {
            let alive = alive.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if alive.is_empty() {
                return;
            }
            let runs =
                |pid: &u32| Stat::of_process(*pid).is_ok_and(|stat| stat.state != State::Ended);
            all_gone = if alive.iter().any(runs) { Duration::ZERO } else { all_gone + POLL };
            thread::sleep(POLL);
        }
    }

    /// Ends the forwarding.
    pub fn close(self) {
        self.handle.close();
        let _ = self.thread.join();
    }
}

/// Keeps this process alive until the program ends: what the terminal sends (`SIGINT`, `SIGQUIT`) reaches the
/// program by itself, what is sent to this process alone (`SIGTERM`, `SIGHUP`, `SIGUSR1`, `SIGUSR2`) is passed on.
///
/// # Errors
///
/// When the handlers cannot be installed.
pub fn forward(pid: u32) -> io::Result<ForwardedSignals> {
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    let (is_alone, told_to_end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (alone, end) = (Arc::clone(&is_alone), Arc::clone(&told_to_end));
    let thread = thread::Builder::new().name("avtrace-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if alone.load(Ordering::Acquire) {
                end.store(true, Ordering::Release);
            } else if !matches!(signal, SIGINT | SIGQUIT) {
                tracee::send_signal(pid, signal);
            }
        }
    })?;
    Ok(ForwardedSignals { handle, thread, is_alone, told_to_end })
}
