//! Regions that are functions of which calls were inlined, in a plan: which of them the rules name, and the probes where
//! they begin and end. Machine code is in `inlined_code`, debug information in `symbolize`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use tracer_ebpf::{Cookie, Kind};

use super::{
    functions::Functions,
    inlined_code::{self, InlinedPlaces},
    plan::{InlinedRegions, Planner, SiteKind, WatchedFunction},
    select::Rule,
};
use crate::{
    kernel::ProbeProgram,
    symbolize::{InlinedCall, LinkAddr, Name},
};

impl Planner<'_, '_> {
    /// Adds the inlined calls of the functions that the rules name. Returns which of the rules matched any.
    pub(super) fn inlined_regions(&mut self, rules: &[&Rule], functions: &Functions) -> Vec<bool> {
        let matched = RefCell::new(vec![false; rules.len()]);
        let known: RefCell<HashMap<String, Option<usize>>> = RefCell::default();
        // The last rule that matches says whether a function is a region.
        let chosen_by = |symbol: &str| {
            if let Some(known) = known.borrow().get(symbol) {
                return *known;
            }
            let name = Name::demangle(symbol);
            let mut last = None;
            for (index, rule) in rules.iter().enumerate() {
                if rule.pattern.matches(symbol, &name) {
                    matched.borrow_mut()[index] = true;
                    last = Some(index);
                }
            }
            let chosen = last.filter(|&index| rules[index].atomic);
            known.borrow_mut().insert(symbol.to_owned(), chosen);
            chosen
        };
        let calls = self.file.inlined_calls(&|symbol| chosen_by(symbol).is_some());
        // By place: several may begin or end at one.
        let mut sites: BTreeMap<u64, InlinedRegions> = BTreeMap::new();
        for call in calls {
            let Some(rule) = chosen_by(&call.symbol).map(|index| rules[index]) else { continue };
            self.inlined_call(&call, rule, functions, &mut sites);
        }
        for (at, inlined) in sites {
            let (at, what) = (LinkAddr(at), self.what(&inlined));
            let Some(address) = self.module.process_address(at) else { continue };
            let kind = if inlined.begins.is_empty() { Kind::End } else { Kind::Begin };
            let site = self.add_site(address, SiteKind::InlinedRegions(inlined));
            self.add_probe(ProbeProgram::Region, at, Cookie::new(kind, site), what);
        }
        matched.into_inner()
    }

    fn inlined_call(
        &mut self,
        call: &InlinedCall,
        rule: &Rule,
        functions: &Functions,
        sites: &mut BTreeMap<u64, InlinedRegions>,
    ) {
        let name = Name::demangle(&call.symbol).short;
        let around = functions.containing(call.entry).and_then(|index| functions.get(index));
        let what = match around {
            Some(around) => format!("region `{name}`, inlined into `{}`", around.name.short),
            None => format!("region `{name}`, inlined"),
        };
        let (Some(parts), Some(address)) = (
            around.and_then(|around| around.parts(self.file)),
            self.module.process_address(call.entry),
        ) else {
            return self.skip(what, "its code is not in the file".to_owned());
        };
        let own = |at: u64| call.ranges.iter().any(|&(start, end)| (start.0..end.0).contains(&at));
        let InlinedPlaces { begin, ends } = match inlined_code::places(&parts, call.entry.0, &own) {
            Ok(places) => places,
            Err(error) => return self.skip(what, error.to_string()),
        };
        let number = self.plan.functions.len() as u32;
        let into = around.map_or("", |around| &around.name.short);
        self.plan.functions.push(WatchedFunction {
            name: name.clone(),
            address,
            why: format!("{} {}; inlined into `{into}`", rule.option(), rule.pattern),
        });
        sites.entry(begin).or_default().begins.push((number, name));
        for end in ends {
            sites.entry(end).or_default().ends.push(number);
        }
    }

    /// What a probe there is for, for people.
    fn what(&self, site: &InlinedRegions) -> String {
        let ends = site.ends.iter().filter_map(|&number| self.plan.functions.get(number as usize));
        let parts: Vec<String> = ends
            .map(|function| format!("end of region `{}`, inlined", function.name))
            .chain(site.begins.iter().map(|(_, name)| format!("begin of region `{name}`, inlined")))
            .collect();
        parts.join(", ")
    }
}
