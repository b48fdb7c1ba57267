//! Deduplicates accesses seen by both an instruction probe and a sampling watchpoint. While the probe is attached, its
//! record counts.
//!
//! Probes are detached and attached while the program runs and records wait to be read, and the two records of an
//! access are some instructions apart: around a change both may arrive, in either order, or one alone. An access that
//! counts twice, with another thread's access in between, would be a false cycle. So a record counts only if it is
//! certainly the only one of its access.
//!
//! The table has the states of an access. An access is identified by its thread, its instruction and its word; the
//! probes of the instruction's group are attached or detached. A detachment makes it *unsettled*: the probe's record
//! of an access under way may be read after it. It is *settled* once a hit was discarded, and for a thread that was
//! first seen later. *Probed* has counted from a probe since, *hit* from a watchpoint.
//!
//! | state                 | probe's record | watchpoint's hit | attached | detached |
//! |-----------------------|----------------|------------------|----------|----------|
//! | A: attached           | counts ⇢ A     | discarded ⇢ A    | A        | U        |
//! | AH: attached, hit     | discarded ⇢ A  | discarded ⇢ AH   | AH       | UH       |
//! | AP: attached, probed  | counts ⇢ AP    | discarded ⇢ AP   | AP       | UP       |
//! | U: unsettled          | counts ⇢ UP    | discarded ⇢ S    | A        | U        |
//! | UP: unsettled, probed | counts ⇢ UP    | discarded ⇢ U    | AP       | UP       |
//! | UH: unsettled, hit    | discarded ⇢ U  | discarded ⇢ SH   | AH       | UH       |
//! | S: settled            | counts ⇢ SP    | counts ⇢ SH      | A        | U        |
//! | SP: settled, probed   | counts ⇢ SP    | discarded ⇢ S    | AP       | UP       |
//! | SH: settled, hit      | discarded ⇢ S  | counts ⇢ SH      | AH       | UH       |

use checker::event::ThreadId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::extent::Extent;

/// Identity of an access: thread, instruction, and the aligned eight bytes that it touches.
type AccessKey = (ThreadId, u64, u64);

/// Instruction that has a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedInstruction {
    /// Number of its group.
    pub group: usize,
    /// Process address; of a library function's access, of the call.
    pub instruction: u64,
}

/// Recent accesses around changes, and the groups of probes that are detached.
#[derive(Debug, Default)]
pub struct AccessDedup {
    /// Detached groups of probes: the value of `changes` at that time, and the number of threads seen by then.
    detached: FxHashMap<usize, (u64, usize)>,
    /// Number of detachments so far.
    changes: u64,
    /// Accesses admitted from a probe whose group was detached by the time the record was read: the watchpoint's hit of
    /// the same access may follow.
    probe_records: FxHashSet<AccessKey>,
    /// Accesses admitted from a watchpoint: a probe that is attached again may report the same access.
    watchpoint_records: FxHashSet<AccessKey>,
    /// Accesses whose first hit after a change was discarded, with the number of that change: the access may have been
    /// under way when the probe was detached.
    settled: FxHashMap<AccessKey, u64>,
    /// Instructions with accesses beyond [`MAX_TRACKED_BYTES`]: their hits never count.
    long: FxHashSet<u64>,
}

/// Size of the largest access that is tracked, in bytes.
const MAX_TRACKED_BYTES: u64 = 64;

impl AccessDedup {
    /// Notes that the probes of a group are attached.
    pub fn attached(&mut self, group: usize) {
        self.detached.remove(&group);
    }

    /// Notes that the probes of a group are detached; `threads` is the number of threads seen so far.
    pub fn detached(&mut self, group: usize, threads: usize) {
        self.changes += 1;
        self.detached.insert(group, (self.changes, threads));
    }

    /// Returns whether an access that a probe reports counts.
    pub fn admit_probe(
        &mut self,
        thread: ThreadId,
        probed: ProbedInstruction,
        extent: Extent,
    ) -> bool {
        let ProbedInstruction { group, instruction } = probed;
        let Extent { address, bytes } = extent;
        if self.detached.is_empty() && self.watchpoint_records.is_empty() {
            return true;
        }
        if bytes > MAX_TRACKED_BYTES {
            self.long.insert(instruction);
            return true;
        }
        let words = (address & !7..address.saturating_add(bytes)).step_by(8);
        let accesses = words.map(|word| (thread, instruction, word));
        let mut is_first = true;
        for access in accesses.clone() {
            is_first &= !self.watchpoint_records.remove(&access);
        }
        if is_first && self.detached.contains_key(&group) {
            self.probe_records.extend(accesses);
        }
        is_first
    }

    /// Returns whether a watchpoint's hit counts, for an instruction that has a probe.
    pub fn admit_watchpoint(
        &mut self,
        thread: ThreadId,
        probed: ProbedInstruction,
        address: u64,
    ) -> bool {
        let ProbedInstruction { group, instruction } = probed;
        let Some(&(change, threads)) = self.detached.get(&group) else { return false };
        let access = (thread, instruction, address & !7);
        if self.long.contains(&instruction) || self.probe_records.remove(&access) {
            return false;
        }
        // The probe may have reported it just before it was detached.
        let was_there = thread.index() < threads;
        if was_there && self.settled.insert(access, change) != Some(change) {
            return false;
        }
        self.watchpoint_records.insert(access);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ThreadId = ThreadId(0);
    const NEW: ThreadId = ThreadId(1);
    const PROBED: ProbedInstruction = ProbedInstruction { group: 3, instruction: 0x40_1000 };
    const AT: u64 = 0x1004;

    fn probe(dedup: &mut AccessDedup, thread: ThreadId) -> bool {
        dedup.admit_probe(thread, PROBED, Extent { address: AT, bytes: 4 })
    }

    fn hit(dedup: &mut AccessDedup, thread: ThreadId) -> bool {
        dedup.admit_watchpoint(thread, PROBED, AT)
    }

    #[test]
    fn an_attached_probe_tells_alone() {
        let mut dedup = AccessDedup::default();
        for _ in 0..3 {
            assert!(probe(&mut dedup, OLD));
            assert!(!hit(&mut dedup, OLD));
        }
    }

    #[test]
    fn records_that_are_read_after_a_change_are_of_before() {
        let mut dedup = AccessDedup::default();
        assert!(probe(&mut dedup, OLD));
        dedup.detached(PROBED.group, 1);
        assert!(!hit(&mut dedup, OLD), "the hit of what was dedup before the change");
        for thread in [OLD, NEW] {
            // The probe is before the instruction.
            for _ in 0..3 {
                assert!(probe(&mut dedup, thread));
                assert!(!hit(&mut dedup, thread));
            }
        }
        assert!(
            hit(&mut dedup, OLD) && hit(&mut dedup, NEW),
            "from now on the watchpoint's hits count"
        );
    }

    #[test]
    fn a_probe_after_its_instruction_may_come_second() {
        let mut dedup = AccessDedup::default();
        dedup.detached(PROBED.group, 1);
        assert!(hit(&mut dedup, NEW));
        assert!(!probe(&mut dedup, NEW));
        dedup.attached(PROBED.group);
        assert!(probe(&mut dedup, NEW), "this is the next one");
        assert!(!hit(&mut dedup, NEW));
        dedup.detached(PROBED.group, 2);
        assert!(!hit(&mut dedup, NEW), "it may have been under way");
        assert!(hit(&mut dedup, NEW));
        dedup.attached(PROBED.group);
        assert!(!probe(&mut dedup, NEW), "it was dedup before the probe was attached");
        assert!(probe(&mut dedup, NEW));
    }

    #[test]
    fn each_word_counts_by_itself() {
        let mut dedup = AccessDedup::default();
        dedup.detached(PROBED.group, 0);
        assert!(dedup.admit_probe(OLD, PROBED, Extent { address: 0x1000, bytes: 16 }));
        assert!(
            !dedup.admit_watchpoint(OLD, PROBED, 0x1000)
                && !dedup.admit_watchpoint(OLD, PROBED, 0x1008)
        );
        assert!(dedup.admit_watchpoint(OLD, PROBED, 0x1010), "another address");
        assert!(dedup.admit_probe(OLD, PROBED, Extent { address: 0x1000, bytes: 4096 }));
        assert!(!dedup.admit_watchpoint(OLD, PROBED, 0x1800), "not all of it is kept");
    }

    /// State of the access `AT` of a thread, as the table has it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        A,
        AH,
        AP,
        U,
        S,
        SP,
        SH,
        UP,
        UH,
    }

    fn state(dedup: &AccessDedup, thread: ThreadId) -> State {
        let access = (thread, PROBED.instruction, AT & !7);
        let is_probed = dedup.probe_records.contains(&access);
        let is_hit = dedup.watchpoint_records.contains(&access);
        let Some(&(change, threads)) = dedup.detached.get(&PROBED.group) else {
            return match (is_probed, is_hit) {
                (_, true) => State::AH,
                (true, _) => State::AP,
                _ => State::A,
            };
        };
        let is_settled = thread.index() >= threads || dedup.settled.get(&access) == Some(&change);
        match (is_settled, is_probed, is_hit) {
            (true, false, false) => State::S,
            (false, false, false) => State::U,
            (true, true, _) => State::SP,
            (true, false, true) => State::SH,
            (false, true, _) => State::UP,
            (false, false, true) => State::UH,
        }
    }

    /// Returns a dedup in which the access of the old thread, which each detachment has seen, has this state.
    fn in_state(wanted: State) -> AccessDedup {
        let mut dedup = AccessDedup::default();
        let detach = |dedup: &mut AccessDedup| dedup.detached(PROBED.group, 1);
        let settle = |dedup: &mut AccessDedup| {
            dedup.detached(PROBED.group, 1);
            assert!(!hit(dedup, OLD));
        };
        match wanted {
            State::A => {}
            State::U => detach(&mut dedup),
            State::S => settle(&mut dedup),
            State::SP | State::AP | State::UP => {
                settle(&mut dedup);
                assert!(probe(&mut dedup, OLD));
            }
            State::SH | State::AH | State::UH => {
                settle(&mut dedup);
                assert!(hit(&mut dedup, OLD));
            }
        }
        match wanted {
            State::AH | State::AP => dedup.attached(PROBED.group),
            State::UP | State::UH => detach(&mut dedup),
            _ => {}
        }
        assert_eq!(state(&dedup, OLD), wanted);
        dedup
    }

    #[test]
    fn the_table_is_followed() {
        use State::*;
        // Of a probe's record, and of a hit: whether it counts, and the next state. Then the next states when probes
        // are attached and detached.
        type Step = (bool, State);
        let rows: [(State, Step, Step, State, State); 9] = [
            (A, (true, A), (false, A), A, U),
            (AH, (false, A), (false, AH), AH, UH),
            (AP, (true, AP), (false, AP), AP, UP),
            (U, (true, UP), (false, S), A, U),
            (S, (true, SP), (true, SH), A, U),
            (SP, (true, SP), (false, S), AP, UP),
            (SH, (false, S), (true, SH), AH, UH),
            (UP, (true, UP), (false, U), AP, UP),
            (UH, (false, U), (false, SH), AH, UH),
        ];
        for (before, probed, hits, attached, detached) in rows {
            let mut dedup = in_state(before);
            assert_eq!((probe(&mut dedup, OLD), state(&dedup, OLD)), probed, "{before:?}, probe");
            let mut dedup = in_state(before);
            assert_eq!((hit(&mut dedup, OLD), state(&dedup, OLD)), hits, "{before:?}, hit");
            let mut dedup = in_state(before);
            dedup.attached(PROBED.group);
            assert_eq!(state(&dedup, OLD), attached, "{before:?}, attached");
            let mut dedup = in_state(before);
            dedup.detached(PROBED.group, 1);
            assert_eq!(state(&dedup, OLD), detached, "{before:?}, detached");
        }
    }

    #[test]
    fn a_thread_that_is_seen_later_has_settled() {
        let mut dedup = in_state(State::U);
        assert_eq!(state(&dedup, NEW), State::S);
        assert!(hit(&mut dedup, NEW), "no probe has reported it before");
    }
}
