//! Default regions: functions of the program itself that take a lock directly, and neither start a thread nor
//! wait. Each answer has its reason. Decides from the call graph; places no probe.
//!
//! A function that takes a lock and releases none is a wrapper: its callers take the lock.

use std::collections::HashSet;

use symbolize::{LinkAddr, Name};
use x86::{
    call_graph::{Call, Callee, Facts},
    functions::Functions,
};

use super::{
    known_names::{
        OwnLocks, Property, creates, is_library, is_lock_library, passes_futex_wait_on, releases,
        takes_lock, waits, waits_for_futex, waits_once,
    },
    thread_starts::{Code, thread_starts},
};
use crate::probes::sync::functions::Role;

/// Reason why a function is a region by default, or is not although it takes a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A call of this function there takes a lock.
    TakesLock {
        /// Called function.
        callee: String,
        /// The call.
        at: LinkAddr,
    },
    /// The function releases no lock: its callers take the lock that it takes.
    Wrapper,
    /// The function belongs to a lock of the user's own.
    OwnLock,
    /// The program starts with this function.
    Main,
    /// A thread starts with this function.
    ThreadStart,
    /// A function that creates threads takes its address, and nothing calls it directly.
    MayStartThread {
        /// The function that takes its address.
        taken_by: String,
    },
    /// A call of this function there waits for other threads or for time to pass.
    Waits {
        /// Called function.
        callee: String,
        /// The call.
        at: LinkAddr,
    },
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TakesLock { callee, .. } => write!(f, "it takes a lock: it calls {callee}"),
            Self::Wrapper => f.write_str("it lets go of no lock: its callers count as taking it"),
            Self::OwnLock => f.write_str("it is a function of a lock that --lock names"),
            Self::Main => f.write_str("it is the program's main function"),
            Self::ThreadStart => f.write_str("a thread starts with it"),
            Self::MayStartThread { taken_by } => write!(
                f,
                "a thread may start with it: `{taken_by}` takes its address and creates threads, and nothing \
                 calls it directly"
            ),
            Self::Waits { callee, .. } => write!(f, "it waits: it calls {callee}"),
        }
    }
}

/// A function that takes a lock directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number of the function.
    pub function: usize,
    /// Call that takes the lock.
    pub takes: Reason,
    /// Reason why the function is no region all the same.
    pub excluded: Option<Reason>,
}

/// The functions of a program that take a lock directly, by address, and what speaks against them. `locks` are those
/// of the user's own.
#[must_use]
pub fn candidates(
    functions: &Functions,
    facts: &[Facts],
    locks: OwnLocks<'_>,
    code: Code<'_>,
) -> Vec<Candidate> {
    let analysis = Analysis::new(functions, facts, locks, code);
    (0..facts.len())
        .filter_map(|function| {
            let own = functions.get(function)?;
            if is_library(&own.name) || own.is_startup() {
                return None;
            }
            let (callee, at) = analysis.calls_such(function, &analysis.lock)?;
            let takes = Reason::TakesLock { callee, at };
            Some(Candidate { function, takes, excluded: analysis.excluded(function) })
        })
        .collect()
}

struct Analysis<'facts, 'rules> {
    functions: &'facts Functions,
    facts: &'facts [Facts],
    /// Functions that make a call take a lock, release one, or wait: known by name, or waiting for a futex.
    lock: Effect<'rules>,
    release: Effect<'rules>,
    wait: Effect<'rules>,
    futex_wait: Effect<'rules>,
    /// Functions that create threads, also through others.
    creating: Vec<bool>,
    starts: HashSet<usize>,
    called: HashSet<usize>,
    own_locks: OwnLocks<'rules>,
}

/// A property of callees.
struct Effect<'rules> {
    property: Property<'rules>,
    /// For each own function that passes it on to its callers, the name of what has it.
    own: Vec<Option<String>>,
    /// Set if calls in seldom executed code count.
    with_cold: bool,
}

impl<'rules> Effect<'rules> {
    /// Finds the functions with the property. Callers of the functions for which `passes_on` holds have it too.
    fn analyze(
        property: Property<'rules>,
        functions: &Functions,
        facts: &[Facts],
        with_cold: bool,
        passes_on: impl Fn(usize, &Name) -> bool,
    ) -> Self {
        let own: Vec<Option<String>> = functions
            .iter()
            .map(|function| property.is_of(function).then(|| function.name.short.clone()))
            .collect();
        let mut effect = Self { property, own, with_cold };
        let passing: Vec<usize> = functions
            .iter()
            .enumerate()
            .filter(|(index, function)| passes_on(*index, &function.name))
            .map(|(index, _)| index)
            .collect();
        loop {
            let mut changed = false;
            for &index in &passing {
                if effect.own[index].is_none()
                    && let Some((name, _)) = effect.call_with(&facts[index], true)
                {
                    effect.own[index] = Some(name);
                    changed = true;
                }
            }
            if !changed {
                return effect;
            }
        }
    }

    /// Returns true if a function has the property, also by a tail call.
    fn has(&self, facts: &Facts) -> bool {
        self.call_with(facts, true).is_some()
    }

    /// A call with the property: what is called, and where.
    fn call_with(&self, facts: &Facts, tail_calls: bool) -> Option<(String, LinkAddr)> {
        let counts =
            |call: &&Call| (call.returns || tail_calls) && (self.with_cold || !call.is_cold);
        facts.calls.iter().filter(counts).find_map(|call| {
            let name = match &call.callee {
                Callee::Own(index) => self.own.get(*index)?.clone()?,
                Callee::Import(callee) => {
                    self.property.is_of_import(callee).then(|| callee.name.clone())?
                }
            };
            Some((name, call.at))
        })
    }
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
        let library = |_: usize, name: &Name| is_lock_library(name);
        let taking = Effect::analyze(takes, functions, facts, true, library);
        let release = Effect::analyze(releasing, functions, facts, true, |index, name| {
            is_lock_library(name) || (!is_library(name) && !taking.has(&facts[index]))
        });
        let lock = Effect::analyze(takes, functions, facts, true, |index, name| {
            is_lock_library(name) || (!is_library(name) && !release.has(&facts[index]))
        });
        Self {
            functions,
            facts,
            lock,
            release,
            // A caller of a function that waits, waits as well, unless that function waits once in a run, or before
            // the program is aborted. Waiting for a lock does not count, be it a lock of the user's own.
            wait: Effect::analyze(waits, functions, facts, false, |index, name| {
                !is_own_lock(index) && !waits_once(name)
            }),
            futex_wait: Effect::analyze(futex_waits, functions, facts, false, |index, name| {
                !is_own_lock(index) && !waits_once(name) && passes_futex_wait_on(name)
            }),
            creating: creating(functions, facts),
            starts: thread_starts(functions, facts, code),
            called,
            own_locks: locks,
        }
    }

    fn calls_such(&self, function: usize, effect: &Effect<'_>) -> Option<(String, LinkAddr)> {
        effect.call_with(self.facts.get(function)?, false)
    }

    fn excluded(&self, function: usize) -> Option<Reason> {
        let own = self.functions.get(function)?;
        if self.own_locks.role(own).is_some() {
            return Some(Reason::OwnLock);
        }
        let is_rust_main = own.name.short.ends_with("::main")
            && (own.symbol.ends_with('E') || own.symbol.starts_with("_R"));
        if own.symbol == "main" || is_rust_main {
            return Some(Reason::Main);
        }
        if self.starts.contains(&function) {
            return Some(Reason::ThreadStart);
        }
        if !self.release.has(self.facts.get(function)?) {
            return Some(Reason::Wrapper);
        }
        let waits = [&self.wait, &self.futex_wait];
        let waits = waits.into_iter().find_map(|effect| self.calls_such(function, effect));
        if let Some((callee, at)) = waits {
            return Some(Reason::Waits { callee, at });
        }
        if self.called.contains(&function) {
            return None;
        }
        let taken_by = (0..self.facts.len())
            .find(|&taker| self.creating[taker] && self.facts[taker].takes.contains(&function))?;
        let taken_by = self.functions.get(taken_by)?.name.short.clone();
        Some(Reason::MayStartThread { taken_by })
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
