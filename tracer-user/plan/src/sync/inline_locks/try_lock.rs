//! Locks that are tried once: a compare-and-exchange without a slow path, found by the release of the lock, or
//! by the name of the function around it.

use std::collections::BTreeMap;

use abi::FlagCondition;
use iced_x86::{Code, FlowControl, Mnemonic};
use x86::{
    dataflow::{Dataflow, RESULT, Value, number},
    exits::Part,
};

use super::{
    Finder, Helper, InlinedPoint, InlinedSite, MAX_TEST_DISTANCE, Surroundings, operand::locate,
};
use crate::sync::slow_paths::FastPath;

/// Finds where a function of the library that does nothing but try to take a lock has it, by the one atomic
/// instruction in it, or the call that stands for one: the place of that, and the point to probe.
#[must_use]
pub fn tried_lock(
    parts: &[Part<'_>],
    surroundings: &Surroundings<'_>,
) -> Option<(u64, InlinedPoint)> {
    let is_slot = |slot: u64| (surroundings.in_slot)(slot).is_some();
    let values = Dataflow::analyze(parts, &is_slot, surroundings.word_at)?;
    let finder = Finder { values, surroundings, is_slot: &is_slot };
    let mut found = (0..finder.values.instructions().len()).filter(|&index| {
        matches!(finder.helper(index), Some(Helper::CompareExchange | Helper::Atomic))
            || (finder.is_atomic(index)
                && finder.instruction(index).mnemonic() == Mnemonic::Cmpxchg)
    });
    let (Some(index), None) = (found.next(), found.next()) else { return None };
    let lock = finder.address_at(index)?;
    let point = finder.point_at_test(index, lock)?;
    Some((finder.instruction(index).ip(), point))
}

impl Finder<'_> {
    /// Finds compare-and-exchange instructions on locks that are released in this function, or are known from
    /// elsewhere: a single attempt has no slow path.
    pub(crate) fn tries(&self, sites: &mut BTreeMap<u64, InlinedSite>) {
        let release: Vec<(Value, usize, FastPath)> = sites
            .values()
            .filter(|site| !site.fast.acquires())
            .filter_map(|site| {
                let lock = self.address_at(self.values.at(site.at)?)?;
                Some((lock, site.slow_path, site.fast))
            })
            .collect();
        for (index, instruction) in self.values.instructions().iter().enumerate() {
            let at = instruction.ip();
            if sites.contains_key(&at) {
                continue;
            }
            if let Some(flag) = self.loaded_at(index)
                && let Some((slow_path, fast @ FastPath::PassOnce)) =
                    flag.as_constant().and_then(|flag| (self.surroundings.static_lock)(flag))
                && let Some(point) = self.equal_after(index, flag)
            {
                sites.insert(at, InlinedSite { at, fast, slow_path, points: vec![point] });
            }
            if instruction.mnemonic() != Mnemonic::Cmpxchg || !self.is_atomic(index) {
                continue;
            }
            let Some(lock) = self.address_at(index) else { continue };
            let elsewhere = || {
                let (slow_path, fast) = (self.surroundings.static_lock)(lock.as_constant()?)?;
                Some((lock, slow_path, fast))
            };
            let known =
                release.iter().copied().filter(|(known, ..)| *known == lock).chain(elsewhere());
            for (_, slow_path, release) in known {
                let Some(fast) = self.tried(index, release) else { continue };
                let Some(point) = self.point_at_test(index, lock) else { continue };
                sites.insert(at, InlinedSite { at, fast, slow_path, points: vec![point] });
                break;
            }
        }
    }

    /// Returns the mode in which a successful compare-and-exchange acquires a lock, from its release.
    fn tried(&self, index: usize, release: FastPath) -> Option<FastPath> {
        let state = self.before(index)?;
        let is_byte = self.instruction(index).code() == Code::Cmpxchg_rm8_r8;
        let expected = state.register(RESULT).as_constant();
        let new = number(self.instruction(index).op1_register())
            .and_then(|register| state.register(register).as_constant());
        match (expected, new, release) {
            // This would be a release.
            (_, Some(0), _) => None,
            (Some(0), Some(_), FastPath::Release | FastPath::ReleaseEither) => {
                Some(FastPath::Acquire)
            }
            // parking_lot's mutex is a byte.
            (None, None, FastPath::Release) if is_byte => Some(FastPath::Acquire),
            (_, None, FastPath::ReleaseShared) => Some(FastPath::AcquireShared),
            _ => None,
        }
    }

    /// The instruction that looks at a compare-and-exchange's result first; where it is a call, that is a number, of
    /// which 0 is success.
    fn point_at_test(&self, atomic: usize, lock: Value) -> Option<InlinedPoint> {
        let mut index = atomic;
        let mut tested = self.is_atomic(atomic);
        for _ in 0..MAX_TEST_DISTANCE {
            let [next] = self.values.successors(index)[..] else { return None };
            index = next;
            let instruction = self.instruction(index);
            if instruction.flow_control() == FlowControl::ConditionalBranch
                || matches!(instruction.mnemonic(), Mnemonic::Sete | Mnemonic::Setne)
            {
                if !tested {
                    return None;
                }
                let lock = locate(&self.before(index)?, lock)?;
                let address = instruction.ip();
                let exchanged = Some(FlagCondition::EQUAL);
                return Some(InlinedPoint { address, lock, condition: exchanged });
            }
            let is_test = !self.is_atomic(atomic)
                && instruction.mnemonic() == Mnemonic::Cmp
                && number(instruction.op0_register()) == Some(RESULT)
                && instruction.immediate(1) == 0;
            if instruction.flow_control() != FlowControl::Next
                || (instruction.rflags_modified() != 0 && !is_test)
            {
                return None;
            }
            tested |= is_test;
        }
        None
    }
}
