//! Listing of regions and probes without running the program, as a table or as JSON. The plan is made elsewhere.

use std::fmt::Write as _;

use checker::defect::{Origin, RegionRole};
use serde::Serialize;
use symbolize::{Frame, Name, ProcessAddr, Resolution, Symbolizer};
use x86::placement::Cost;

use super::coverage::limitations::unprobed;
use plan::{
    origin::Origins,
    plan::{Plan, PlannedProbe, WatchedFunction, skipped::SkippedProbe},
    regions::site::{FunctionPlace, RegionSite},
};
use report::{Limitation, UNPROBED_HELP, UnprobedCalls, printable, text::layout, unprobed_calls};

/// A plan for a program that is not run, and the names in it.
#[derive(Debug)]
pub struct Listing {
    pub(super) plan: Plan,
    pub(super) symbolizer: Symbolizer,
}

/// Function that is a region, and its author.
type Watched<'plan> = (&'plan WatchedFunction, Origin);

/// A probe, for JSON.
#[derive(Serialize)]
struct Probe {
    module: String,
    address: String,
    place: String,
    cost: &'static str,
    what: String,
}

/// Functions that are not probed, for JSON.
#[derive(Serialize)]
struct NotProbed {
    what: String,
    reason: String,
    kind: &'static str,
    reason_kind: &'static str,
}

/// A function or a marked region, for JSON.
#[derive(Serialize)]
struct Region<'plan> {
    name: &'plan str,
    place: Option<String>,
    why: &'plan str,
    /// Role in the program, for regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<RegionRole>,
    /// Author of the code, for regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

/// All regions, for JSON.
#[derive(Serialize)]
struct Regions<'plan> {
    schema: &'static str,
    stripped: bool,
    regions: Vec<Region<'plan>>,
    not_watched: Vec<Region<'plan>>,
    not_probed: Vec<NotProbed>,
}

/// Reason for a region by markers.
const MARKED: &str = "markers in the source";

/// All probes, for JSON.
#[derive(Serialize)]
struct Probes {
    schema: &'static str,
    emulated: usize,
    single_stepped: usize,
    probes: Vec<Probe>,
    not_probed: Vec<NotProbed>,
    unprobed_calls: Option<UnprobedCalls>,
}

impl Listing {
    /// Returns the plan, and the names.
    #[must_use]
    pub fn into_parts(self) -> (Plan, Symbolizer) {
        (self.plan, self.symbolizer)
    }

    /// Formats the regions, and the functions that could be regions and are none, each with the reason, in `width`
    /// columns.
    #[must_use]
    pub fn regions(&self, width: usize) -> String {
        let mut text = String::new();
        let (marked, watched) = self.watched();
        if marked.is_empty() && self.plan.functions.is_empty() {
            text.push_str("no region would be watched\n");
            let stripped = self.plan.facts.stripped.clone();
            let about = stripped
                .map(|program| Limitation::StrippedProgram { program }.to_string())
                .or_else(|| self.about_lockless());
            for line in about.iter().flat_map(|about| layout::wrap(about, width)) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        let (seldom_atomic, others): (Vec<Watched<'_>>, Vec<_>) = watched
            .into_iter()
            .partition(|one| matches!(one.0.role, RegionRole::ThreadBody | RegionRole::Waits));
        let (own, of_libraries): (Vec<Watched<'_>>, Vec<_>) =
            others.into_iter().partition(|(_, origin)| *origin == Origin::Own);
        let row = |(function, _): Watched<'_>| {
            let place = self.place(function.address);
            // Without a line, the file remains.
            let start = format!("{}+0x0 ", function.name);
            let place = place.strip_prefix(&start).map(str::to_owned).unwrap_or(place);
            [function.name.clone(), place, function.why.clone()]
        };
        let mut rows: Vec<[String; 3]> = marked
            .iter()
            .map(|name| [(*name).to_owned(), String::new(), MARKED.to_owned()])
            .collect();
        rows.extend(own.into_iter().map(row));
        if !rows.is_empty() {
            text.push_str("regions that would be watched:\n");
            text += &layout::table(&rows, Some(width));
        }
        if !of_libraries.is_empty() {
            let none = if rows.is_empty() { "regions that would be watched, all " } else { "" };
            let _ = writeln!(
                text,
                "{none}of crates and libraries, which rank below the program's own:"
            );
            let rows: Vec<[String; 3]> = of_libraries.into_iter().map(row).collect();
            text += &layout::table(&rows, Some(width));
        }
        if !seldom_atomic.is_empty() {
            text.push_str("watched as well, and seldom meant to be atomic:\n");
            let rows: Vec<[String; 3]> = seldom_atomic.into_iter().map(row).collect();
            text += &layout::table(&rows, Some(width));
        }
        if !self.plan.facts.unwatched.is_empty() {
            text.push_str("functions that take locks, or are named, and would not be:\n");
            let rows: Vec<[String; 3]> = self
                .plan
                .facts
                .unwatched
                .iter()
                .map(|function| {
                    [function.name.clone(), self.place(function.address), function.why.clone()]
                })
                .collect();
            text += &layout::table(&rows, Some(width));
        }
        if !self.plan.facts.left_out.is_empty() {
            let libraries = self.plan.facts.left_out.iter().cloned().collect();
            let about = Limitation::LeftOutLibraries { libraries }.to_string();
            for line in layout::wrap(&about, width) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        self.skipped(&mut text, Some(width));
        text
    }

    /// Formats the regions as a JSON document.
    pub fn regions_as_json(&self) -> Result<String, serde_json::Error> {
        let (marked, watched) = self.watched();
        let functions = watched.into_iter().map(|(function, origin)| Region {
            name: &function.name,
            place: Some(self.place(function.address)),
            why: &function.why,
            role: Some(function.role),
            origin: Some(origin),
        });
        let regions = Regions {
            schema: "avtrace-regions/1",
            stripped: self.plan.facts.stripped.is_some(),
            regions: marked
                .iter()
                .map(|&name| Region {
                    name,
                    place: None,
                    why: MARKED,
                    role: Some(RegionRole::Named),
                    origin: Some(Origin::Own),
                })
                .chain(functions)
                .collect(),
            not_watched: self
                .plan
                .facts
                .unwatched
                .iter()
                .map(|function| Region {
                    name: &function.name,
                    place: Some(self.place(function.address)),
                    why: &function.why,
                    role: None,
                    origin: None,
                })
                .collect(),
            not_probed: self.not_probed(),
        };
        serde_json::to_string_pretty(&regions).map(|text| text + "\n")
    }

    /// Returns the names of marked regions, and the functions that are regions, the program's own first.
    fn watched(&self) -> (Vec<&str>, Vec<Watched<'_>>) {
        let begins = |name: &str| {
            self.plan.sites.iter().any(|site| match site.kind.region() {
                Some(RegionSite::Function(FunctionPlace::Entry { name: known, .. })) => {
                    known == name
                }
                Some(RegionSite::Inlined(inlined)) => {
                    inlined.begins.iter().any(|begin| begin.name == name)
                }
                _ => false,
            })
        };
        let functions = self.plan.functions.iter();
        let functions = functions.filter(|function| begins(&function.name));
        let origins = Origins::of(&self.symbolizer);
        let mut functions: Vec<Watched<'_>> =
            functions.map(|function| (function, self.origin(&origins, function))).collect();
        functions.sort_by_key(|(_, origin)| *origin);
        (self.plan.marked_regions(), functions)
    }

    /// Returns the author of a function that is a region.
    fn origin(&self, origins: &Origins, function: &WatchedFunction) -> Origin {
        let module = self.symbolizer.module_at(function.address);
        let resolution = self.symbolizer.resolve(function.address).ok();
        let frames = resolution.as_ref().map_or(&[][..], |resolution| &resolution.frames);
        let is_its = |frame: &&Frame| {
            frame.function.as_ref().is_some_and(|name| name.short == function.name)
        };
        let file = frames.iter().find(is_its).and_then(|frame| frame.file.as_deref());
        let name = Name { short: function.name.clone(), full: function.name.clone() };
        origins.author(module, file, Some(&name)).into()
    }

    /// Returns the reason for which there is no region, where nothing else explains it.
    fn about_lockless(&self) -> Option<String> {
        let program =
            self.symbolizer.executable().filter(|_| self.plan.facts.unwatched.is_empty())?;
        Some(format!(
            "no function of `{}` itself takes a lock: name functions with --atomic, those of a library with \
             `--atomic 'LIB.so!NAME'`",
            printable(&program.name())
        ))
    }

    fn not_probed(&self) -> Vec<NotProbed> {
        let skipped = self.plan.facts.skipped.iter();
        let not_probed = |SkippedProbe { purpose, reason }: &SkippedProbe| NotProbed {
            what: purpose.to_string(),
            reason: reason.to_string(),
            kind: purpose.kind(),
            reason_kind: reason.kind(),
        };
        skipped.map(not_probed).collect()
    }

    /// Formats the probes as a table of place, cost and purpose.
    #[must_use]
    pub fn probes(&self) -> String {
        let mut text = String::new();
        let rows: Vec<[String; 3]> = self
            .plan
            .probes
            .iter()
            .map(|probe| {
                [self.code(probe.address), cost(probe.cost).to_owned(), probe.purpose.to_string()]
            })
            .collect();
        text += &layout::table(&rows, None);
        self.skipped(&mut text, None);
        if let Some(message) = self.unprobed_calls().as_ref().and_then(unprobed_calls) {
            let _ = writeln!(text, "{message} ({UNPROBED_HELP})");
        }
        let _ = writeln!(
            text,
            "{} probes: {} emulated (about 0.5 us a hit), {} single-stepped (about 9 us a hit)",
            rows.len(),
            self.count(Cost::Emulated),
            self.count(Cost::SingleStepped)
        );
        text
    }

    /// Formats the probes as a JSON document.
    pub fn probes_as_json(&self) -> Result<String, serde_json::Error> {
        let probe = |probe: &'_ PlannedProbe| {
            let module = self.symbolizer.module_at(probe.address);
            module.map(|module| module.path().display().to_string()).unwrap_or_default()
        };
        let probes = Probes {
            schema: "avtrace-probes/1",
            emulated: self.count(Cost::Emulated),
            single_stepped: self.count(Cost::SingleStepped),
            probes: self
                .plan
                .probes
                .iter()
                .map(|planned| Probe {
                    module: probe(planned),
                    address: self
                        .symbolizer
                        .module_at(planned.address)
                        .and_then(|module| module.link_address(planned.address))
                        .map(|address| format!("{:#x}", address.0))
                        .unwrap_or_default(),
                    place: self.code(planned.address),
                    cost: cost(planned.cost),
                    what: planned.purpose.to_string(),
                })
                .collect(),
            not_probed: self.not_probed(),
            unprobed_calls: self.unprobed_calls(),
        };
        serde_json::to_string_pretty(&probes).map(|text| text + "\n")
    }

    /// Returns the code that regions call and that is not probed, where accesses are to be seen by probes.
    fn unprobed_calls(&self) -> Option<UnprobedCalls> {
        (!self.plan.access_groups.is_empty()).then(|| unprobed(&self.plan.facts.uncovered))
    }

    fn count(&self, cost: Cost) -> usize {
        self.plan.probes.iter().filter(|probe| probe.cost == cost).count()
    }

    fn skipped(&self, text: &mut String, width: Option<usize>) {
        if self.plan.facts.skipped.is_empty() {
            return;
        }
        text.push_str("what cannot be probed:\n");
        let rows: Vec<[String; 3]> = self
            .plan
            .facts
            .skipped
            .iter()
            .map(|skipped| [skipped.purpose.to_string(), String::new(), skipped.reason.to_string()])
            .collect();
        *text += &layout::table(&rows, width);
    }

    /// Returns the source line, or else the place in the code.
    fn place(&self, address: ProcessAddr) -> String {
        let resolution = self.symbolizer.resolve(address).ok();
        let line = |resolution: &Resolution| {
            let frame = resolution.frames.last()?;
            let file = frame.file.as_deref()?.file_name()?.to_string_lossy().into_owned();
            let is_entry = matches!(resolution.function, Some((_, 0)));
            let declared = frame.declared.filter(|_| is_entry);
            Some(format!("{file}:{}", declared.or(frame.line)?))
        };
        resolution.as_ref().and_then(line).unwrap_or_else(|| self.code(address))
    }

    /// Formats a place in the code: `function+0x12 (module)`.
    fn code(&self, address: ProcessAddr) -> String {
        self.symbolizer
            .resolve(address)
            .map_or_else(|_| format!("{:#x}", address.0), |resolution| resolution.to_string())
    }
}

const fn cost(cost: Cost) -> &'static str {
    match cost {
        Cost::Displaced => "displaced",
        Cost::Emulated => "emulated",
        Cost::SingleStepped => "single-stepped",
    }
}
