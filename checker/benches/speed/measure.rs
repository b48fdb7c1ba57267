//! Time measurements and their evaluation: medians, ratios, goals. The passes measured are elsewhere.

use std::fmt;
use std::time::Duration;

/// Returns the processor time of this thread: other load on the machine is not counted.
#[cfg(unix)]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the time of day, for systems without a clock of processor time.
#[cfg(not(unix))]
fn now() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Measures the nanoseconds for each of `events` that a pass takes; its result is used, so that no part of
/// it can be optimised away.
pub fn time(events: usize, pass: impl FnOnce() -> u64) -> f64 {
    let start = now();
    std::hint::black_box(pass());
    (now() - start).as_secs_f64() * 1e9 / events as f64
}

/// Results of several rounds.
#[derive(Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn median(&mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Number of goals met and missed.
#[derive(Default)]
pub struct Goals {
    met: usize,
    all: usize,
}

impl Goals {
    /// Formats a value and the goal that it must not exceed, and counts the goal as met or missed.
    pub fn verdict(&mut self, value: f64, goal: f64) -> String {
        let met = value <= goal;
        self.met += usize::from(met);
        self.all += 1;
        let verdict = if met { "met" } else { "missed" };
        format!("{value:>6.2}  {:<10}", format!("≤ {goal} {verdict}"))
    }
}

impl fmt::Display for Goals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} goals met", self.met, self.all)
    }
}
