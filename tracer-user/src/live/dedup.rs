//! Who tells an access that a probe and a watchpoint that moves may both see: the probe, while it is attached.
//!
//! Probes are detached and attached while the program runs and records wait to be read, and the two records of an access
//! are some instructions apart: around a change both may come, in either order, or one alone. An access that is told
//! twice, with another thread's in between, would be a cycle that never was; so where it is not known that a record is the
//! only one, it does not count.

use checker::event::ThreadId;
use rustc_hash::{FxHashMap, FxHashSet};

/// An access: its thread, its instruction, and the eight bytes at a multiple of eight that it touches.
type Access = (ThreadId, u64, u64);

/// Accesses that were told of late, and which probes are detached.
#[derive(Debug, Default)]
pub struct Told {
    /// Groups of probes that are detached: how often that had been when they were, and how many threads there had been.
    detached: FxHashMap<usize, (u64, usize)>,
    /// How often groups were detached.
    changes: u64,
    /// What probes have told whose group was detached when their records came: hits of the same may follow.
    by_probes: FxHashSet<Access>,
    /// What hits have told: probes may tell the same when they are attached again.
    by_hits: FxHashSet<Access>,
    /// Where the hit after a change was passed over already, and after which: the access may have been under way.
    settled: FxHashMap<Access, u64>,
    /// Instructions that touch much at once: hits of these do not count.
    long: FxHashSet<u64>,
}

/// So much is kept of one access, in bytes.
const LONG: u64 = 64;

impl Told {
    /// The probes of a group are attached.
    pub fn attached(&mut self, group: usize) {
        self.detached.remove(&group);
    }

    /// The probes of a group are detached; so many threads were seen so far.
    pub fn detached(&mut self, group: usize, threads: usize) {
        self.changes += 1;
        self.detached.insert(group, (self.changes, threads));
    }

    /// Whether what a probe tells counts.
    pub fn by_probe(
        &mut self,
        thread: ThreadId,
        (group, instruction): (usize, u64),
        (address, bytes): (u64, u64),
    ) -> bool {
        if self.detached.is_empty() && self.by_hits.is_empty() {
            return true;
        }
        if bytes > LONG {
            self.long.insert(instruction);
            return true;
        }
        let words = (address & !7..address.saturating_add(bytes)).step_by(8);
        let accesses = words.map(|word| (thread, instruction, word));
        let mut is_first = true;
        for access in accesses.clone() {
            is_first &= !self.by_hits.remove(&access);
        }
        if is_first && self.detached.contains_key(&group) {
            self.by_probes.extend(accesses);
        }
        is_first
    }

    /// Whether what a watchpoint tells counts, of an instruction that has a probe.
    pub fn by_hit(
        &mut self,
        thread: ThreadId,
        (group, instruction): (usize, u64),
        address: u64,
    ) -> bool {
        let Some(&(change, threads)) = self.detached.get(&group) else { return false };
        let access = (thread, instruction, address & !7);
        if self.long.contains(&instruction) || self.by_probes.remove(&access) {
            return false;
        }
        // The probe may have told of it just before it was detached.
        let was_there = thread.index() < threads;
        if was_there && self.settled.insert(access, change) != Some(change) {
            return false;
        }
        self.by_hits.insert(access);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ThreadId = ThreadId(0);
    const NEW: ThreadId = ThreadId(1);
    const PLACE: (usize, u64) = (3, 0x40_1000);
    const AT: u64 = 0x1004;

    fn probe(told: &mut Told, thread: ThreadId) -> bool {
        told.by_probe(thread, PLACE, (AT, 4))
    }

    fn hit(told: &mut Told, thread: ThreadId) -> bool {
        told.by_hit(thread, PLACE, AT)
    }

    #[test]
    fn an_attached_probe_tells_alone() {
        let mut told = Told::default();
        for _ in 0..3 {
            assert!(probe(&mut told, OLD));
            assert!(!hit(&mut told, OLD));
        }
    }

    #[test]
    fn records_that_are_read_after_a_change_are_of_before() {
        let mut told = Told::default();
        assert!(probe(&mut told, OLD));
        told.detached(PLACE.0, 1);
        assert!(!hit(&mut told, OLD), "the hit of what was told before the change");
        for thread in [OLD, NEW] {
            // The probe is before the instruction.
            for _ in 0..3 {
                assert!(probe(&mut told, thread));
                assert!(!hit(&mut told, thread));
            }
        }
        assert!(hit(&mut told, OLD) && hit(&mut told, NEW), "from now on the watchpoint tells");
    }

    #[test]
    fn a_probe_after_its_instruction_may_come_second() {
        let mut told = Told::default();
        told.detached(PLACE.0, 1);
        assert!(hit(&mut told, NEW));
        assert!(!probe(&mut told, NEW));
        told.attached(PLACE.0);
        assert!(probe(&mut told, NEW), "this is the next one");
        assert!(!hit(&mut told, NEW));
        told.detached(PLACE.0, 2);
        assert!(!hit(&mut told, NEW), "it may have been under way");
        assert!(hit(&mut told, NEW));
        told.attached(PLACE.0);
        assert!(!probe(&mut told, NEW), "it was told before the probe was attached");
        assert!(probe(&mut told, NEW));
    }

    #[test]
    fn each_word_counts_by_itself() {
        let mut told = Told::default();
        told.detached(PLACE.0, 0);
        assert!(told.by_probe(OLD, PLACE, (0x1000, 16)));
        assert!(!told.by_hit(OLD, PLACE, 0x1000) && !told.by_hit(OLD, PLACE, 0x1008));
        assert!(told.by_hit(OLD, PLACE, 0x1010), "another address");
        assert!(told.by_probe(OLD, PLACE, (0x1000, 4096)));
        assert!(!told.by_hit(OLD, PLACE, 0x1800), "not all of it is kept");
    }
}
