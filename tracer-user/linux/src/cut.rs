//! Immediate end of a run, which repeated signals ask for: checking stops, and the report covers the events checked so
//! far.

use std::{
    io::{self, Write as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Request to stop checking, shared by threads.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<AtomicBool>);

impl Cut {
    /// Asks for it.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Demand of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The signal's own meaning.
    Usual,
    /// The program and the checking end now.
    Cut,
    /// This process ends now, without a report.
    Exit,
}

/// Signals that ask for the end, as they are repeated.
#[derive(Debug, Default)]
pub struct Insistence {
    was_terminated: bool,
    interrupted: Option<Instant>,
    is_cut: bool,
}

/// Time within which an interrupt is a repetition while the program runs: programs in which somebody types get several.
const REPETITION: Duration = Duration::from_secs(2);

impl Insistence {
    /// Returns the demand of a signal that comes at a time. `is_over` is set once the program has ended and only the
    /// report is left: then the first signal is enough.
    pub fn demand(&mut self, signal: i32, at: Instant, is_over: bool) -> Demand {
        if !matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) {
            return Demand::Usual;
        }
        if self.is_cut {
            return Demand::Exit;
        }
        let is_soon = |earlier| at.saturating_duration_since(earlier) <= REPETITION;
        // The program may have reacted to another one, and is to react to this one.
        let is_repeated = match signal {
            SIGTERM => std::mem::replace(&mut self.was_terminated, true),
            SIGINT => self.interrupted.replace(at).is_some_and(is_soon),
            _ => false,
        };
        self.is_cut = is_over || is_repeated;
        if self.is_cut { Demand::Cut } else { Demand::Usual }
    }
}

/// Ends this process, which somebody has asked for three times.
pub fn exit() -> ! {
    let text =
        "avtrace: ended by repeated signals before its report was complete; nothing is written\n";
    // Standard error may be closed.
    let _ = io::stderr().write_all(text.as_bytes());
    process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGUSR1;

    fn demands(signals: &[(i32, u64)], is_over: bool) -> Vec<Demand> {
        let (start, mut insistence) = (Instant::now(), Insistence::default());
        let demand = |&(signal, seconds)| {
            insistence.demand(signal, start + Duration::from_secs(seconds), is_over)
        };
        signals.iter().map(demand).collect()
    }

    #[test]
    fn a_repeated_request_is_met_at_once() {
        use Demand::{Cut, Exit, Usual};
        assert_eq!(
            demands(&[(SIGTERM, 0), (SIGTERM, 60), (SIGTERM, 61)], false),
            [Usual, Cut, Exit]
        );
        assert_eq!(demands(&[(SIGINT, 0), (SIGTERM, 0), (SIGTERM, 1)], false), [Usual, Usual, Cut]);
        assert_eq!(demands(&[(SIGINT, 0), (SIGINT, 1)], false), [Usual, Cut]);
        assert_eq!(demands(&[(SIGUSR1, 0), (SIGUSR1, 0), (SIGTERM, 0)], false), [Usual; 3]);
    }

    #[test]
    fn interrupts_of_an_interactive_program_are_its_own() {
        assert_eq!(demands(&[(SIGINT, 0), (SIGINT, 3), (SIGINT, 6)], false), [Demand::Usual; 3]);
        assert_eq!(demands(&[(SIGHUP, 0), (SIGHUP, 0)], false), [Demand::Usual; 2]);
    }

    #[test]
    fn once_the_program_is_gone_one_signal_is_enough() {
        assert_eq!(demands(&[(SIGINT, 0), (SIGINT, 9)], true), [Demand::Cut, Demand::Exit]);
    }
}
