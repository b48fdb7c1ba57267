//! Places at which threads are delayed (`run --perturb`), as probes of both back ends have them.

use core::mem::size_of;

/// Place at which threads are delayed: `run --perturb`.
///
/// A thread that comes there is delayed if avtrace lives, it is one of those that are meant, fewer than `most` delays
/// were made there, the random number of this passage is below `chance`, and neither it nor all threads together have
/// spent more than their share of the time in delays so far. So the time in delays is at most the share and one delay.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayPlace {
    /// Duration in nanoseconds.
    pub nanoseconds: u64,
    /// Number of delays at most.
    pub most: u64,
    /// Probability of a delay, in 2⁻³²: see [`passes`].
    pub chance: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of passages so far.
    pub passages: u64,
    /// Number of delays so far, and of delays that were refused because there were `most` already.
    pub hits: u64,
    /// Time that threads have spent here, in nanoseconds, without delays that are not over.
    pub delayed: u64,
    /// 0: the futex on which threads sleep with probes in the process, and which nobody wakes.
    pub futex: u64,
    /// Threads that are meant: [`ALL_THREADS`], [`FIRST_THREAD`] or [`OTHER_THREADS`].
    pub threads: u64,
}

/// Each thread that comes to a place is delayed.
pub const ALL_THREADS: u64 = 0;
/// The thread that came to any of the places first is delayed.
pub const FIRST_THREAD: u64 = 1;
/// All threads are delayed except the first one at any of the places.
pub const OTHER_THREADS: u64 = 2;

/// Most places of delays.
pub const DELAY_PLACES: u64 = 256;

/// Length in bytes of the table of [`DelayPlace`]s.
pub const DELAYS_BYTES: u64 = DELAY_PLACES * size_of::<DelayPlace>() as u64;

/// Steps of the random numbers of delays, as in SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
pub const RANDOM: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// Returns whether the random number of a passage, by its number from 0 on, is below a chance in 2⁻³².
#[must_use]
pub const fn passes(seed: u64, passage: u64, chance: u64) -> bool {
    let [step, first, second] = RANDOM;
    let mut number = passage.wrapping_add(1).wrapping_mul(step).wrapping_add(seed);
    number = (number ^ number >> 30).wrapping_mul(first);
    number = (number ^ number >> 27).wrapping_mul(second);
    (number ^ number >> 31) >> 32 < chance
}

const _: () = assert!(size_of::<DelayPlace>() == 128);

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn chances_are_kept_and_depend_on_the_seed() {
        let passed = |seed, chance| (0..10_000).filter(|&n| passes(seed, n, chance)).count();
        assert_eq!((passed(7, 0), passed(7, 1 << 32)), (0, 10_000));
        assert!((4_800..5_200).contains(&passed(7, 1 << 31)));
        let first = |seed| (0..64).filter(|&n| passes(seed, n, 1 << 31)).collect::<Vec<_>>();
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }
}
