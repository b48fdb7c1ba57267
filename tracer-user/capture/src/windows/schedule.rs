//! Times at which windows of capture begin and end, so that its costs stay within a share of the program's work.
//!
//! It is a bucket of processor time: the program's work fills it by the share, the costs of capture empty it. A window
//! ends when its time is over and the bucket is empty. The next one begins once the bucket is no longer empty, after a
//! wait of random length. So a program that costs little is watched all the time. Windows have random lengths of
//! several magnitudes, so that long regions fit into some of them: each magnitude has the same part of the time.

use std::time::Duration;

use plan::random::Random;

/// Processor time that is free at the start, and most that the bucket holds, in nanoseconds: a short run is seen as a
/// whole.
const CAPACITY_NS: i64 = 1_000_000_000;

/// Most that the bucket owes, for each percent: what ten seconds of a processor's work fill. A window of higher costs
/// ends before its time.
const DEBT_NS: i64 = 100_000_000;

/// Length of the shortest windows, and number of times that it is doubled at most.
const SHORTEST: Duration = Duration::from_millis(10);
const DOUBLINGS: u32 = 6;

/// Interval of looks at the clocks in a window, and bounds of it between windows.
const LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(50);

/// Schedule of windows. The first one has begun.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Time after which a window begins or ends whatever it costs, in tests.
    period: Option<Duration>,
    /// Allowed costs, in percent of the program's own work.
    percent: i64,
    /// Time that may be spent before the window ends, in nanoseconds; negative for a debt.
    credit: i64,
    /// Own work of the program and costs at the latest look.
    latest: WorkTimes,
    state: Phase,
    random: Random,
}

/// Processor time since the start, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkTimes {
    /// Time that the program has worked for itself.
    pub worked: u64,
    /// Time that capture has cost, in the program and in avtrace.
    pub spent: u64,
}

/// Times are those since the start.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Within { until: Duration },
    Between { length: Duration, begin: Option<Duration> },
}

/// Next step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Begin,
    End,
    /// Look again after this time.
    Wait(Duration),
}

impl Schedule {
    pub(super) fn new(percent: u32, period: Option<Duration>, seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let until = length(&mut random);
        Self {
            period,
            percent: percent.into(),
            credit: CAPACITY_NS,
            latest: WorkTimes::default(),
            state: Phase::Within { until },
            random,
        }
    }

    /// Decides at a time since the start.
    pub(super) fn step(&mut self, now: Duration, clocks: WorkTimes) -> Change {
        if let Some(period) = self.period {
            return self.next_period(now, period);
        }
        let worked = nanoseconds(clocks.worked.saturating_sub(self.latest.worked));
        let spent = nanoseconds(clocks.spent.saturating_sub(self.latest.spent));
        self.latest = clocks;
        let earned = worked.saturating_mul(self.percent) / 100;
        self.credit = self.credit.saturating_add(earned - spent).min(CAPACITY_NS);
        match self.state {
            Phase::Within { until }
                if self.credit < -self.percent * DEBT_NS || self.credit < 0 && now >= until =>
            {
                self.state = Phase::Between { length: length(&mut self.random), begin: None };
                Change::End
            }
            Phase::Within { until } => {
                if now >= until {
                    let until = now + length(&mut self.random);
                    self.state = Phase::Within { until };
                }
                Change::Wait(LOOK)
            }
            Phase::Between { .. } if self.credit < 0 => {
                // For as long as it takes at the pace of now.
                let missing = self.credit.unsigned_abs().saturating_mul(LOOK.as_nanos() as u64);
                let pace = earned.unsigned_abs().max(1);
                Change::Wait(Duration::from_nanos(missing / pace).clamp(LOOK, LONGEST_LOOK))
            }
            Phase::Between { length, begin: None } => {
                let most = length.as_nanos() as u64;
                let begin = now + Duration::from_nanos(self.random.number() % most);
                self.state = Phase::Between { length, begin: Some(begin) };
                Change::Wait(begin - now)
            }
            Phase::Between { length, begin: Some(begin) } if now >= begin => {
                self.state = Phase::Within { until: now + length };
                Change::Begin
            }
            Phase::Between { begin: Some(begin), .. } => Change::Wait(begin - now),
        }
    }

    fn next_period(&mut self, now: Duration, period: Duration) -> Change {
        match self.state {
            Phase::Within { until } if now >= until => {
                self.state = Phase::Between { length: period, begin: Some(now + period) };
                Change::End
            }
            Phase::Within { until } => Change::Wait(until - now),
            Phase::Between { begin: Some(begin), .. } if now < begin => Change::Wait(begin - now),
            Phase::Between { .. } => {
                self.state = Phase::Within { until: now + period };
                Change::Begin
            }
        }
    }
}

/// Draws the length of a window: each is twice as long as another, of twice the probability.
fn length(random: &mut Random) -> Duration {
    SHORTEST * (1 << random.number().trailing_zeros().min(DOUBLINGS))
}

fn nanoseconds(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// Follows a program that works all the time on one processor, with costs in windows per time, for a minute.
    /// Returns the share of time in windows, the ratio of costs to work, and the lengths of the windows.
    fn watched(percent: u32, cost_percent: u64) -> (f64, f64, Vec<Duration>) {
        const END: u64 = 60_000;
        let mut schedule = Schedule::new(percent, None, 1);
        let (mut clocks, mut is_within, mut next) = (WorkTimes::default(), true, Duration::ZERO);
        let (mut within, mut began, mut lengths) = (0, Duration::ZERO, Vec::new());
        for millisecond in 0..END {
            let now = Duration::from_millis(millisecond);
            clocks.worked += MILLISECOND;
            if is_within {
                within += 1;
                clocks.spent += MILLISECOND / 100 * cost_percent;
            }
            if now < next {
                continue;
            }
            match schedule.step(now, clocks) {
                Change::Begin => (is_within, began) = (true, now),
                Change::End => {
                    is_within = false;
                    lengths.push(now - began);
                }
                Change::Wait(time) => next = now + time,
            }
        }
        let cost = clocks.spent as f64 / clocks.worked as f64;
        (within as f64 / END as f64, cost, lengths)
    }

    #[test]
    fn costs_stay_within_the_share() {
        for (percent, cost) in [(10, 500), (10, 2000), (5, 300), (50, 200), (1, 1000)] {
            let (watched, spent, lengths) = watched(percent, cost);
            let allowed = f64::from(percent) / 100.0;
            // The allowance at the start, and the debt at the end, with a look too late.
            let more = (1.0 + 10.0 * allowed + 0.01 * cost as f64 / 100.0) / 60.0;
            assert!(spent <= allowed + more, "{percent} {cost}: {spent}");
            assert!(spent >= 0.8 * allowed, "{percent} {cost}: {spent}");
            assert!(watched > 0.0 && lengths.len() > 2, "{percent} {cost}: {}", lengths.len());
        }
    }

    #[test]
    fn a_program_that_costs_little_is_watched_all_the_time() {
        let (watched, _, lengths) = watched(10, 9);
        assert_eq!((watched, lengths.len()), (1.0, 0));
    }

    #[test]
    fn windows_are_of_all_lengths() {
        let (_, _, lengths) = watched(20, 300);
        let of = |range: std::ops::Range<u64>| {
            lengths.iter().filter(|length| range.contains(&(length.as_millis() as u64))).count()
        };
        assert!(of(0..20) > 5 && of(20..80) > 5 && of(80..2000) > 1, "{lengths:?}");
    }

    #[test]
    fn a_pause_of_the_program_is_no_credit_for_long() {
        let mut schedule = Schedule::new(10, None, 1);
        let worked = |worked| WorkTimes { worked, spent: 0 };
        assert_eq!(
            schedule.step(Duration::from_secs(1), worked(1000 * 1_000_000_000)),
            Change::Wait(LOOK)
        );
        let spent = WorkTimes { worked: 1000 * 1_000_000_000, spent: 1_100_000_000 };
        assert_eq!(
            schedule.step(Duration::from_secs(10), spent),
            Change::End,
            "a second is too much"
        );
    }
}
