//! Schedules as text: which thread goes how far. They are about all places, so that they mean the same whichever of
//! them an exploration switches at.

use std::{fmt, str::FromStr};

/// Threads in the order in which they pass a place each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Threads and how many places each passes in a row.
    parts: Vec<(usize, u64)>,
}

/// Error in the text of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no schedule: threads and places that each passes are needed, such as `1x12,2,1x3`, as a report has them"
)]
pub struct ScheduleError(String);

impl Schedule {
    /// Adds a place that a thread passes.
    pub fn push(&mut self, thread: usize) {
        match self.parts.last_mut() {
            Some((last, times)) if *last == thread => *times += 1,
            _ => self.parts.push((thread, 1)),
        }
    }

    /// Iterates over the threads, one for each place.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let times = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        self.parts
            .iter()
            .flat_map(move |&(thread, count)| std::iter::repeat_n(thread, times(count)))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (thread, times)) in self.parts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{thread}")?;
            if *times > 1 {
                write!(f, "x{times}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let part = |part: &str| {
            let (thread, times) = part.split_once('x').unwrap_or((part, "1"));
            let (thread, times) = (thread.parse().ok()?, times.parse().ok()?);
            (times > 0).then_some((thread, times))
        };
        let parts = text.split(',').map(part).collect::<Option<Vec<_>>>();
        parts.map(|parts| Self { parts }).ok_or_else(|| ScheduleError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_written_and_read() {
        let mut schedule = Schedule::default();
        [1, 1, 2, 1, 1, 1, 0].into_iter().for_each(|thread| schedule.push(thread));
        assert_eq!(schedule.to_string(), "1x2,2,1x3,0");
        assert_eq!("1x2,2,1x3,0".parse(), Ok(schedule.clone()));
        assert_eq!(schedule.iter().collect::<Vec<_>>(), [1, 1, 2, 1, 1, 1, 0]);
        for text in ["", "x", "1x", "1x0", "1,,2", "-1", "1 2"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
