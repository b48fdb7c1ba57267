//! Stops of a process by the kernel side, by their numbers: which of them a record announces, and what is to be done.
//!
//! The kernel side numbers the stops of each process from 1, and puts the number into the record of what it stops for:
//! a new program (`Exec`), a change of libraries (`Libraries`), a child before its first instruction (`Start`). 0 says
//! that it could not stop the process. The state is the number of the latest stop that was dealt with, and whether one
//! is *open*: its thread had ended before it could be held, so that the process may still stand.
//!
//! | state        | number          | Exec                  | Libraries, Start   |
//! |--------------|-----------------|-----------------------|--------------------|
//! | latest, –    | 0               | RanOn ⇢ new           | RanOn ⇢ same       |
//! | latest, open | 0               | MayStand ⇢ new        | RanOn ⇢ same       |
//! | any          | 1 ..= latest    | Ignore ⇢ same         | Ignore ⇢ same      |
//! | any          | above latest    | Seize ⇢ new           | Seize ⇢ number     |
//!
//! *new*: the state of the new program begins with the number, or with the latest one where that is 0, and none open.
//! After `Libraries` and `Start` the stop is open if its thread had ended, and one that was open stays so.

use abi::Kind;

/// Reaction to the record of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing: the stop was dealt with, on the way from another one.
    Ignore,
    /// Awaiting the stop and seizing the thread.
    Seize,
    /// Changes to a process that runs.
    RanOn,
    /// Changes to a process that may stand, in a stop that no record will announce.
    MayStand,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stops {
    latest: u32,
    is_open: bool,
}

impl Stops {
    /// Returns the reaction to a record of this kind with this number.
    pub(super) const fn reaction(self, kind: Kind, number: u32) -> Reaction {
        match number {
            0 if matches!(kind, Kind::Exec) && self.is_open => Reaction::MayStand,
            0 => Reaction::RanOn,
            _ if number <= self.latest => Reaction::Ignore,
            _ => Reaction::Seize,
        }
    }

    /// Notes that a stop was dealt with; `is_open` if its thread had ended before it could be held.
    pub(super) fn pass(&mut self, number: u32, is_open: bool) {
        self.latest = self.latest.max(number);
        self.is_open |= is_open;
    }

    /// Returns the stops of the next program of the process, which begins with the stop of this number, or with none
    /// (0).
    pub(super) const fn of_next_program(self, number: u32) -> Self {
        let latest = if number > self.latest { number } else { self.latest };
        Self { latest, is_open: false }
    }

    /// Returns the number of the latest stop that was dealt with.
    pub(super) const fn latest(self) -> u32 {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::{Reaction::*, *};

    const LATEST: u32 = 5;
    const NUMBERS: [u32; 5] = [0, 1, LATEST, LATEST + 1, LATEST + 2];

    /// Returns the reaction and the next state, where the thread had ended if `is_open`.
    fn meet(mut stops: Stops, kind: Kind, number: u32, is_open: bool) -> (Reaction, Stops) {
        let reaction = stops.reaction(kind, number);
        match (reaction, kind) {
            (Ignore, _) => {}
            (_, Kind::Exec) => stops = stops.of_next_program(number),
            _ => stops.pass(number, is_open && reaction == Seize),
        }
        (reaction, stops)
    }

    #[test]
    fn the_table_is_followed() {
        for is_open in [false, true] {
            let stops = Stops { latest: LATEST, is_open };
            let new = |latest| Stops { latest, is_open: false };
            let unstopped = if is_open { MayStand } else { RanOn };
            let exec = [
                (unstopped, new(LATEST)),
                (Ignore, stops),
                (Ignore, stops),
                (Seize, new(LATEST + 1)),
                (Seize, new(LATEST + 2)),
            ];
            for (number, expected) in NUMBERS.into_iter().zip(exec) {
                assert_eq!(meet(stops, Kind::Exec, number, false), expected, "{number}");
            }
            for kind in [Kind::Libraries, Kind::Start] {
                for had_ended in [false, true] {
                    let passed = |latest| Stops { latest, is_open: is_open || had_ended };
                    let others = [
                        (RanOn, stops),
                        (Ignore, stops),
                        (Ignore, stops),
                        (Seize, passed(LATEST + 1)),
                        (Seize, passed(LATEST + 2)),
                    ];
                    for (number, expected) in NUMBERS.into_iter().zip(others) {
                        let met = meet(stops, kind, number, had_ended);
                        assert_eq!(met, expected, "{kind:?} {number}");
                    }
                }
            }
        }
    }
}
