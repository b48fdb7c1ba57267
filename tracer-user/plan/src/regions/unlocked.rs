//! Default regions that take no lock: functions that access one place in shared memory twice, and that several threads
//! can run. Decides from machine code, the call graph and debug information; places no probe.
//!
//! In a program with locks most code works on data that locks guard: regions there would cost and find little. So these
//! functions are candidates only where few functions take locks, in modules that can be probed as a whole. Functions
//! without calls and loops are excluded: they run most often, and their steps are a few instructions apart.

use std::collections::{BTreeMap, HashSet};

use symbolize::LinkAddr;
use x86::{
    call_graph::Callee,
    shared_places::{SharedAccess, SharedAccesses, SharedPlace},
};

use super::{
    analysis::Analysis,
    defaults::{Candidate, CandidatePlace, role_of},
    known_names::{atomic_operation, is_library},
    reason::Reason,
    source_functions::{Inlining, Unit, source_symbol},
    thread_starts::CodeQueries,
};

/// Number of candidates with locks or atomic operations from which on functions without them are excluded.
const FEW: usize = 8;

/// Number of these candidates at most, of a module.
const MAX_UNLOCKED: usize = 64;

/// Class of these candidates: after all others.
const CLASS: u32 = 6;

/// Two accesses to one place in a function.
#[derive(Clone, Copy, Debug)]
struct Pair {
    first: LinkAddr,
    second: LinkAddr,
    is_global: bool,
    /// Set if there is a call or a loop in between.
    is_long: bool,
    /// Set if a function that is called makes one of them.
    is_called: bool,
}

/// Limit of nested calls through which accesses are looked for.
const MAX_DEPTH: usize = 3;

/// Limit of the accesses of a function and of its callees together.
const MAX_ACCESSES: usize = 200;

impl Analysis<'_, '_> {
    /// Adds the functions that take no lock, if few others are candidates.
    pub(super) fn add_unlocked(&mut self, code: CodeQueries<'_>, candidates: &mut Vec<Candidate>) {
        let is_likely = |one: &&Candidate| one.excluded.is_none();
        if candidates.iter().filter(is_likely).count() >= FEW {
            return;
        }
        let Some(shared) = code.shared else { return };
        let run_by_threads = self.run_by_threads(code);
        if run_by_threads.is_empty() {
            return;
        }
        let all: Vec<SharedAccesses> = (0..self.facts.len()).map(shared).collect();
        let changing = changing(&all);
        let pairs: BTreeMap<usize, Vec<Pair>> = run_by_threads
            .into_iter()
            .filter(|&function| !self.functions.get(function).is_none_or(|own| own.is_startup()))
            .filter(|&function| !all[function].long.is_empty())
            .filter(|&function| !self.is_of_test_framework(function))
            .map(|function| {
                let inline = self.inline(function);
                let is_lock = |at| inline.is_some_and(|inline| inline.accesses.contains(&at));
                let mut accesses = self.with_callees(&all, function, MAX_DEPTH);
                accesses.sort_by_key(|access| access.at);
                let mut found = pairs(&accesses, &all[function].long, &changing);
                found.retain(|pair| !is_lock(pair.first) && !is_lock(pair.second));
                (function, found)
            })
            .filter(|&(function, _)| {
                self.functions.get(function).is_some_and(|own| self.own_locks.role(own).is_none())
            })
            .filter(|(_, pairs)| !pairs.is_empty())
            .collect();
        let mut instructions: Vec<LinkAddr> =
            pairs.values().flatten().flat_map(|pair| [pair.first, pair.second]).collect();
        instructions.sort_unstable();
        instructions.dedup();
        self.inlining = Inlining::new((code.inlined)(&instructions), self.functions);
        let mut found: BTreeMap<Unit, (usize, u32)> = BTreeMap::new();
        for (&function, pairs) in &pairs {
            for pair in pairs {
                let Some(unit) = self.unit_of(function, pair) else { continue };
                let facts = [pair.is_called, !pair.is_long, !pair.is_global];
                let rank = facts.into_iter().fold(0, |rank, fact| rank << 1 | u32::from(fact));
                let known = found.entry(unit).or_insert((function, rank));
                known.1 = known.1.min(rank);
            }
        }
        self.add_other_copies(&pairs, &mut found);
        let functions = self.functions;
        let entry = |one: &Candidate| one.place.entry(functions);
        let known: HashSet<LinkAddr> = candidates.iter().filter_map(entry).collect();
        let mut unlocked: Vec<Candidate> = found
            .into_iter()
            .filter_map(|(unit, (function, rank))| self.unlocked(function, unit, rank))
            .filter(|one| entry(one).is_some_and(|entry| !known.contains(&entry)))
            .collect();
        unlocked.sort_by_key(|candidate| candidate.rank);
        unlocked.truncate(MAX_UNLOCKED);
        candidates.extend(unlocked);
    }

    /// The accesses of a function, and those of the functions that it calls, at their calls: to global variables,
    /// behind those, and behind pointers that it passes on.
    fn with_callees(
        &self,
        all: &[SharedAccesses],
        function: usize,
        depth: usize,
    ) -> Vec<SharedAccess> {
        let mut found = all[function].accesses.clone();
        for call in self.facts[function].calls.iter().filter(|call| call.returns && depth > 0) {
            let passed = all[function].calls.iter().find(|passed| passed.at == call.at);
            if let (Callee::Own(callee), Some(passed)) = (&call.callee, passed)
                && *callee != function
                && found.len() < MAX_ACCESSES
            {
                let inner = self.with_callees(all, *callee, depth - 1).into_iter();
                found.extend(inner.filter_map(|access| {
                    Some(SharedAccess {
                        at: call.at,
                        place: passed.outside(access.place)?,
                        ..access
                    })
                }));
            }
        }
        found
    }

    /// The functions that threads other than the first can run: what threads start with, what may be called through
    /// pointers, and what these call.
    fn run_by_threads(&self, code: CodeQueries<'_>) -> HashSet<usize> {
        let creates = self.creating.contains(&true);
        if !creates && self.starts.starts.is_empty() && self.starts.mains.is_empty() {
            return HashSet::new();
        }
        let taken = self.facts.iter().flat_map(|facts| facts.takes.iter().copied());
        let pointed = code.pointers.iter().filter_map(|(_, pointee)| pointee.own());
        let is_main =
            |function: &usize| self.functions.get(*function).is_none_or(|own| own.symbol == "main");
        let mut todo: Vec<usize> = taken
            .chain(pointed)
            .chain(self.starts.starts.iter().copied())
            .chain(self.starts.mains.iter().copied())
            .filter(|function| !is_main(function))
            .collect();
        let mut all: HashSet<usize> = todo.iter().copied().collect();
        while let Some(function) = todo.pop() {
            for call in &self.facts[function].calls {
                if let Callee::Own(callee) = call.callee
                    && all.insert(callee)
                {
                    todo.push(callee);
                }
            }
        }
        all
    }

    /// The innermost unit that makes both accesses, each of them by itself or through what was inlined into it. `None`
    /// where a step of a library's function does.
    fn unit_of(&self, function: usize, pair: &Pair) -> Option<Unit> {
        let [first, second] =
            [pair.first, pair.second].map(|at| self.inlining.around(function, at));
        let both = first.iter().zip(&second).take_while(|(one, other)| one == other);
        let common: Vec<usize> = both.map(|(&number, _)| number).collect();
        let Some(&innermost) = common.last() else { return Some(Unit::Function(function)) };
        if atomic_operation(&self.inlining.names[innermost]).is_some() {
            return None;
        }
        let own = common.iter().rev().find(|&&number| !self.inlining.is_library(number));
        Some(own.map_or(Unit::Function(function), |&number| Unit::Inlined(number)))
    }

    /// Adds the other inlined calls of the same functions: they are the same source.
    fn add_other_copies(
        &self,
        pairs: &BTreeMap<usize, Vec<Pair>>,
        found: &mut BTreeMap<Unit, (usize, u32)>,
    ) {
        let symbol = |unit: &Unit| match *unit {
            Unit::Function(function) => {
                self.functions.get(function).map(|own| source_symbol(&own.symbol).to_owned())
            }
            Unit::Inlined(number) => Some(self.inlining.calls[number].symbol.clone()),
        };
        let known: BTreeMap<String, u32> =
            found.iter().filter_map(|(unit, &(_, rank))| Some((symbol(unit)?, rank))).collect();
        for (number, call) in self.inlining.calls.iter().enumerate() {
            let Some(&rank) = known.get(&call.symbol) else { continue };
            let Some(function) = self.functions.containing(call.entry) else { continue };
            let is_inside = |pair: &Pair| call.contains(pair.first) || call.contains(pair.second);
            if pairs.get(&function).is_some_and(|pairs| pairs.iter().any(is_inside)) {
                found.entry(Unit::Inlined(number)).or_insert((function, rank));
            }
        }
    }

    fn unlocked(&self, function: usize, unit: Unit, rank: u32) -> Option<Candidate> {
        let own = self.functions.get(function)?;
        let name = match unit {
            Unit::Function(_) => &own.name,
            Unit::Inlined(number) => &self.inlining.names[number],
        };
        // The code of a lock accesses the lock, and guarded data has the lock's candidates. What surrounds an inlined
        // function may take locks for other data.
        let mut own_calls = self.facts[function].calls.iter();
        let takes = own_calls.any(|call| {
            self.inlining.contains(unit, call.at)
                && (self.lock.of(call).is_some() || self.release.of(call).is_some())
        });
        if is_library(name) || takes || self.own_locks.role(own).is_some() {
            return None;
        }
        let role_reason = self.role_reason(function, unit);
        let role = role_of(role_reason.as_ref());
        let place = match unit {
            Unit::Function(_) => CandidatePlace::Function(function),
            Unit::Inlined(number) => self.inlined_place(number, function),
        };
        let (why, excluded) = (Reason::AccessesTwice, None);
        Some(Candidate { place, why, role, role_reason, excluded, rank: CLASS << 16 | rank })
    }
}

/// The global variables that code writes or takes the address of, by address: others are constant while threads run.
fn changing(all: &[SharedAccesses]) -> HashSet<LinkAddr> {
    let written = all.iter().flat_map(|one| &one.accesses).filter(|access| access.is_write);
    let written = written.filter_map(|access| match access.place {
        SharedPlace::Global(at) => Some(at),
        SharedPlace::Field(..) => None,
    });
    written.chain(all.iter().flat_map(|one| one.taken.iter().copied())).collect()
}

/// The pairs of accesses of a function between which others can get in: one after the other to one place, and not both
/// additions.
fn pairs(accesses: &[SharedAccess], long: &[LinkAddr], changing: &HashSet<LinkAddr>) -> Vec<Pair> {
    let mut last: BTreeMap<SharedPlace, SharedAccess> = BTreeMap::new();
    let mut found = Vec::new();
    for &access in accesses {
        let is_global = match access.place {
            SharedPlace::Global(at) if !changing.contains(&at) => continue,
            SharedPlace::Global(_) => true,
            SharedPlace::Field(..) => false,
        };
        let before = last.insert(access.place, access);
        // Both may be in one call, whose function makes the pair.
        let is_pair =
            |before: &SharedAccess| before.at != access.at && !(before.adds && access.adds);
        if let Some(before) = before.filter(is_pair) {
            let (first, second) = (before.at, access.at);
            let is_long = long.iter().any(|at| (first..second).contains(at));
            let is_called = [first, second].iter().any(|at| long.contains(at));
            found.push(Pair { first, second, is_global, is_long, is_called });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOBAL: SharedPlace = SharedPlace::Global(LinkAddr(0x4000));

    fn access(at: u64, place: SharedPlace, is_write: bool, adds: bool) -> SharedAccess {
        SharedAccess { at: LinkAddr(at), place, is_write, adds }
    }

    #[test]
    fn a_place_that_is_accessed_twice_makes_a_pair() {
        let other = SharedPlace::Global(LinkAddr(0x4008));
        let shared = SharedAccesses {
            accesses: vec![
                access(0x10, GLOBAL, false, false),
                access(0x20, other, false, false),
                access(0x30, GLOBAL, true, false),
                access(0x40, other, false, false),
            ],
            taken: Vec::new(),
            long: vec![LinkAddr(0x20)],
            ..SharedAccesses::default()
        };
        let found = pairs(&shared.accesses, &shared.long, &changing(std::slice::from_ref(&shared)));
        let [Pair { first: LinkAddr(0x10), second: LinkAddr(0x30), is_global, is_long, .. }] =
            found[..]
        else {
            panic!("nobody writes the other: {found:?}")
        };
        assert!(is_global && is_long);
    }

    #[test]
    fn additions_are_no_steps() {
        let accesses = vec![access(0x10, GLOBAL, true, true), access(0x20, GLOBAL, true, true)];
        let shared = SharedAccesses { accesses, ..SharedAccesses::default() };
        let changing = changing(std::slice::from_ref(&shared));
        assert!(pairs(&shared.accesses, &shared.long, &changing).is_empty());
    }
}
