//! Sampling watchpoints: places the watchpoints that nobody has named, four at a time, on memory that threads share.
//!
//! Memory that two threads have accessed precedes memory of one, and shorter-watched memory precedes longer-watched. A
//! watchpoint stays while more than one thread hits it, at most for [`LONG`] when others wait; else it moves on after
//! [`SHORT`]. One that is hit so often that it would exceed its bound is lifted for [`COOLDOWN`], as in DataCollider
//! (Erickson et al., OSDI 2010, §3).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use capture::kernel::Kernel;
use events::source::Source;
use plan::memory::watch_spec::MAX_WATCHPOINTS;

/// Stay of a watchpoint that no thread or only one hits.
const SHORT: Duration = Duration::from_millis(100);

/// Longest stay of a watchpoint where threads meet, when others wait.
const LONG: Duration = Duration::from_millis(500);

/// For how long nothing is watched where it would cost too much.
const COOLDOWN: Duration = Duration::from_secs(1);

/// A range that is watched, or was.
#[derive(Clone, Copy, Debug)]
struct Watched {
    length: u64,
    time: Duration,
    hits: u64,
    rests_until: Option<Instant>,
}

/// Place of a watchpoint.
#[derive(Clone, Copy, Debug)]
struct Slot {
    address: u64,
    since: Instant,
    /// Number of its hits before.
    before: u64,
}

/// The watchpoints that move.
#[derive(Debug)]
pub(crate) struct Sampler {
    slots: Vec<Option<Slot>>,
    watched: BTreeMap<u64, Watched>,
    started: Instant,
}

/// For how long a range was watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// In percent of the run.
    pub(crate) share: f64,
    pub(crate) hits: u64,
}

impl Sampler {
    /// Takes the watchpoints that are left in these threads and those that they will create.
    pub(crate) fn new(kernel: &mut Kernel, threads: &[u32]) -> Self {
        let slots = kernel.keep_samples(threads, MAX_WATCHPOINTS);
        Self { slots: vec![None; slots], watched: BTreeMap::new(), started: Instant::now() }
    }

    pub(crate) fn without() -> Self {
        Self { slots: Vec::new(), watched: BTreeMap::new(), started: Instant::now() }
    }

    pub(crate) fn hits(&self, kernel: &Kernel) -> u64 {
        (0..self.slots.len()).map(|number| kernel.sample_hits(number)).sum()
    }

    /// Moves watchpoints on. With `costly`, those that are hit rest.
    pub(crate) fn tick(&mut self, kernel: &mut Kernel, source: &mut Source, costly: bool) {
        let now = Instant::now();
        for address in source.watches_mut().take_freed() {
            self.watched.remove(&address);
            for number in 0..self.slots.len() {
                if self.slots[number].is_some_and(|slot| slot.address == address) {
                    self.lift(number, kernel, now);
                }
            }
        }
        // The memory there may have a name by now.
        for number in 0..self.slots.len() {
            let length = |slot: Slot| self.watched.get(&slot.address).map_or(1, |of| of.length);
            if self.slots[number]
                .is_some_and(|slot| source.watches().is_named(slot.address, length(slot)))
            {
                self.lift(number, kernel, now);
            }
        }
        if costly {
            for number in 0..self.slots.len() {
                let Some(slot) = self.slots[number] else { continue };
                if kernel.sample_hits(number) == slot.before {
                    continue;
                }
                self.lift(number, kernel, now);
                if let Some(watched) = self.watched.get_mut(&slot.address) {
                    watched.rests_until = Some(now + COOLDOWN);
                }
            }
            return;
        }
        let mut due: Vec<usize> = (0..self.slots.len())
            .filter(|&number| self.is_due(number, kernel, source, now))
            .collect();
        if due.is_empty() {
            return;
        }
        // Watchpoints that are nowhere come first.
        due.sort_by_key(|&number| self.slots[number].is_some());
        let next = self.next(due.len(), source, now);
        for (number, (address, length)) in due.into_iter().zip(next) {
            self.lift(number, kernel, now);
            source.watches_mut().add_sample(address, length);
            if kernel.sample(number, Some((address, length))).is_ok() {
                let before = kernel.sample_hits(number);
                self.slots[number] = Some(Slot { address, since: now, before });
                self.watched.entry(address).or_insert(Watched {
                    length,
                    time: Duration::ZERO,
                    hits: 0,
                    rests_until: None,
                });
            }
        }
    }

    /// Returns whether a watchpoint may move to another place, should one wait.
    fn is_due(&self, number: usize, kernel: &Kernel, source: &Source, now: Instant) -> bool {
        let Some(slot) = self.slots[number] else { return true };
        let stayed = now - slot.since;
        if stayed < SHORT {
            return false;
        }
        let meets = || {
            source.shared_words().is_shared(slot.address)
                && kernel.sample_hits(number) > slot.before
        };
        stayed >= LONG || !meets()
    }

    /// Returns the addresses and lengths to watch next, at most `most` of them, the best first.
    fn next(&self, most: usize, source: &Source, now: Instant) -> Vec<(u64, u64)> {
        let mut waiting: Vec<(bool, Duration, u64, u64)> = source
            .shared_words()
            .candidates()
            .filter_map(|(word, of)| {
                let (offset, length) = of.part();
                let address = word + offset;
                if source.watches().is_named(address, length) {
                    return None;
                }
                let known = self.watched.get(&address);
                let rests = known.and_then(|known| known.rests_until).is_some_and(|end| end > now);
                let is_on = self.slots.iter().flatten().any(|slot| slot.address == address);
                let time = known.map_or(Duration::ZERO, |known| known.time);
                (!rests && !is_on).then_some((!of.is_shared, time, address, length))
            })
            .collect();
        if waiting.len() > most {
            waiting.select_nth_unstable(most);
            waiting.truncate(most);
        }
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, _, address, length)| (address, length)).collect()
    }

    /// Takes a watchpoint away from where it is.
    fn lift(&mut self, number: usize, kernel: &mut Kernel, now: Instant) {
        let Some(slot) = self.slots[number].take() else { return };
        // It is moved soon, or the threads are gone.
        let _ = kernel.sample(number, None);
        let hits = kernel.sample_hits(number) - slot.before;
        if let Some(watched) = self.watched.get_mut(&slot.address) {
            watched.time += now - slot.since;
            watched.hits += hits;
        }
    }

    /// Returns the share of the run for which each range was watched, the longest first.
    pub(crate) fn shares(mut self, kernel: &mut Kernel) -> Vec<Share> {
        let now = Instant::now();
        (0..self.slots.len()).for_each(|number| self.lift(number, kernel, now));
        let whole = (now - self.started).as_secs_f64().max(f64::MIN_POSITIVE);
        let mut shares: Vec<Share> = self
            .watched
            .into_iter()
            .map(|(address, Watched { length, time, hits, .. })| {
                let share = (100.0 * time.as_secs_f64() / whole).min(100.0);
                Share { address, length, share, hits }
            })
            .collect();
        shares.sort_by(|one, other| other.share.total_cmp(&one.share));
        shares
    }
}
