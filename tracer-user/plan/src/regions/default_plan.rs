//! Default regions, in a plan: the most likely candidates of the program become chosen functions, as many as the limit
//! allows. Which functions are candidates is decided in `defaults`.

use std::{cell::RefCell, collections::BTreeSet, ops::Range};

use checker::defect::{Origin, RegionRole};
use iced_x86::Instruction;
use symbolize::{LinkAddr, Name, SymbolKind, Symbolizer};
use x86::{
    call_graph::{self, Callee, Imports},
    instruction::decode,
    loops::Flow,
    no_return::never_returns,
    shared_places::shared_accesses,
};

use super::{
    defaults::{self, Candidate, CandidateFunctions, CandidatePlace},
    known_names::KnownLocks,
    thread_starts::{self, CodeQueries, Pointee},
};
use crate::{
    go_code,
    memory::plan::is_small,
    origin::Origins,
    plan::{Plan, Site, SiteKind, UnwatchedFunction},
    selection::{Choice, Chosen, ChosenCall},
};

/// Maximum number of functions, and calls that were inlined, that are regions of a process by default.
pub const MAX_DEFAULT_REGIONS: usize = 400;

/// Chooses the regions by default in all modules of a process, with one limit: the most likely candidates, and where
/// they are too many the program's own before candidates in libraries. Functions that are seldom meant to be atomic
/// make transactions as the others do if `low_prior` is set; otherwise bodies of threads, loops around waits and
/// functions that wait are followed for cuts alone.
pub(super) fn choose(
    choices: &mut [&mut Choice<'_>],
    plan: &mut Plan,
    symbolizer: &Symbolizer,
    locks: KnownLocks<'_>,
    low_prior: bool,
) {
    let mut candidates: Vec<(usize, Candidate)> = (0..)
        .zip(choices.iter())
        .flat_map(|(number, choice)| {
            let mut found = choice.analyze(symbolizer, locks, plan.state.sees_memory);
            choice.note_thread_starts(plan, &found);
            if let Some(code) = go_code::of(choice.file) {
                found.candidates.retain(|one| !choice.lies_in(&code, &one.place));
                tracing::debug!(module = choice.module.name(), "code of Go has no default regions");
                plan.facts.go_code.insert(choice.module.name());
            }
            found.candidates.into_iter().map(move |one| (number, one))
        })
        .collect();
    // Regions of modules that were planned before count as well.
    let mut taken = plan.functions.len();
    tracing::info!(candidates = candidates.len(), taken, "candidates for default regions");
    if taken + candidates.len() > MAX_DEFAULT_REGIONS {
        let origins = Origins::of(symbolizer);
        candidates.sort_by_cached_key(|(number, one)| {
            (choices[*number].origin(&origins, symbolizer, &one.place), one.rank)
        });
    }
    for (number, candidate) in candidates {
        taken += usize::from(choices[number].decide(plan, candidate, low_prior, taken));
    }
    for choice in choices {
        // Of several that begin at one place the outer ones begin first.
        choice.inlined.sort_by_key(|chosen| chosen.number);
    }
}

impl Choice<'_> {
    /// Returns the functions that can be regions by default, those without locks only if accesses are seen, and those
    /// that threads start with.
    pub(super) fn analyze(
        &self,
        symbolizer: &Symbolizer,
        locks: KnownLocks<'_>,
        sees_memory: bool,
    ) -> CandidateFunctions {
        let facts = call_graph::facts(self.file, &self.functions);
        // Code of the program that was inlined into a library's function, such as a closure.
        let around = |address: LinkAddr| {
            let resolution = self
                .module
                .process_address(address)
                .and_then(|address| symbolizer.resolve(address).ok())
                .filter(|resolution| resolution.lines_missing.is_none());
            let frames = resolution.map(|resolution| resolution.frames).unwrap_or_default();
            frames.into_iter().filter_map(|frame| frame.function).collect()
        };
        let inlined = |instructions: &[LinkAddr]| self.file.inlined_calls_around(instructions);
        let takes_argument = |index: usize| {
            let parts = self.functions.get(index).and_then(|own| own.parts(self.file));
            let entry = parts.as_deref().and_then(<[_]>::first);
            entry.is_some_and(|part| thread_starts::takes_argument(part.code))
        };
        let pointers = self.pointers();
        let variable = |at: LinkAddr| {
            let (symbol, _) = self.file.symbol_at(at)?;
            (symbol.kind == SymbolKind::Object).then_some(symbol.address)
        };
        let shared = |index: usize| {
            let parts = self.functions.get(index).and_then(|own| own.parts(self.file));
            let parts = parts.unwrap_or_default();
            let instructions: Vec<Instruction> =
                parts.iter().flat_map(|part| decode(part.code, part.start)).collect();
            shared_accesses(&instructions)
        };
        let flow = |index: usize| {
            let parts = self.functions.get(index).and_then(|own| own.parts(self.file));
            let word_at = |address: u64| {
                let bytes = self.file.bytes_at(LinkAddr(address), 4)?.first_chunk()?;
                Some(u32::from_le_bytes(*bytes))
            };
            let calls = facts.get(index).map_or(&[][..], |facts| &facts.calls[..]);
            let ends: BTreeSet<u64> = calls
                .iter()
                .filter(|call| self.never_returns(&call.callee))
                .map(|call| call.at.0)
                .collect();
            Flow::new(&parts.unwrap_or_default(), &word_at, &|address| ends.contains(&address))
        };
        // All loops of a function are asked for one after the other.
        let latest: RefCell<Option<(usize, Flow)>> = RefCell::default();
        let loop_body = |index: usize, (first, last): (LinkAddr, LinkAddr)| {
            let mut latest = latest.borrow_mut();
            let known = latest.take().filter(|(of, _)| *of == index);
            let (_, flow) = latest.insert(known.unwrap_or_else(|| (index, flow(index))));
            flow.body(first.0, last.0)
        };
        let code = CodeQueries {
            loop_body: &loop_body,
            around: &around,
            inlined: &inlined,
            takes_argument: &takes_argument,
            pointers: &pointers,
            variable: &variable,
            // Without a lock only memory shows who came in between.
            shared: (sees_memory && is_small(&self.functions)).then_some(&shared),
        };
        let name = self.module.name();
        let locks = self.own_locks(&name, locks);
        defaults::analyze(&self.functions, &facts, locks, code)
    }

    /// Adds sites of the functions that threads start with.
    pub(super) fn note_thread_starts(&self, plan: &mut Plan, found: &CandidateFunctions) {
        let starts = found.thread_starts.iter().filter_map(|&index| self.functions.get(index));
        let places = starts.filter_map(|own| self.module.process_address(own.start));
        plan.sites.extend(places.map(|address| Site { address, kind: SiteKind::ThreadStart }));
    }

    fn never_returns(&self, callee: &Callee) -> bool {
        match callee {
            Callee::Own(own) => self
                .functions
                .get(*own)
                .is_some_and(|own| never_returns(&own.symbol, &own.name.short)),
            Callee::Import(import) => never_returns(&import.symbol, &import.name),
        }
    }

    /// Makes a candidate a region, or lists it as unwatched. `taken` is the number of regions so far.
    fn decide(
        &mut self,
        plan: &mut Plan,
        candidate: Candidate,
        low_prior: bool,
        taken: usize,
    ) -> bool {
        let Candidate { place, why, role, role_reason, excluded, .. } = candidate;
        let is_low_prior = is_low(role);
        let not = match (excluded, &role_reason) {
            (Some(reason), _) => Some(reason.to_string()),
            (None, Some(reason)) if is_low_prior && !low_prior && !reason.is_followed(&why) => {
                Some(reason.to_string())
            }
            _ if taken >= MAX_DEFAULT_REGIONS => {
                plan.facts.unlikely += 1;
                Some(format!(
                    "{why}; {MAX_DEFAULT_REGIONS} functions are more likely to be meant as atomic"
                ))
            }
            _ => None,
        };
        let followed = is_low_prior && !low_prior;
        let why = match role_reason {
            Some(reason) => format!("{why}; {reason}"),
            None => why.to_string(),
        };
        let is_region = not.is_none();
        match (place, not) {
            (CandidatePlace::Function(function), None) => {
                self.chosen.insert(function, Chosen { why, role, followed });
            }
            (CandidatePlace::Inlined { call, number, around, instead }, None) => {
                let instead = instead.map(|role| (role, is_low(role) && !low_prior));
                let chosen = Chosen { why, role, followed };
                self.inlined.push(ChosenCall { call, number, around, instead, chosen });
            }
            (CandidatePlace::Function(function), Some(why)) => {
                let own = self.functions.get(function);
                if let Some(own) = own
                    && let Some(address) = self.module.process_address(own.start)
                {
                    let name = own.name.short.clone();
                    plan.leave_unwatched(UnwatchedFunction { name, address, why });
                }
            }
            (CandidatePlace::Inlined { call, .. }, Some(why)) => {
                let name = Name::demangle(&call.symbol).short;
                if let Some(address) = self.module.process_address(call.entry) {
                    plan.leave_unwatched(UnwatchedFunction { name, address, why });
                }
            }
        }
        is_region
    }

    /// Returns whether the code of a candidate lies there.
    fn lies_in(&self, code: &Range<LinkAddr>, place: &CandidatePlace) -> bool {
        let (CandidatePlace::Function(function) | CandidatePlace::Inlined { around: function, .. }) =
            place;
        self.functions.get(*function).is_some_and(|own| code.contains(&own.start))
    }

    /// Returns the origin of a candidate.
    fn origin(&self, origins: &Origins, symbolizer: &Symbolizer, place: &CandidatePlace) -> Origin {
        match place {
            CandidatePlace::Function(function) => {
                let own = self.functions.get(*function);
                own.map_or_else(Origin::default, |own| {
                    origins.of_function(symbolizer, self.module, own)
                })
            }
            CandidatePlace::Inlined { call, .. } => {
                origins.of_name(self.module, &Name::demangle(&call.symbol))
            }
        }
    }

    /// Pointers to functions in variables with an initial value, by address.
    fn pointers(&self) -> Vec<(LinkAddr, Pointee)> {
        let imports = Imports::from_file(self.file);
        let own = imports.own().filter_map(|(slot, target)| {
            Some((LinkAddr(slot), Pointee::Own(self.functions.starting_at(target)?)))
        });
        let imported = imports
            .imports()
            .map(|(slot, import)| (LinkAddr(slot), Pointee::Import(import.symbol.clone())));
        let mut pointers: Vec<(LinkAddr, Pointee)> = own.chain(imported).collect();
        pointers.sort_by_key(|(slot, _)| *slot);
        pointers
    }
}

/// Returns whether regions of that role are seldom meant to be atomic.
const fn is_low(role: RegionRole) -> bool {
    matches!(role, RegionRole::ThreadBody | RegionRole::Waits)
}
