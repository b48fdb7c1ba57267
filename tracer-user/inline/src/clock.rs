//! Choice of the clock that orders records.

use core::fmt;

use crate::layout::Clock;

/// Flags of a processor whose time stamp counter has one rate and never stops (Intel SDM, volume 3, "Invariant TSC";
/// `/proc/cpuinfo`).
const FLAGS: [&str; 2] = ["constant_tsc", "nonstop_tsc"];

/// Clock of a run, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockChoice {
    /// The time stamp counter: the kernel takes the time from it, and so has found that the processors agree on it
    /// (`arch/x86/kernel/tsc_sync.c`, `kernel/time/clocksource.c`).
    TimeStampCounter,
    /// A counter for all threads, since the kernel takes the time from another source.
    OtherSource {
        /// Name of the source; empty if it could not be read.
        name: String,
    },
    /// A counter for all threads, since a flag of the processor is missing.
    MissingFlag {
        /// The flag.
        flag: &'static str,
    },
    /// A counter for all threads, since the kernel lacks barriers in the threads of other processes. With the counter
    /// each thread passes a barrier when it takes a number.
    NoBarrier,
    /// A counter for all threads, since the program may not take part in barriers.
    RefusedBarrier,
}

impl ClockChoice {
    /// Choice by the contents of `/sys/devices/system/clocksource/clocksource0/current_clocksource` and of
    /// `/proc/cpuinfo`, either of which may be empty if it could not be read; and by whether the kernel has barriers in
    /// the threads of other processes.
    #[must_use]
    pub fn new(current_clocksource: &str, cpuinfo: &str, has_barrier: bool) -> Self {
        if !has_barrier {
            return Self::NoBarrier;
        }
        let name = current_clocksource.trim();
        if name != "tsc" {
            return Self::OtherSource { name: name.to_owned() };
        }
        let missing = FLAGS.into_iter().find(|&flag| !all_processors_have(flag, cpuinfo));
        missing.map_or(Self::TimeStampCounter, |flag| Self::MissingFlag { flag })
    }

    /// The clock.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        match self {
            Self::TimeStampCounter => Clock::Tsc,
            Self::OtherSource { .. }
            | Self::MissingFlag { .. }
            | Self::NoBarrier
            | Self::RefusedBarrier => Clock::Counter,
        }
    }

    /// Reason against the time stamp counter, as a clause; `None` if it is used.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        Some(match self {
            Self::TimeStampCounter => return None,
            Self::OtherSource { name } if name.is_empty() => {
                "the kernel's clock source is unknown".to_owned()
            }
            Self::OtherSource { name } => format!("the kernel's clock source is {name}, not tsc"),
            Self::MissingFlag { flag } => format!("the processor has no {flag}"),
            Self::NoBarrier => "the kernel has no membarrier for other processes".to_owned(),
            Self::RefusedBarrier => "the program may not call membarrier".to_owned(),
        })
    }
}

impl fmt::Display for ClockChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.doubt() {
            None => f.write_str("time stamp counter"),
            Some(doubt) => write!(f, "a counter common to all threads ({doubt})"),
        }
    }
}

/// Returns whether each processor of `/proc/cpuinfo`, and at least one, has a flag.
fn all_processors_have(flag: &str, cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags")).peekable();
    flags.peek().is_some() && flags.all(|line| line.split_whitespace().any(|word| word == flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n";

    #[test]
    fn a_counter_that_the_kernel_trusts_is_chosen() {
        let choice = ClockChoice::new("tsc\n", &GOOD.repeat(2), true);
        assert_eq!(
            (choice.clock(), choice.to_string().as_str()),
            (Clock::Tsc, "time stamp counter")
        );
    }

    #[test]
    fn any_doubt_leads_to_the_shared_counter() {
        let stops = "processor\t: 1\nflags\t\t: fpu tsc constant_tsc\n";
        let cases = [
            ("hpet\n", GOOD.to_owned(), "the kernel's clock source is hpet, not tsc"),
            ("", GOOD.to_owned(), "the kernel's clock source is unknown"),
            ("tsc", format!("{GOOD}{stops}"), "the processor has no nonstop_tsc"),
            ("tsc", String::new(), "the processor has no constant_tsc"),
        ];
        for (source, cpuinfo, reason) in cases {
            let choice = ClockChoice::new(source, &cpuinfo, true);
            assert_eq!(choice.clock(), Clock::Counter, "{choice}");
            assert_eq!(choice.to_string(), format!("a counter common to all threads ({reason})"));
        }
        assert_eq!(ClockChoice::new("tsc", GOOD, false).clock(), Clock::Counter);
    }
}
