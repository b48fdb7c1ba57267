//! Steps of a program's functions: places where they take locks, directly or through what they call, by functions
//! of the source. `defaults` draws the conclusions for regions.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use symbolize::{LinkAddr, Name};
use x86::{
    call_graph::{CallFacts, Callee},
    filled_slots::Contents,
    functions::Functions,
};

use super::{
    effects::{Effect, Passes, Reach},
    known_names::{
        AtomicOperation, OwnLocks, Property, atomic_operation, creates, is_drop_glue, is_library,
        is_lock_library, passes_futex_wait_on, reads_input, waits, waits_for_futex, waits_once,
    },
    lock_tables::{TableCalls, TableEntry, TableSlot, table_calls},
    source_functions::{Inlining, Unit},
    test_frameworks::TestFrameworks,
    thread_starts::{CodeQueries, Pointee, ThreadStarts, thread_starts},
};
use crate::sync::{
    functions::Role,
    lock_code::InlineLocks,
    lock_names::{releases, takes_lock},
};

/// Maximum number of the program's functions between a function that waits and the callee that does the waiting:
/// one, a wrapper or a step of a loop. A function whose deeper callees wait has another purpose.
pub(super) const MAX_WAIT_LEVELS: u32 = 1;

/// Name of what takes a lock by code in line.
const WAIT_LOOP: &str = "a loop that waits for a word";

pub(super) struct Analysis<'facts, 'rules> {
    pub(super) functions: &'facts Functions,
    pub(super) facts: &'facts [CallFacts],
    /// Functions that make a call take a lock, release one, or wait: known by name, or waiting for a futex.
    pub(super) lock: Effect<'rules>,
    pub(super) release: Effect<'rules>,
    pub(super) tables: TableCalls,
    pub(super) wait: Effect<'rules>,
    pub(super) futex_wait: Effect<'rules>,
    /// Functions that read input.
    pub(super) input: Effect<'rules>,
    /// By function: its loops that hold a step.
    pub(super) loops: HashMap<usize, Vec<Loop>>,
    /// Functions that create threads, also through others.
    pub(super) creating: Vec<bool>,
    pub(super) starts: ThreadStarts,
    pub(super) called: HashSet<usize>,
    /// By function: the functions that call it, with the places of the calls.
    pub(super) callers: Vec<Vec<(usize, LinkAddr)>>,
    /// Functions whose addresses are taken: who calls them is not known.
    pub(super) pointed: HashSet<usize>,
    pub(super) own_locks: OwnLocks<'rules>,
    pub(super) inlining: Inlining,
    pub(super) frameworks: TestFrameworks,
    /// By function: the number of calls down to a function that takes a lock directly.
    pub(super) distances: Vec<Option<u32>>,
}

/// A natural loop.
pub(super) struct Loop {
    pub(super) first: LinkAddr,
    /// The jump back to the first instruction.
    pub(super) last: LinkAddr,
    /// Its instructions.
    pub(super) body: BTreeSet<u64>,
}

/// A place in a function where it does something that others can see, or waits.
pub(super) struct Site {
    pub(super) at: LinkAddr,
    pub(super) what: What,
    /// Inlined calls around it, the outermost first, without those of libraries and wrappers.
    pub(super) chain: Vec<usize>,
}

pub(super) enum What {
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
pub(super) struct LockStep {
    pub(super) at: LinkAddr,
    pub(super) name: String,
    /// The inlined call that it is; `None` for a call.
    pub(super) inlined: Option<usize>,
    pub(super) distance: u32,
    pub(super) is_direct: bool,
    pub(super) in_loop: bool,
}

/// Number of functions that may call a function for its locks to be a part of what they do: what more functions call is
/// a service.
const MAX_CALLERS: usize = 48;

impl<'facts, 'rules> Analysis<'facts, 'rules> {
    pub(super) fn new(
        functions: &'facts Functions,
        facts: &'facts [CallFacts],
        locks: OwnLocks<'rules>,
        code: CodeQueries<'_>,
    ) -> Self {
        let mut callers: Vec<Vec<(usize, LinkAddr)>> = vec![Vec::new(); facts.len()];
        for (caller, facts) in facts.iter().enumerate() {
            for call in &facts.calls {
                if let Callee::Own(callee) = call.callee {
                    callers[callee].push((caller, call.at));
                }
            }
        }
        let called = (0..facts.len()).filter(|&callee| !callers[callee].is_empty()).collect();
        let taken = facts.iter().flat_map(|facts| facts.takes.iter().copied());
        let in_variables = code.pointers.iter().filter_map(|(_, pointee)| pointee.own());
        let pointed = taken.chain(in_variables).collect();
        let takes = Property { known: takes_lock, of_role: Role::takes_lock, locks };
        let releasing = Property { known: releases, of_role: Role::releases, locks };
        let waits = Property { known: waits, of_role: Role::waits, locks };
        let reading = Property { known: reads_input, of_role: |_| false, locks };
        let futex_waits = Property { known: waits_for_futex, of_role: |_| false, locks };
        let is_own_lock = |index| functions.get(index).is_some_and(|own| locks.role(own).is_some());
        let locking = |tables: &TableCalls| {
            let always = Reach { with_cold: true, max_levels: u32::MAX };
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
                    let is_step = !is_library(name) && !takes_some(index);
                    on(is_lock_library(name) || is_drop_glue(name) || is_step)
                });
            let releases_in_line = |index: usize| {
                let inline = locks.code().and_then(|code| code.inline(index));
                inline.is_some_and(|inline| !inline.releases.is_empty())
            };
            let lock =
                Effect::analyze(takes, functions, facts, always, by_tables, |index, name| {
                    let is_wrapper = !release.has(&facts[index])
                        && !releases_in_line(index)
                        && !tables.direct.contains_key(&index);
                    on(is_lock_library(name) || !is_library(name) && is_wrapper)
                });
            (lock, release)
        };
        let (mut lock, mut release) = locking(&TableCalls::default());
        let slots = table_slots(functions, facts, &lock, &release, code);
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
        let by_waiting = Reach { with_cold: false, max_levels: MAX_WAIT_LEVELS };
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
            input: Effect::analyze(reading, functions, facts, by_waiting, &[], |_, name| {
                waiting(true, name)
            }),
            loops: HashMap::new(),
            creating: creating(functions, facts),
            starts: thread_starts(functions, facts, code),
            called,
            callers,
            pointed,
            own_locks: locks,
            inlining: Inlining::new(Vec::new(), functions),
            frameworks: TestFrameworks::of(functions),
            distances: Vec::new(),
        };
        // At first every call that may take a lock counts, since inlined calls are not known yet.
        analysis.distances = analysis.distances(|_| true);
        let mut instructions: Vec<LinkAddr> =
            (0..facts.len()).flat_map(|function| analysis.instructions(function)).collect();
        instructions.sort_unstable();
        instructions.dedup();
        analysis.inlining = Inlining::new((code.inlined)(&instructions), functions);
        analysis.distances = analysis.distances(|function| analysis.holds_own_code(function));
        analysis.loops = analysis.loops(code);
        analysis
    }

    /// The effects of waiting and of reading input.
    pub(super) const fn waiting_or_reading(&self) -> [&Effect<'_>; 3] {
        [&self.wait, &self.futex_wait, &self.input]
    }

    /// Finds the loops that hold a step. Control flow is followed only where a jump back may be one.
    fn loops(&self, code: CodeQueries<'_>) -> HashMap<usize, Vec<Loop>> {
        let mut found = HashMap::new();
        for (function, facts) in self.facts.iter().enumerate() {
            if facts.activity.jumps_back.is_empty() {
                continue;
            }
            let sites = self.sites(function);
            let mut loops = Vec::new();
            for &(first, last) in &facts.activity.jumps_back {
                if sites.iter().any(|site| (first..=last).contains(&site.at)) {
                    let body = (code.loop_body)(function, (first, last));
                    loops.push(Loop { first, last, body });
                }
            }
            loops.retain(|one| sites.iter().any(|site| one.body.contains(&site.at.0)));
            if !loops.is_empty() {
                found.insert(function, loops);
            }
        }
        found
    }

    pub(super) fn loops_of(&self, function: usize) -> &[Loop] {
        self.loops.get(&function).map_or(&[], |loops| loops)
    }

    pub(super) fn is_library(&self, function: usize) -> bool {
        self.functions.get(function).is_none_or(|own| is_library(&own.name))
    }

    /// Returns true if a function takes a lock directly and releases one.
    fn takes_directly(&self, function: usize) -> bool {
        (self.lock.has(&self.facts[function]) || self.tables.direct.contains_key(&function))
            && !self.lock.is_passed_on_by(function)
            || self.inline(function).is_some()
    }

    /// Places of a function where it acquires and releases locks of the program's own in line.
    pub(super) fn inline(&self, function: usize) -> Option<&InlineLocks> {
        self.own_locks.code()?.inline(function)
    }

    /// Returns true if code of the program that takes a lock was inlined into a function of a library.
    fn holds_own_code(&self, function: usize) -> bool {
        let calls = self.facts[function].calls.iter();
        let calls = calls.filter(|call| self.lock.of(call).is_some()).map(|call| call.at);
        let in_line = self.inline(function).into_iter().flat_map(|inline| &inline.acquires);
        calls.chain(in_line.copied()).any(|at| {
            let is_own = |number: &usize| !self.inlining.is_library(*number);
            self.inlining.around(function, at).iter().any(is_own)
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
        for callers in &mut callers {
            callers.sort_unstable();
            callers.dedup();
        }
        let mut distances = vec![None; self.facts.len()];
        let mut todo: VecDeque<(usize, u32)> = (0..self.facts.len())
            .filter(|&function| self.takes_directly(function))
            .filter(|&function| !self.is_library(function) || may_take(function))
            .filter(|&function| !self.is_of_test_framework(function))
            .map(|function| (function, 0))
            .collect();
        while let Some((function, distance)) = todo.pop_front() {
            // A function with more callers is a service, such as logging and assertions, and no step of its callers.
            let is_service = callers[function].len() > MAX_CALLERS;
            if is_service || distances[function].is_some_and(|known| known <= distance) {
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

    /// Returns true if a function belongs to what runs tests: its locks are no part of what its callers do.
    pub(super) fn is_of_test_framework(&self, function: usize) -> bool {
        self.functions.get(function).is_some_and(|own| self.frameworks.has(&own.name))
    }

    /// The instructions of a function whose source functions matter.
    fn instructions(&self, function: usize) -> Vec<LinkAddr> {
        let facts = &self.facts[function];
        let of_calls = facts.calls.iter().filter(|call| {
            self.lock.of(call).is_some()
                || self.wait.of(call).is_some()
                || self.futex_wait.of(call).is_some()
                || self.input.of(call).is_some()
                || matches!(call.callee, Callee::Own(own) if self.distances[own].is_some())
        });
        let inline = self.inline(function).into_iter();
        let in_line = inline.flat_map(|inline| inline.acquires.iter().chain(&inline.releases));
        let atomics = facts.activity.atomics.iter().chain(in_line).copied();
        of_calls.map(|call| call.at).chain(atomics).collect()
    }

    /// The places in a function where it does something that others can see.
    pub(super) fn sites(&self, function: usize) -> Vec<Site> {
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
        let inline = self.inline(function);
        let is_lock = |at: &LinkAddr| inline.is_some_and(|inline| inline.accesses.contains(at));
        let atomics = facts.activity.atomics.iter().filter(|at| !is_lock(at));
        found.extend(atomics.map(|&at| (at, What::Atomic)));
        let acquires = inline.into_iter().flat_map(|inline| &inline.acquires);
        found.extend(acquires.map(|&at| (at, What::Takes(WAIT_LOOP.to_owned()))));
        if found.is_empty() {
            return Vec::new();
        }
        let shared = facts.activity.shared.iter().filter(|at| !is_lock(at));
        found.extend(shared.map(|&at| (at, What::Accesses)));
        found.sort_by_key(|(at, _)| *at);
        let wrappers = self.inlined_wrappers(function, &found);
        let site = |(at, what)| {
            let mut chain = self.inlining.around(function, at);
            chain.retain(|number| !self.inlining.is_library(*number) && !wrappers.contains(number));
            Site { at, what, chain }
        };
        found.into_iter().map(site).collect()
    }

    /// Places in a function where a lock is released.
    fn releases(&self, function: usize) -> Vec<LinkAddr> {
        let calls = self.facts[function].calls.iter();
        let calls = calls.filter(|call| self.release.of(call).is_some()).map(|call| call.at);
        let in_line = self.inline(function).into_iter().flat_map(|inline| &inline.releases);
        calls.chain(in_line.copied()).collect()
    }

    /// Inlined calls in a function that take a lock and do not release one.
    fn inlined_wrappers(&self, function: usize, found: &[(LinkAddr, What)]) -> HashSet<usize> {
        let within = self.inlining.within(function).iter().copied();
        let releases = self.releases(function);
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

    /// The steps of a unit that take locks; a call that was inlined is one.
    pub(super) fn steps(&self, unit: Unit, function: usize, sites: &[Site]) -> Vec<LockStep> {
        let mut steps: Vec<LockStep> = Vec::new();
        let loops = self.loops_of(function);
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
            let in_loop = loops.iter().any(|one| {
                one.body.contains(&site.at.0)
                    && (in_unit(one.first) && in_unit(one.last))
                    && !(in_step(one.first) && in_step(one.last))
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
                            let (at, is_direct) = (site.at, false);
                            steps.push(LockStep {
                                at,
                                name,
                                inlined,
                                distance,
                                is_direct,
                                in_loop,
                            });
                        }
                    }
                }
                None => {
                    let (at, is_direct) = (site.at, takes);
                    steps.push(LockStep { at, name, inlined, distance, is_direct, in_loop });
                }
            }
        }
        steps
    }

    /// Returns true for an inlined call with one critical section and no access to memory outside it. Nobody gets in
    /// between, and probes at its ends would be in the way of those that see what it accesses.
    pub(super) fn is_one_section(
        &self,
        function: usize,
        unit: Unit,
        steps: &[LockStep],
        sites: &[Site],
    ) -> bool {
        let (Unit::Inlined(number), [LockStep { at: taken, is_direct: true, in_loop: false, .. }]) =
            (unit, steps)
        else {
            return false;
        };
        let inside = |at: &LinkAddr| self.inlining.calls[number].contains(*at);
        let releases = self.releases(function).into_iter();
        let released = releases.filter(inside).max().unwrap_or(LinkAddr(u64::MAX));
        !sites.iter().any(|site| {
            let is_access = !matches!(site.what, What::Takes(_) | What::Calls(..));
            is_access && inside(&site.at) && !(*taken..=released).contains(&site.at)
        })
    }
}

/// Finds the pointers to functions that take a lock or release one for their callers, by the variables that have them:
/// as initial values, or stored there by code.
fn table_slots(
    functions: &Functions,
    facts: &[CallFacts],
    lock: &Effect<'_>,
    release: &Effect<'_>,
    code: CodeQueries<'_>,
) -> Vec<TableSlot> {
    let entry = |pointee: &Pointee| match pointee {
        Pointee::Own(own) if lock.is_passed_on_by(*own) => {
            Some(TableEntry::Takes(functions.get(*own)?.name.short.clone()))
        }
        Pointee::Own(own) => release.is_passed_on_by(*own).then_some(TableEntry::Releases),
        Pointee::Import(symbol) if takes_lock(symbol) => Some(TableEntry::Takes(symbol.clone())),
        Pointee::Import(symbol) => releases(symbol).then_some(TableEntry::Releases),
    };
    let slot = |at: LinkAddr, pointee: &Pointee, is_filled| {
        let entry = entry(pointee)?;
        let table = (code.variable)(at)?;
        Some(TableSlot { table, offset: at.0 - table.0, entry, is_filled })
    };
    let initial = code.pointers.iter().filter_map(|(at, pointee)| slot(*at, pointee, false));
    let stored = facts.iter().flat_map(|facts| &facts.activity.filled).filter_map(|filled| {
        let pointee = match filled.contents {
            Contents::Address(address) => Pointee::Own(functions.starting_at(address)?),
            Contents::Of(other) => {
                let index = code.pointers.binary_search_by_key(&other, |(at, _)| *at).ok()?;
                code.pointers[index].1.clone()
            }
        };
        slot(filled.at, &pointee, true)
    });
    let mut slots: Vec<TableSlot> = initial.chain(stored).collect();
    slots.dedup();
    slots
}

/// Finds the functions that create threads, directly or through their callees.
fn creating(functions: &Functions, facts: &[CallFacts]) -> Vec<bool> {
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
