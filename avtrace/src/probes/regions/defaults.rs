//! Default regions: functions of the program whose activation can hold two steps that others can get in between.
//! Decides from the call graph and debug information; places no probe.
//!
//! A function is a candidate if it takes a lock, calls two functions that take locks by themselves, or one in a
//! loop, or one and accesses memory beside it, or has two atomic operations. A function that calls one such function
//! and does nothing else is none: nobody can get in between that is not in the callee. A function that takes a lock
//! and releases none is a wrapper: its callers take the lock. Functions are those of the source: an inlined call counts
//! as a call, wherever its code is.

use std::collections::{HashMap, HashSet, VecDeque};

use checker::defect::RegionRole;
use symbolize::{InlinedCall, LinkAddr, Name};
use x86::{
    call_graph::{Callee, Facts},
    functions::Functions,
};

use super::{
    effects::{Effect, Passes},
    known_names::{
        AtomicOperation, OwnLocks, Property, atomic_operation, creates, is_library,
        is_lock_library, passes_futex_wait_on, releases, takes_lock, waits, waits_for_futex,
        waits_once,
    },
    lock_tables::{Entry, TableCalls, TableSlot, table_calls},
    reason::Reason,
    source_functions::{Inlining, Unit, source_symbol},
    thread_starts::{Code, Pointee, ThreadStarts, drops, thread_starts},
};
use crate::probes::sync::functions::Role;

/// Number of calls from a candidate down to a function that takes a lock directly, at most: a function from which
/// locks are taken only deeper reaches most of the program, as dispatchers do.
const MAX_DISTANCE: u32 = 4;

/// Number of functions of the program that may be between a function that waits and the one that does the waiting:
/// one, a wrapper or a step of a loop. What only deeper callees wait for is not the function's own purpose.
const MAX_WAIT_LEVELS: u32 = 1;

/// A function that can hold two steps, or takes a lock for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its code.
    pub place: CandidatePlace,
    /// Reason why it can hold two steps.
    pub why: Reason,
    /// Role in the program.
    pub role: RegionRole,
    /// Reason for a role of low prior.
    pub role_reason: Option<Reason>,
    /// Reason why the function is no region all the same.
    pub excluded: Option<Reason>,
    /// Place in the order by likelihood of being meant as atomic: the lowest first.
    pub rank: u32,
}

/// Code of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidatePlace {
    /// Number of a function.
    Function(usize),
    /// Call that was inlined.
    Inlined {
        /// The call.
        call: InlinedCall,
        /// Its number: of calls in one another the outer ones have lower ones.
        number: usize,
        /// Number of the function that it is in.
        around: usize,
        /// Role of that function; `None` if it belongs to a library.
        instead: Option<RegionRole>,
    },
}

/// The functions of a program that can hold two steps, with what speaks against them, the most likely first.
/// `locks` are those of the user's own.
#[must_use]
pub fn candidates(
    functions: &Functions,
    facts: &[Facts],
    locks: OwnLocks<'_>,
    code: Code<'_>,
) -> Vec<Candidate> {
    let analysis = Analysis::new(functions, facts, locks, code);
    let sites: Vec<Vec<Site>> = (0..facts.len()).map(|function| analysis.sites(function)).collect();
    let mut candidates: Vec<Candidate> = (0..)
        .zip(&sites)
        .flat_map(|(function, sites)| analysis.candidates_in(function, sites))
        .collect();
    analysis.add_copies(&sites, &mut candidates);
    candidates.sort_by_key(|candidate| candidate.rank);
    candidates
}

struct Analysis<'facts, 'rules> {
    functions: &'facts Functions,
    facts: &'facts [Facts],
    /// Functions that make a call take a lock, release one, or wait: known by name, or waiting for a futex.
    lock: Effect<'rules>,
    release: Effect<'rules>,
    tables: TableCalls,
    wait: Effect<'rules>,
    futex_wait: Effect<'rules>,
    /// Functions that create threads, also through others.
    creating: Vec<bool>,
    starts: ThreadStarts,
    called: HashSet<usize>,
    own_locks: OwnLocks<'rules>,
    inlining: Inlining,
    /// By function: the number of calls down to a function that takes a lock directly.
    distances: Vec<Option<u32>>,
}

/// A place in a function where it does something that others can see, or waits.
struct Site {
    at: LinkAddr,
    what: What,
    /// Inlined calls around it, the outermost first, without those of libraries and wrappers.
    chain: Vec<usize>,
}

enum What {
    /// Takes a lock, by a call of a function of this name.
    Takes(String),
    /// Calls a function that takes a lock by itself, at this distance.
    Calls(usize, u32),
    /// Atomic operation that does not commute with others of its kind.
    Atomic,
    /// Atomic addition.
    Addition,
    /// Access to memory that may be shared.
    Accesses,
}

/// A step of a unit: something that takes a lock.
struct Step {
    name: String,
    /// The inlined call that it is; `None` for a call.
    inlined: Option<usize>,
    distance: u32,
    is_direct: bool,
    in_loop: bool,
}

impl<'facts, 'rules> Analysis<'facts, 'rules> {
    fn new(
        functions: &'facts Functions,
        facts: &'facts [Facts],
        locks: OwnLocks<'rules>,
        code: Code<'_>,
    ) -> Self {
        let called = facts
            .iter()
            .flat_map(|facts| &facts.calls)
            .filter_map(|call| match call.callee {
                Callee::Own(index) => Some(index),
                Callee::Import(_) => None,
            })
            .collect();
        let takes = Property { known: takes_lock, of_role: Role::takes_lock, locks };
        let releasing = Property { known: releases, of_role: Role::releases, locks };
        let waits = Property { known: waits, of_role: Role::waits, locks };
        let futex_waits = Property { known: waits_for_futex, of_role: |_| false, locks };
        let is_own_lock = |index| functions.get(index).is_some_and(|own| locks.role(own).is_some());
        let locking = |tables: &TableCalls| {
            let always = (true, u32::MAX);
            let on = |passes: bool| if passes { Passes::On } else { Passes::Nothing };
            let of_tables: Vec<(usize, String)> =
                tables.releasing.iter().map(|&function| (function, String::new())).collect();
            let by_tables = &tables.taking[..];
            let taking = Effect::analyze(takes, functions, facts, always, by_tables, |_, name| {
                on(is_lock_library(name))
            });
            let takes_some =
                |index: usize| taking.has(&facts[index]) || tables.direct.contains_key(&index);
            let release =
                Effect::analyze(releasing, functions, facts, always, &of_tables, |index, name| {
                    on(is_lock_library(name) || !is_library(name) && !takes_some(index))
                });
            let lock =
                Effect::analyze(takes, functions, facts, always, by_tables, |index, name| {
                    let is_wrapper =
                        !release.has(&facts[index]) && !tables.direct.contains_key(&index);
                    on(is_lock_library(name) || !is_library(name) && is_wrapper)
                });
            (lock, release)
        };
        let (mut lock, mut release) = locking(&TableCalls::default());
        let slots = table_slots(functions, &lock, &release, code);
        let tables = table_calls(&slots, functions, facts, code.variable);
        if tables != TableCalls::default() {
            (lock, release) = locking(&tables);
        }
        // A caller of a function that waits, waits as well, unless that function waits once in a run, or before the
        // program is aborted. Waiting for a lock does not count, be it a lock of the user's own.
        let waiting = |passes: bool, name: &Name| match (passes, is_library(name)) {
            (false, _) => Passes::Nothing,
            (true, true) => Passes::On,
            (true, false) => Passes::OnAsLevel,
        };
        let by_waiting = (false, MAX_WAIT_LEVELS);
        let futex_wait =
            Effect::analyze(futex_waits, functions, facts, by_waiting, &[], |index, name| {
                let passes = !is_own_lock(index) && !waits_once(name) && passes_futex_wait_on(name);
                waiting(passes, name)
            });
        let mut analysis = Self {
            functions,
            facts,
            lock,
            release,
            tables,
            wait: Effect::analyze(waits, functions, facts, by_waiting, &[], |index, name| {
                waiting(!is_own_lock(index) && !waits_once(name), name)
            }),
            futex_wait,
            creating: creating(functions, facts),
            starts: thread_starts(functions, facts, code),
            called,
            own_locks: locks,
            inlining: Inlining::new(Vec::new(), functions),
            distances: Vec::new(),
        };
        // At first everything counts that may take a lock, since what was inlined is not known.
        analysis.distances = analysis.distances(|_| true);
        let mut instructions: Vec<LinkAddr> =
            (0..facts.len()).flat_map(|function| analysis.instructions(function)).collect();
        instructions.sort_unstable();
        instructions.dedup();
        analysis.inlining = Inlining::new((code.inlined)(&instructions), functions);
        analysis.distances = analysis.distances(|function| analysis.holds_own_code(function));
        analysis
    }

    fn is_library(&self, function: usize) -> bool {
        self.functions.get(function).is_none_or(|own| is_library(&own.name))
    }

    /// Returns true if a function takes a lock directly and releases one.
    fn takes_directly(&self, function: usize) -> bool {
        (self.lock.has(&self.facts[function]) || self.tables.direct.contains_key(&function))
            && !self.lock.is_passed_on_by(function)
    }

    /// Returns true if code of the program that takes a lock was inlined into a function of a library.
    fn holds_own_code(&self, function: usize) -> bool {
        let mut calls = self.facts[function].calls.iter();
        calls.any(|call| {
            let is_own = |number: &usize| !self.inlining.is_library(*number);
            self.lock.of(call).is_some()
                && self.inlining.around(function, call.at).iter().any(is_own)
        })
    }

    /// Finds the number of calls from each function down to one that takes a lock directly; of the libraries'
    /// functions only `may_take` do, and their calls are no level.
    fn distances(&self, may_take: impl Fn(usize) -> bool) -> Vec<Option<u32>> {
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); self.facts.len()];
        for (caller, facts) in self.facts.iter().enumerate() {
            for call in facts.calls.iter().filter(|call| !call.is_cold) {
                if let Callee::Own(callee) = call.callee {
                    callers[callee].push(caller);
                }
            }
        }
        let mut distances = vec![None; self.facts.len()];
        let mut todo: VecDeque<(usize, u32)> = (0..self.facts.len())
            .filter(|&function| self.takes_directly(function))
            .filter(|&function| !self.is_library(function) || may_take(function))
            .map(|function| (function, 0))
            .collect();
        while let Some((function, distance)) = todo.pop_front() {
            if distances[function].is_some_and(|known| known <= distance) {
                continue;
            }
            distances[function] = Some(distance);
            let next = distance + u32::from(!self.is_library(function));
            for &caller in &callers[function] {
                todo.push_back((caller, next));
            }
        }
        distances
    }

    /// The instructions of a function whose source functions matter.
    fn instructions(&self, function: usize) -> Vec<LinkAddr> {
        let facts = &self.facts[function];
        let of_calls = facts.calls.iter().filter(|call| {
            self.lock.of(call).is_some()
                || self.wait.of(call).is_some()
                || self.futex_wait.of(call).is_some()
                || matches!(call.callee, Callee::Own(own) if self.distances[own].is_some())
        });
        of_calls.map(|call| call.at).chain(facts.activity.atomics.iter().copied()).collect()
    }

    /// The places in a function where it does something that others can see.
    fn sites(&self, function: usize) -> Vec<Site> {
        let facts = &self.facts[function];
        let mut found: Vec<(LinkAddr, What)> = Vec::new();
        for call in &facts.calls {
            if let Some(source) = self.lock.of(call).filter(|_| call.returns) {
                found.push((call.at, What::Takes(source.name)));
                continue;
            }
            let Callee::Own(callee) = call.callee else { continue };
            let distance = self.distances[callee].filter(|_| callee != function && !call.is_cold);
            if let Some(distance) = distance {
                found.push((call.at, What::Calls(callee, distance)));
                continue;
            }
            let operation = self.functions.get(callee).and_then(|own| atomic_operation(&own.name));
            found.extend(operation.map(|operation| match operation {
                AtomicOperation::Addition => (call.at, What::Addition),
                AtomicOperation::Other => (call.at, What::Atomic),
            }));
        }
        let by_table = self.tables.direct.get(&function).into_iter().flatten();
        found.extend(by_table.map(|(at, name)| (*at, What::Takes(name.clone()))));
        found.extend(facts.activity.atomics.iter().map(|&at| (at, What::Atomic)));
        if found.is_empty() {
            return Vec::new();
        }
        found.extend(facts.activity.shared.iter().map(|&at| (at, What::Accesses)));
        found.sort_by_key(|(at, _)| *at);
        let wrappers = self.inlined_wrappers(function, &found);
        let site = |(at, what)| {
            let mut chain = self.inlining.around(function, at);
            chain.retain(|number| !self.inlining.is_library(*number) && !wrappers.contains(number));
            Site { at, what, chain }
        };
        found.into_iter().map(site).collect()
    }

    /// Inlined calls in a function that take a lock and release none.
    fn inlined_wrappers(&self, function: usize, found: &[(LinkAddr, What)]) -> HashSet<usize> {
        let within = self.inlining.within(function).iter().copied();
        let releases: Vec<LinkAddr> = self.facts[function]
            .calls
            .iter()
            .filter(|call| self.release.of(call).is_some())
            .map(|call| call.at)
            .collect();
        within
            .filter(|&number| {
                let call = &self.inlining.calls[number];
                let mut inside = found.iter().filter(|(at, _)| call.contains(*at)).peekable();
                inside.peek().is_some()
                    && inside.all(|(_, what)| matches!(what, What::Takes(_) | What::Accesses))
                    && !releases.iter().any(|&at| call.contains(at))
            })
            .collect()
    }

    /// The candidates among a function and the calls that were inlined into it.
    fn candidates_in(&self, function: usize, sites: &[Site]) -> Vec<Candidate> {
        let mut units: Vec<Unit> = Vec::new();
        for site in sites {
            for unit in std::iter::once(Unit::Function(function))
                .chain(site.chain.iter().map(|&number| Unit::Inlined(number)))
            {
                if !units.contains(&unit) {
                    units.push(unit);
                }
            }
        }
        units.into_iter().filter_map(|unit| self.candidate(function, unit, sites)).collect()
    }

    fn candidate(&self, function: usize, unit: Unit, sites: &[Site]) -> Option<Candidate> {
        let around = self.functions.get(function)?;
        let name = match unit {
            Unit::Function(_) => &around.name,
            Unit::Inlined(number) => &self.inlining.names[number],
        };
        if is_library(name) || matches!(unit, Unit::Function(_)) && around.is_startup() {
            return None;
        }
        let steps = self.steps(unit, function, sites);
        let own = |site: &&Site| match unit {
            Unit::Function(_) => site.chain.is_empty(),
            Unit::Inlined(number) => site.chain.last() == Some(&number),
        };
        let count = |wanted: fn(&What) -> bool| {
            sites.iter().filter(own).filter(|site| wanted(&site.what)).count()
        };
        let (why, class, distance) = self.why(&steps, count)?;
        let role_reason = self.role_reason(function, unit);
        let role = role_of(role_reason.as_ref());
        let class = match role {
            RegionRole::Waits => 4,
            RegionRole::ThreadBody => 5,
            _ => class,
        };
        let excluded = self.excluded(function, unit, &steps);
        // A deep chain reaches most of the program; where a thread starts that is as it must be.
        if excluded.is_none() && distance > MAX_DISTANCE && role == RegionRole::Function {
            return None;
        }
        let place = match unit {
            Unit::Function(_) => CandidatePlace::Function(function),
            Unit::Inlined(number) => self.inlined_place(number, function),
        };
        let rank = class << 16 | distance.min(0xffff);
        Some(Candidate { place, why, role, role_reason, excluded, rank })
    }

    fn inlined_place(&self, number: usize, around: usize) -> CandidatePlace {
        let may_be_region = !self.is_library(around);
        let role = || role_of(self.role_reason(around, Unit::Function(around)).as_ref());
        let (call, instead) = (self.inlining.calls[number].clone(), may_be_region.then(role));
        CandidatePlace::Inlined { call, number, around, instead }
    }

    /// Returns the reason why steps make a candidate, with its class and distance.
    fn why(
        &self,
        steps: &[Step],
        count: impl Fn(fn(&What) -> bool) -> usize,
    ) -> Option<(Reason, u32, u32)> {
        let name = |step: &Step| step.name.clone();
        if let Some(direct) = steps.iter().find(|step| step.is_direct) {
            return Some((Reason::TakesLock { callee: name(direct) }, 0, 0));
        }
        let distance = steps.iter().map(|step| step.distance).min().unwrap_or_default() + 1;
        let others = count(|what| matches!(what, What::Atomic));
        let additions = count(|what| matches!(what, What::Addition));
        // Additions commute: alone they are no steps.
        let atomics = if others > 0 { others + additions } else { 0 };
        let accesses = || others + additions + count(|what| matches!(what, What::Accesses));
        let looped = steps.iter().find(|step| step.in_loop);
        Some(match (steps, looped) {
            ([first, .., last], _) => {
                (Reason::CallsTakers { first: name(first), second: name(last) }, 1, distance)
            }
            (_, Some(step)) => (Reason::CallsTakerInLoop { callee: name(step) }, 1, distance),
            ([only], _) if accesses() > 0 => {
                (Reason::CallsTakerAndAccesses { callee: name(only) }, 2, distance)
            }
            ([], _) if atomics > 1 => (Reason::Atomics { count: atomics }, 3, 0),
            _ => return None,
        })
    }

    /// The steps of a unit that take locks; a call that was inlined is one.
    fn steps(&self, unit: Unit, function: usize, sites: &[Site]) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let loops = &self.facts[function].activity.loops;
        for site in sites {
            let rest = match unit {
                Unit::Function(_) => &site.chain[..],
                Unit::Inlined(number) => {
                    match site.chain.iter().position(|&around| around == number) {
                        Some(place) => &site.chain[place + 1..],
                        None => continue,
                    }
                }
            };
            let inlined = rest.first().copied();
            let (name, distance, takes) = match &site.what {
                What::Takes(name) => (name.clone(), 0, true),
                What::Calls(callee, distance) => {
                    let callee = self.functions.get(*callee);
                    (
                        callee.map_or_else(String::new, |own| own.name.short.clone()),
                        *distance,
                        false,
                    )
                }
                What::Atomic | What::Addition | What::Accesses => continue,
            };
            let in_unit = |at| self.inlining.contains(unit, at);
            let in_step = |at| {
                inlined.is_some_and(|number| self.inlining.contains(Unit::Inlined(number), at))
            };
            let in_loop = loops.iter().any(|&(from, to)| {
                (from..=to).contains(&site.at)
                    && (in_unit(from) && in_unit(to))
                    && !(in_step(from) && in_step(to))
            });
            match inlined {
                Some(number) => {
                    let levels = (rest.len() - 1) as u32;
                    let known = steps.iter_mut().find(|step| step.inlined == inlined);
                    let distance = distance + levels + u32::from(!takes);
                    match known {
                        Some(step) => {
                            step.in_loop |= in_loop;
                            step.distance = step.distance.min(distance);
                        }
                        None => {
                            let name = self.inlining.names[number].short.clone();
                            steps.push(Step { name, inlined, distance, is_direct: false, in_loop });
                        }
                    }
                }
                None => steps.push(Step { name, inlined, distance, is_direct: takes, in_loop }),
            }
        }
        steps
    }

    /// Returns the reason why a unit is no region though it can hold two steps.
    fn excluded(&self, function: usize, unit: Unit, steps: &[Step]) -> Option<Reason> {
        let Unit::Function(_) = unit else { return None };
        if self.own_locks.role(self.functions.get(function)?).is_some() {
            return Some(Reason::OwnLock);
        }
        let is_wrapper =
            self.lock.is_passed_on_by(function) && steps.iter().any(|step| step.is_direct);
        is_wrapper.then_some(Reason::Wrapper)
    }

    /// Returns the reason for a role of low prior.
    fn role_reason(&self, function: usize, unit: Unit) -> Option<Reason> {
        let own = self.functions.get(function)?;
        let symbol = match unit {
            Unit::Function(_) => &own.symbol,
            Unit::Inlined(number) => &self.inlining.calls[number].symbol,
        };
        let short = match unit {
            Unit::Function(_) => &own.name.short,
            Unit::Inlined(number) => &self.inlining.names[number].short,
        };
        let is_rust_main =
            short.ends_with("::main") && (symbol.ends_with('E') || symbol.starts_with("_R"));
        if symbol == "main" || is_rust_main {
            return Some(Reason::Main);
        }
        if self.is_thread_start(function, unit) {
            return Some(Reason::ThreadStart);
        }
        if let Some(callee) = self.waits(function, unit) {
            return Some(Reason::Waits { callee });
        }
        if !matches!(unit, Unit::Function(_)) || self.called.contains(&function) {
            return None;
        }
        let taken_by = (0..self.facts.len())
            .find(|&taker| self.creating[taker] && self.facts[taker].takes.contains(&function))?;
        let taken_by = self.functions.get(taken_by)?.name.short.clone();
        Some(Reason::MayStartThread { taken_by })
    }

    fn is_thread_start(&self, function: usize, unit: Unit) -> bool {
        let number = match unit {
            Unit::Function(_) => return self.starts.starts.contains(&function),
            Unit::Inlined(number) => number,
        };
        // What a thread starts with was inlined into the library's function that calls it.
        let call = &self.inlining.calls[number];
        let around = self.inlining.around(function, call.entry);
        let outer = around.iter().take_while(|&&outer| outer != number);
        self.starts.mains.contains(&function)
            && outer.clone().all(|&outer| {
                self.inlining.is_library(outer) && !drops(&self.inlining.names[outer])
            })
            && !drops(&self.inlining.names[number])
    }

    /// Returns the name of what a unit calls that waits.
    fn waits(&self, function: usize, unit: Unit) -> Option<String> {
        let waiting = |call| [&self.wait, &self.futex_wait].into_iter().find_map(|it| it.of(call));
        self.facts[function].calls.iter().filter(|call| call.returns).find_map(|call| {
            let source = waiting(call)?;
            let around = self.inlining.around(function, call.at);
            if around.iter().any(|&number| waits_once(&self.inlining.names[number])) {
                return None;
            }
            let inside = match unit {
                Unit::Function(_) => &around[..],
                Unit::Inlined(number) => {
                    let place = around.iter().position(|&around| around == number)?;
                    &around[place + 1..]
                }
            };
            let own = inside.iter().filter(|&&number| !self.inlining.is_library(number)).count();
            (own as u32 + source.levels <= MAX_WAIT_LEVELS).then_some(source.name)
        })
    }

    /// Makes every inlined call of a function a candidate that is one elsewhere: it is the same source.
    fn add_copies(&self, sites: &[Vec<Site>], candidates: &mut Vec<Candidate>) {
        let mut known: HashMap<&str, Candidate> = HashMap::new();
        let mut found: HashSet<(u64, &str)> = HashSet::new();
        for candidate in candidates.iter().filter(|candidate| candidate.excluded.is_none()) {
            let symbol = match &candidate.place {
                CandidatePlace::Function(function) => {
                    let Some(own) = self.functions.get(*function) else { continue };
                    source_symbol(&own.symbol)
                }
                CandidatePlace::Inlined { call, .. } => {
                    let of = self.inlining.calls.iter().find(|one| one.symbol == call.symbol);
                    let Some(of) = of else { continue };
                    found.insert((call.entry.0, &of.symbol));
                    &of.symbol
                }
            };
            known.entry(symbol).or_insert_with(|| candidate.clone());
        }
        for (number, call) in self.inlining.calls.iter().enumerate() {
            let Some(like) = known.get(call.symbol.as_str()) else { continue };
            let Some(function) = self.functions.containing(call.entry) else { continue };
            let has_step = sites[function].iter().any(|site| site.chain.contains(&number));
            if has_step && found.insert((call.entry.0, &call.symbol)) {
                let place = self.inlined_place(number, function);
                candidates.push(Candidate { place, ..like.clone() });
            }
        }
    }
}

/// Finds the pointers to functions that take a lock or release one for their callers, by the variables that have them.
fn table_slots(
    functions: &Functions,
    lock: &Effect<'_>,
    release: &Effect<'_>,
    code: Code<'_>,
) -> Vec<TableSlot> {
    let entry = |pointee: &Pointee| match pointee {
        Pointee::Own(own) if lock.is_passed_on_by(*own) => {
            Some(Entry::Takes(functions.get(*own)?.name.short.clone()))
        }
        Pointee::Own(own) => release.is_passed_on_by(*own).then_some(Entry::Releases),
        Pointee::Import(symbol) if takes_lock(symbol) => Some(Entry::Takes(symbol.clone())),
        Pointee::Import(symbol) => releases(symbol).then_some(Entry::Releases),
    };
    let slot = |(at, pointee): &(LinkAddr, Pointee)| {
        let entry = entry(pointee)?;
        let table = (code.variable)(*at)?;
        Some(TableSlot { table, offset: at.0 - table.0, entry })
    };
    code.pointers.iter().filter_map(slot).collect()
}

/// Returns the role that follows from a reason for low prior.
const fn role_of(reason: Option<&Reason>) -> RegionRole {
    match reason {
        None => RegionRole::Function,
        Some(Reason::Waits { .. }) => RegionRole::Waits,
        Some(_) => RegionRole::ThreadBody,
    }
}

/// Finds the functions that create threads, directly or through their callees.
fn creating(functions: &Functions, facts: &[Facts]) -> Vec<bool> {
    let mut creating: Vec<bool> =
        functions.iter().map(|function| creates(&function.name.short)).collect();
    loop {
        let mut changed = false;
        for (index, facts) in facts.iter().enumerate() {
            if creating[index] {
                continue;
            }
            let creates = facts.calls.iter().any(|call| match &call.callee {
                Callee::Own(callee) => creating[*callee],
                Callee::Import(callee) => creates(&callee.symbol) || creates(&callee.name),
            });
            if creates {
                creating[index] = true;
                changed = true;
            }
        }
        if !changed {
            return creating;
        }
    }
}
