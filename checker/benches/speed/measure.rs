//! Times and what becomes of them: medians, ratios, goals. What is timed lives elsewhere.

use std::fmt;
use std::time::Duration;

/// The time that this thread has had a processor: what else the machine does is not counted.
#[cfg(unix)]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Where there is no such clock, the time of day.
#[cfg(not(unix))]
fn now() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Nanoseconds for each of `events` that a pass takes; what it returns is only used, so that no part of it can be
/// left out.
pub fn time(events: usize, pass: impl FnOnce() -> u64) -> f64 {
    let start = now();
    std::hint::black_box(pass());
    (now() - start).as_secs_f64() * 1e9 / events as f64
}

/// What several rounds found.
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

/// How many goals were met.
#[derive(Default)]
pub struct Goals {
    met: usize,
    all: usize,
}

impl Goals {
    /// A value, the goal that it must not exceed, and whether it does.
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
