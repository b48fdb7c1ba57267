//! Regions that are functions of which calls were inlined, in a plan: which of them the rules or the default name,
//! and the probes where they begin and end. Machine code is in `x86::inlined_extent`, debug information in `symbolize`.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use abi::{Cookie, Kind, ProbeProgram};
use checker::defect::RegionRole;
use symbolize::{ElfFile, InlinedCall, LinkAddr, Name};
use x86::{
    exits::Leaves,
    functions::Functions,
    inlined_extent::{self, InlinedEnd, InlinedExtent},
    restartable::restartable_sequences,
};

use super::{
    line_function::LineFunction,
    patterns::Rule,
    reason::Reason,
    site::{InlinedBegin, InlinedRegions, RegionSite},
};
use crate::{
    plan::{
        UnwatchedFunction, WatchedFunction,
        builder::Planner,
        skipped::{ProbePurpose, SkipReason},
    },
    selection::{Chosen, ChosenCall},
};

/// A rule as it applies to one module.
pub(crate) struct RuleHere<'rule> {
    pub(crate) number: usize,
    pub(crate) rule: &'rule Rule,
    /// The function around the source line that it names.
    pub(crate) line: Option<&'rule LineFunction>,
}

impl RuleHere<'_> {
    /// Returns true if the rule may name inlined calls of this function.
    fn may_name(&self, symbol: &str, name: &Name) -> bool {
        self.rule.pattern.matches(symbol, name) || self.line.is_some_and(|line| line.may_be(name))
    }

    fn names(&self, call: &InlinedCall, name: &Name) -> bool {
        self.rule.pattern.matches(&call.symbol, name)
            || self.line.is_some_and(|line| line.is_called(call, name))
    }
}

/// Calls that were inlined into others, which are looked up once they are needed.
struct InnerCalls {
    /// Code of the others, sorted and without overlaps.
    code: Vec<(LinkAddr, LinkAddr)>,
    found: OnceCell<Vec<InlinedCall>>,
}

impl InnerCalls {
    fn of<'call>(calls: impl Iterator<Item = &'call InlinedCall>) -> Self {
        let mut ranges: Vec<_> = calls.flat_map(|call| call.ranges.iter().copied()).collect();
        ranges.sort_unstable();
        let mut code: Vec<(LinkAddr, LinkAddr)> = Vec::new();
        for (start, end) in ranges {
            match code.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => code.push((start, end)),
            }
        }
        Self { code, found: OnceCell::new() }
    }

    /// Returns the code of each of the calls that were inlined into this one.
    fn within(&self, file: &ElfFile, call: &InlinedCall) -> Vec<Vec<Range<u64>>> {
        let calls = self.found.get_or_init(|| file.inlined_calls_within(&self.code));
        let is_inner = |inner: &&InlinedCall| {
            inner.ranges != call.ranges
                && inner.ranges.iter().all(|(start, _)| call.contains(*start))
        };
        let code =
            |inner: &InlinedCall| inner.ranges.iter().map(|(start, end)| start.0..end.0).collect();
        calls.iter().filter(is_inner).map(code).collect()
    }
}

/// Places of inlined regions: several may begin or end at one.
type RegionEdges = BTreeMap<u64, InlinedRegions>;

impl Planner<'_, '_> {
    /// Adds the inlined calls of the functions that the rules name. Returns the numbers of the rules that match any.
    pub(crate) fn inlined_regions(
        &mut self,
        rules: &[RuleHere<'_>],
        functions: &Functions,
    ) -> BTreeSet<usize> {
        let names: RefCell<HashMap<String, Option<Name>>> = RefCell::default();
        let wanted = |symbol: &str| {
            if let Some(known) = names.borrow().get(symbol) {
                return known.is_some();
            }
            let name = Name::demangle(symbol);
            let is_wanted = rules.iter().any(|rule| rule.may_name(symbol, &name));
            names.borrow_mut().insert(symbol.to_owned(), is_wanted.then_some(name));
            is_wanted
        };
        let calls = self.file.inlined_calls(&wanted);
        let names = names.into_inner();
        let inner = InnerCalls::of(calls.iter());
        let mut matched = BTreeSet::new();
        let mut places = RegionEdges::new();
        for call in &calls {
            let Some(Some(name)) = names.get(&call.symbol) else { continue };
            let matching: Vec<&RuleHere<'_>> =
                rules.iter().filter(|rule| rule.names(call, name)).collect();
            matched.extend(matching.iter().map(|rule| rule.number));
            // The last rule that matches says whether a function is a region.
            if let Some(RuleHere { rule, .. }) = matching.last().filter(|last| last.rule.atomic) {
                let why = format!("{} {}", rule.option(), rule.pattern);
                let chosen = Chosen { why, role: RegionRole::Named, followed: false };
                if let Err(reason) =
                    self.inlined_call(call, &inner, &chosen, functions, &mut places)
                {
                    self.skip_inlined(call, functions, reason);
                }
            }
        }
        self.inlined_sites(places);
        matched
    }

    /// Adds the inlined calls that are regions by default, as far as no rule says otherwise. Returns the functions that
    /// are regions instead, where the code of calls is mixed with theirs.
    pub(crate) fn inlined_defaults(
        &mut self,
        calls: &[ChosenCall],
        rules: &[RuleHere<'_>],
        functions: &Functions,
    ) -> Vec<(usize, Chosen)> {
        let mut instead = Vec::new();
        let inner = InnerCalls::of(calls.iter().map(|chosen| &chosen.call));
        let mut places = RegionEdges::new();
        for ChosenCall { call, around, instead: role, chosen, .. } in calls {
            let name = Name::demangle(&call.symbol);
            let named = rules.iter().rfind(|rule| rule.names(call, &name));
            if let Some(RuleHere { rule, .. }) = named {
                if let Some(address) = self.module.process_address(call.entry) {
                    let why = format!("{} {}", rule.option(), rule.pattern);
                    let name = name.short;
                    self.plan.leave_unwatched(UnwatchedFunction { name, address, why });
                }
                continue;
            }
            if let Err(reason) = self.inlined_call(call, &inner, chosen, functions, &mut places) {
                match role {
                    &Some((role, followed)) => {
                        let why = Reason::Inlined { callee: name.short }.to_string();
                        instead.push((*around, Chosen { why, role, followed }));
                    }
                    None => self.skip_inlined(call, functions, reason),
                }
            }
        }
        self.inlined_sites(places);
        instead
    }

    /// Adds the sites and probes at these places.
    fn inlined_sites(&mut self, places: RegionEdges) {
        for (at, inlined) in places {
            let (at, purpose) = (LinkAddr(at), self.purpose(&inlined));
            let Some(address) = self.module.process_address(at) else { continue };
            let kind = if inlined.begins.is_empty() { Kind::End } else { Kind::Begin };
            let site = self.add_site(address, RegionSite::Inlined(inlined));
            self.add_probe(ProbeProgram::Region, at, Cookie::new(kind, site), purpose);
        }
    }

    fn skip_inlined(&mut self, call: &InlinedCall, functions: &Functions, reason: SkipReason) {
        let around = functions.containing(call.entry).and_then(|index| functions.get(index));
        let purpose = ProbePurpose::InlinedRegion {
            region: Name::demangle(&call.symbol).short,
            into: around.map(|around| around.name.short.clone()),
        };
        self.skip(purpose, reason);
    }

    fn inlined_call(
        &mut self,
        call: &InlinedCall,
        inner: &InnerCalls,
        chosen: &Chosen,
        functions: &Functions,
        places: &mut RegionEdges,
    ) -> Result<(), SkipReason> {
        let name = Name::demangle(&call.symbol).short;
        let around = functions.containing(call.entry).and_then(|index| functions.get(index));
        let around = around.ok_or(SkipReason::NotInFile)?;
        let (Some(parts), Some(address)) =
            (around.parts(self.file), self.module.process_address(call.entry))
        else {
            return Err(SkipReason::NotInFile);
        };
        let own = |at: u64| call.ranges.iter().any(|&(start, end)| (start.0..end.0).contains(&at));
        let refused = |at: u64| restartable_sequences(self.file).contains(LinkAddr(at));
        let extents = inlined_extent::places(
            &parts,
            call.entry.0,
            &own,
            &|| inner.within(self.file, call),
            self.plan.state.place_rules,
            &refused,
        )?;
        // Only now: where a call cannot be one, the function around it may be the region that the focus names.
        if self.leaves_out(&name, address, chosen.followed) {
            return Ok(());
        }
        let number = self.plan.functions.len() as u32;
        let (into, role, followed) = (&around.name.short, chosen.role, chosen.followed);
        let why = format!("{}; inlined into `{into}`", chosen.why);
        let (at, copies) = (format_args!("{:#x}", address.0), extents.len());
        tracing::debug!(name, address = at, why, ?role, copies, "an inlined region");
        self.plan.functions.push(WatchedFunction { name: name.clone(), address, why, role });
        for InlinedExtent { begin, ends } in extents {
            let ends_before = ends.values().filter_map(|end| match end {
                InlinedEnd::After(at) => self.module.process_address(LinkAddr(*at)),
                _ => None,
            });
            let ends_before = ends_before.collect();
            let name = name.clone();
            let begins = InlinedBegin { function: number, name, role, followed, ends_before };
            places.entry(begin).or_default().begins.push(begins);
            for (at, end) in ends {
                let leaves = match end {
                    InlinedEnd::If(condition) => Leaves::If(condition),
                    InlinedEnd::Always | InlinedEnd::After(_) => Leaves::Always,
                };
                places.entry(at).or_default().ends.push((number, leaves));
            }
        }
        Ok(())
    }

    /// Returns the purpose of a probe.
    fn purpose(&self, site: &InlinedRegions) -> ProbePurpose {
        let ends =
            site.ends.iter().filter_map(|&(number, _)| self.plan.functions.get(number as usize));
        ProbePurpose::InlinedRegions {
            ends: ends.map(|function| function.name.clone()).collect(),
            begins: site.begins.iter().map(|begin| begin.name.clone()).collect(),
        }
    }
}
