//! Default regions: functions of the program whose activation can hold two steps that others can get in between.
//! Decides from the call graph and debug information; places no probe.
//!
//! A function is a candidate if it takes a lock, calls two functions that take locks by themselves, or one in a loop,
//! or one and accesses memory beside it, or has two atomic operations. A function that only calls one such function is
//! no candidate: others can get in between only inside the callee. A function that takes a lock and does not release
//! it is a wrapper: its callers take the lock. The functions are the source's: an inlined call counts as a call,
//! wherever its code is. Functions that take no lock are in `unlocked`.

use std::collections::{BTreeSet, HashMap, HashSet};

use checker::defect::RegionRole;
use symbolize::{InlinedCall, LinkAddr};
use x86::{
    call_graph::{CallFacts, Callee},
    functions::Functions,
};

use super::{
    analysis::{Analysis, LockStep, Loop, MAX_WAIT_LEVELS, Site, What},
    effects::Effect,
    known_names::{OwnLocks, is_library, waits_once},
    reason::Reason,
    source_functions::{Unit, source_symbol},
    thread_starts::{CodeQueries, ThreadStarts, drops},
};

/// Number of calls from a candidate down to a function that takes a lock directly, at most: a function from which
/// locks are taken only deeper reaches most of the program, as dispatchers do.
const MAX_DISTANCE: u32 = 4;

/// Number of functions, from a thread's body down to a loop, that are parts of the body.
const MAX_BODIES: usize = 2;

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

impl CandidatePlace {
    pub(super) fn entry(&self, functions: &Functions) -> Option<LinkAddr> {
        match self {
            Self::Function(function) => Some(functions.get(*function)?.start),
            Self::Inlined { call, .. } => Some(call.entry),
        }
    }
}

/// Functions of a program from which default regions are chosen, and functions that threads start with.
#[derive(Debug)]
pub struct CandidateFunctions {
    /// The functions that can hold two steps, with what speaks against them, the most likely first.
    pub candidates: Vec<Candidate>,
    /// Numbers of the functions that threads start with, or may start with.
    pub thread_starts: Vec<usize>,
}

/// Analyses the functions of a program. `locks` are the user's.
#[must_use]
pub fn analyze(
    functions: &Functions,
    facts: &[CallFacts],
    locks: OwnLocks<'_>,
    code: CodeQueries<'_>,
) -> CandidateFunctions {
    let mut analysis = Analysis::new(functions, facts, locks, code);
    let sites: Vec<Vec<Site>> = (0..facts.len()).map(|function| analysis.sites(function)).collect();
    let mut candidates: Vec<Candidate> = (0..)
        .zip(&sites)
        .flat_map(|(function, sites)| analysis.candidates_in(function, sites))
        .collect();
    analysis.add_copies(&sites, &mut candidates);
    analysis.add_unlocked(code, &mut candidates);
    candidates.sort_by_key(|candidate| candidate.rank);
    CandidateFunctions { candidates, thread_starts: analysis.thread_starts() }
}

impl Analysis<'_, '_> {
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
        if self.is_one_section(function, unit, &steps, sites) {
            return None;
        }
        // Probes at the ends of inlined code cost more than a function's: too much for so small a region.
        let is_inlined = matches!(unit, Unit::Inlined(_));
        if is_inlined && matches!(why, Reason::CallsTakerAndAccesses { .. }) {
            return None;
        }
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

    pub(super) fn inlined_place(&self, number: usize, around: usize) -> CandidatePlace {
        let may_be_region = !self.is_library(around);
        let role = || role_of(self.role_reason(around, Unit::Function(around)).as_ref());
        let (call, instead) = (self.inlining.calls[number].clone(), may_be_region.then(role));
        CandidatePlace::Inlined { call, number, around, instead }
    }

    /// Returns the reason why steps make a candidate, with its class and distance.
    fn why(
        &self,
        steps: &[LockStep],
        count: impl Fn(fn(&What) -> bool) -> usize,
    ) -> Option<(Reason, u32, u32)> {
        let name = |step: &LockStep| step.name.clone();
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

    /// Returns the reason why a unit is no region though it can hold two steps.
    fn excluded(&self, function: usize, unit: Unit, steps: &[LockStep]) -> Option<Reason> {
        let name = match unit {
            Unit::Function(_) => &self.functions.get(function)?.name,
            Unit::Inlined(number) => &self.inlining.names[number],
        };
        if self.frameworks.has(name) {
            return Some(Reason::TestFramework);
        }
        let Unit::Function(_) = unit else { return None };
        if self.own_locks.role(self.functions.get(function)?).is_some() {
            return Some(Reason::OwnLock);
        }
        let is_wrapper =
            self.lock.is_passed_on_by(function) && steps.iter().any(|step| step.is_direct);
        is_wrapper.then_some(Reason::Wrapper)
    }

    /// Returns the reason for a role of low prior.
    pub(super) fn role_reason(&self, function: usize, unit: Unit) -> Option<Reason> {
        let own = self.functions.get(function)?;
        let symbol = match unit {
            Unit::Function(_) => &own.symbol,
            Unit::Inlined(number) => &self.inlining.calls[number].symbol,
        };
        let short = match unit {
            Unit::Function(_) => &own.name.short,
            Unit::Inlined(number) => &self.inlining.names[number].short,
        };
        if is_main(symbol, short) {
            return Some(Reason::Main);
        }
        if self.is_thread_start(function, unit) {
            return Some(Reason::ThreadStart);
        }
        if let Some(callee) = self.event_loop(function, unit) {
            return Some(Reason::EventLoop { callee });
        }
        if let Some(callee) = self.called_event_loop(function, unit) {
            return Some(Reason::CallsEventLoop { callee });
        }
        if let Some(callee) = self.waits(function, unit) {
            return Some(Reason::Waits { callee });
        }
        if let Some(body) = self.body_around(function, unit, MAX_BODIES)
            && self.has_loop_of_steps(function, unit)
        {
            return Some(Reason::RestOfBody { body });
        }
        self.may_start_thread(function, unit)
    }

    fn may_start_thread(&self, function: usize, unit: Unit) -> Option<Reason> {
        if !matches!(unit, Unit::Function(_)) || self.called.contains(&function) {
            return None;
        }
        let taken_by = self.functions.get(self.creator(function)?)?.name.short.clone();
        Some(Reason::MayStartThread { taken_by })
    }

    /// Returns the name of the thread's body that calls a unit once, outside of its loops, where nothing else calls it:
    /// the body itself, or a function that is a part of one in the same way.
    fn body_around(&self, function: usize, unit: Unit, depth: usize) -> Option<String> {
        let name = || Some(self.functions.get(function)?.name.short.clone());
        let is_body = |caller: usize| {
            let of_caller = self.functions.get(caller)?;
            let starts =
                self.starts.starts.contains(&caller) || self.starts.mains.contains(&caller);
            let own = Unit::Function(caller);
            if starts
                || is_main(&of_caller.symbol, &of_caller.name.short)
                || self.may_start_thread(caller, own).is_some()
            {
                return Some(of_caller.name.short.clone());
            }
            self.body_around(caller, own, depth.checked_sub(1)?)
        };
        let is_in_loop = |around: usize, at: LinkAddr, inner: Option<usize>| {
            let is_inside =
                |at| inner.is_some_and(|number| self.inlining.contains(Unit::Inlined(number), at));
            self.loops_of(around).iter().any(|one| {
                one.body.contains(&at.0) && !(is_inside(one.first) && is_inside(one.last))
            })
        };
        match unit {
            Unit::Function(_) => {
                let callers = &self.callers[function];
                let symbol = source_symbol(&self.functions.get(function)?.symbol);
                let is_inlined = || self.inlining.calls.iter().any(|one| one.symbol == symbol);
                if self.pointed.contains(&function) || is_inlined() {
                    return None;
                }
                let is_once =
                    |caller| callers.iter().filter(|(one, _)| *one == caller).count() == 1;
                let mut bodies = callers.iter().map(|&(caller, at)| {
                    let is_part = caller != function && is_once(caller);
                    (is_part && !is_in_loop(caller, at, None)).then(|| is_body(caller)).flatten()
                });
                let first = bodies.next()??;
                bodies.all(|body| body.is_some()).then_some(first)
            }
            Unit::Inlined(number) => {
                let call = &self.inlining.calls[number];
                let around = self.inlining.around(function, call.entry);
                // What is inlined into a function that is called is a part of it.
                let outer = around.iter().take_while(|&&outer| outer != number);
                let are_known = outer.clone().all(|&outer| {
                    self.inlining.is_library(outer)
                        || self.is_thread_start(function, Unit::Inlined(outer))
                });
                let copies = self.inlining.calls.iter().filter(|one| one.symbol == call.symbol);
                (copies.count() == 1
                    && are_known
                    && !is_in_loop(function, call.entry, Some(number)))
                .then(|| is_body(function))
                .flatten()
                .and_then(|_| name())
            }
        }
    }

    /// Returns whether a unit makes two steps in a loop.
    fn has_loop_of_steps(&self, function: usize, unit: Unit) -> bool {
        let sites = self.sites(function);
        self.steps(unit, function, &sites).iter().filter(|step| step.in_loop).count() > 1
    }

    /// Returns a function that takes the address of another one and creates threads.
    fn creator(&self, function: usize) -> Option<usize> {
        (0..self.facts.len())
            .find(|&taker| self.creating[taker] && self.facts[taker].takes.contains(&function))
    }

    /// Returns the functions that threads start with, or may start with.
    fn thread_starts(&self) -> Vec<usize> {
        let creators = (0..self.facts.len()).filter(|&taker| self.creating[taker]);
        let taken = creators.flat_map(|taker| self.facts[taker].takes.iter().copied());
        let may_start = taken.filter(|function| !self.called.contains(function));
        let ThreadStarts { starts, mains } = &self.starts;
        let all: BTreeSet<usize> = may_start.chain(starts.iter().chain(mains).copied()).collect();
        all.into_iter().collect()
    }

    fn is_thread_start(&self, function: usize, unit: Unit) -> bool {
        let number = match unit {
            Unit::Function(_) => return self.starts.starts.contains(&function),
            Unit::Inlined(number) => number,
        };
        // The start function of a thread was inlined into the library's function that calls it.
        let call = &self.inlining.calls[number];
        let around = self.inlining.around(function, call.entry);
        let outer = around.iter().take_while(|&&outer| outer != number);
        self.starts.mains.contains(&function)
            && outer.clone().all(|&outer| {
                self.inlining.is_library(outer) && !drops(&self.inlining.names[outer])
            })
            && !drops(&self.inlining.names[number])
    }

    /// Returns the name of a callee of a unit that waits.
    fn waits(&self, function: usize, unit: Unit) -> Option<String> {
        self.waiting(function, unit, &[&self.wait, &self.futex_wait], |_| true)
    }

    /// Returns the name of the callee by which a loop of a unit waits or reads input, if the loop also takes
    /// locks.
    fn event_loop(&self, function: usize, unit: Unit) -> Option<String> {
        let in_unit = |at: LinkAddr| self.inlining.contains(unit, at);
        let mut sites = self.sites(function);
        sites.retain(|site| matches!(site.what, What::Takes(_) | What::Calls(..)));
        let loops = self.loops_of(function).iter();
        let loops = loops.filter(|one| {
            let takes = sites.iter().any(|site| one.body.contains(&site.at.0));
            // Libraries repeat interrupted calls: such a loop is no loop of tasks.
            let around = self.inlining.around(function, one.first);
            let is_own = !around.iter().any(|&number| self.inlining.is_library(number));
            // The jump back of its caller's loop may count as its own code.
            takes && is_own && one.body.iter().all(|&at| in_unit(LinkAddr(at)))
        });
        let loops: Vec<&Loop> = loops.collect();
        self.waiting(function, unit, &self.waiting_or_reading(), |at| {
            loops.iter().any(|one| one.body.contains(&at.0))
        })
    }

    /// Returns the name of the loop of tasks that a unit calls, if no other step can be in the same activation: what is
    /// called by a jump is the last one.
    fn called_event_loop(&self, function: usize, unit: Unit) -> Option<String> {
        let calls = &self.facts[function].calls;
        let own = calls.iter().filter(|call| self.inlining.contains(unit, call.at));
        let (at, name) = own.clone().find_map(|call| {
            let Callee::Own(callee) = call.callee else { return None };
            self.event_loop(callee, Unit::Function(callee))?;
            Some((call.at, self.functions.get(callee)?.name.short.clone()))
        })?;
        let sites = self.sites(function);
        let mut others = sites.iter().filter(|site| {
            let is_step = matches!(site.what, What::Takes(_) | What::Calls(..));
            is_step && site.at != at && self.inlining.contains(unit, site.at)
        });
        let is_last = |site: &Site| own.clone().any(|call| call.at == site.at && !call.returns);
        others.all(is_last).then_some(name)
    }

    /// Returns the name of what a unit calls, at a place of that kind, with one of these effects.
    fn waiting(
        &self,
        function: usize,
        unit: Unit,
        effects: &[&Effect<'_>],
        is_there: impl Fn(LinkAddr) -> bool,
    ) -> Option<String> {
        let waiting = |call| effects.iter().find_map(|it| it.of(call));
        let calls = self.facts[function].calls.iter();
        calls.filter(|call| call.returns && is_there(call.at)).find_map(|call| {
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
            let sites = &sites[function];
            let unit = Unit::Inlined(number);
            let has_step = sites.iter().any(|site| site.chain.contains(&number))
                && !self.is_one_section(function, unit, &self.steps(unit, function, sites), sites);
            if has_step && found.insert((call.entry.0, &call.symbol)) {
                let place = self.inlined_place(number, function);
                candidates.push(Candidate { place, ..like.clone() });
            }
        }
    }
}

/// Returns whether a function is the program's main function.
fn is_main(symbol: &str, short: &str) -> bool {
    let is_of_rust = || symbol.ends_with('E') || symbol.starts_with("_R");
    symbol == "main" || short.ends_with("::main") && is_of_rust()
}

/// Returns the role that follows from a reason for low prior.
pub(super) const fn role_of(reason: Option<&Reason>) -> RegionRole {
    match reason {
        None => RegionRole::Function,
        Some(Reason::Waits { .. } | Reason::EventLoop { .. } | Reason::CallsEventLoop { .. }) => {
            RegionRole::Waits
        }
        Some(_) => RegionRole::ThreadBody,
    }
}
