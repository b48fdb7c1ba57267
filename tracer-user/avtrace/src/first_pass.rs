//! Files of first passes: the regions and functions that took part in imprecise cycles of transactions, by names that
//! another run finds again. A run with `--first-pass` writes one, and a run with `--focus` looks at what it names. The
//! cycles are found in `checker`, probes are chosen in `probes`.

use std::collections::BTreeSet;

use checker::Suspects;
use serde::Serialize;
use symbolize::is_system_module;

use crate::names::live::LiveNames;
use plan::focus::{FIRST_PASS_SCHEMA, ProgramFile, SuspectFunction, SuspectRegion};
use report::Tool;

/// Result of a first pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstPassFile {
    /// [`FIRST_PASS_SCHEMA`].
    pub schema: String,
    /// The program that wrote it.
    pub tool: Tool,
    /// The program that was run; null where it ended before it could be looked at.
    pub program: Option<ProgramFile>,
    /// Number of components of the imprecise graph: sets of transactions in which each may depend on each other one.
    pub components: u64,
    /// Number of regions that ran.
    pub regions_run: u64,
    pub lost_events: u64,
    /// Regions that took part, by name.
    pub regions: Vec<SuspectRegion>,
    /// Functions with accesses or synchronisation that took part, in regions or in none.
    pub functions: Vec<SuspectFunction>,
}

impl Default for FirstPassFile {
    fn default() -> Self {
        Self {
            schema: FIRST_PASS_SCHEMA.to_owned(),
            tool: Tool::this(),
            program: None,
            components: 0,
            regions_run: 0,
            lost_events: 0,
            regions: Vec::new(),
            functions: Vec::new(),
        }
    }
}

impl FirstPassFile {
    /// Names what a program's events have shown.
    #[must_use]
    pub fn new(suspects: &Suspects, names: &LiveNames<'_>, lost_events: u64) -> Self {
        let region = |(&id, &locations)| {
            let known = names.source().regions().get(id)?;
            let module = names.function_at(known.location).map(|(module, _)| module);
            Some(SuspectRegion { name: known.name.clone(), module, locations })
        };
        let mut regions: Vec<SuspectRegion> = suspects.regions.iter().filter_map(region).collect();
        regions.sort_by(|one, other| one.name.cmp(&other.name));
        let functions = suspects.locations.iter().filter_map(|&at| names.function_at(at));
        // Accesses of the system's libraries count for their callers.
        let functions: BTreeSet<SuspectFunction> = functions
            .filter(|(module, _)| !is_system_module(module))
            .map(|(module, name)| SuspectFunction { module, name })
            .collect();
        Self {
            program: names.symbolizer().executable().map(ProgramFile::of),
            components: suspects.components,
            regions_run: suspects.regions_run,
            lost_events,
            regions,
            functions: functions.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds what another program of the same run has shown.
    pub fn add(&mut self, other: Self) {
        self.components += other.components;
        self.regions_run += other.regions_run;
        self.lost_events += other.lost_events;
        for region in other.regions {
            match self.regions.iter_mut().find(|known| known.name == region.name) {
                Some(known) => known.locations = known.locations.max(region.locations),
                None => self.regions.push(region),
            }
        }
        self.regions.sort_by(|one, other| one.name.cmp(&other.name));
        self.functions.extend(other.functions);
        self.functions.sort_unstable();
        self.functions.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, locations: u64) -> SuspectRegion {
        SuspectRegion { name: name.to_owned(), module: None, locations }
    }

    fn function(module: &str, name: &str) -> SuspectFunction {
        SuspectFunction { module: module.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn what_programs_of_a_run_have_shown_comes_together() {
        let of = |regions: &[(&str, u64)], functions: &[&str]| FirstPassFile {
            components: 1,
            regions: regions.iter().map(|&(name, locations)| region(name, locations)).collect(),
            functions: functions.iter().map(|name| function("shop", name)).collect(),
            ..FirstPassFile::default()
        };
        let mut file = of(&[("pay", 2), ("serve", 0)], &["pay", "take"]);
        file.add(of(&[("audit", 1), ("serve", 3)], &["audit", "pay"]));
        let expected = of(&[("audit", 1), ("pay", 2), ("serve", 3)], &["audit", "pay", "take"]);
        assert_eq!(file, FirstPassFile { components: 2, ..expected });
    }
}
