//! What would be watched, told without running the program: regions and probes, as a table or as JSON. The plan is
//! made elsewhere.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{
    probes::{
        placement::Cost,
        plan::{FunctionPlace, Plan, PlannedProbe, SiteKind},
    },
    report::printable,
    symbolize::{ProcessAddr, Resolution, Symbolizer},
};

/// A plan for a program that is not run, and the names in it.
#[derive(Debug)]
pub struct Listing {
    pub(super) plan: Plan,
    pub(super) symbolizer: Symbolizer,
}

/// A probe, for JSON.
#[derive(Serialize)]
struct Probe<'plan> {
    module: String,
    address: String,
    place: String,
    cost: &'static str,
    what: &'plan str,
}

/// What is not probed, for JSON.
#[derive(Serialize)]
struct NotProbed<'plan> {
    what: &'plan str,
    reason: &'plan str,
}

/// All probes, for JSON.
#[derive(Serialize)]
struct Probes<'plan> {
    schema: &'static str,
    emulated: usize,
    single_stepped: usize,
    probes: Vec<Probe<'plan>>,
    not_probed: Vec<NotProbed<'plan>>,
}

impl Listing {
    /// The regions, and functions that could be regions and are none, each with the reason.
    #[must_use]
    pub fn regions(&self) -> String {
        let mut text = String::new();
        let marked = self.plan.marked_regions();
        let begins = |name: &str| {
            self.plan.sites.iter().any(|site| match &site.kind {
                SiteKind::Function(FunctionPlace::Entry { name: known, .. }) => known == name,
                SiteKind::InlinedRegions(inlined) => {
                    inlined.begins.iter().any(|(_, known)| known == name)
                }
                _ => false,
            })
        };
        if marked.is_empty() && self.plan.functions.is_empty() {
            text.push_str("no region would be watched\n");
        } else {
            text.push_str("regions that would be watched:\n");
        }
        let mut rows: Vec<[String; 3]> = marked
            .iter()
            .map(|name| [(*name).to_owned(), String::new(), "markers in the source".to_owned()])
            .collect();
        rows.extend(self.plan.functions.iter().filter(|function| begins(&function.name)).map(
            |function| [function.name.clone(), self.place(function.address), function.why.clone()],
        ));
        table(&mut text, &rows);
        if !self.plan.unwatched.is_empty() {
            text.push_str("functions that take locks, or are named, and would not be:\n");
            let rows: Vec<[String; 3]> = self
                .plan
                .unwatched
                .iter()
                .map(|function| {
                    [function.name.clone(), self.place(function.address), function.why.clone()]
                })
                .collect();
            table(&mut text, &rows);
        }
        self.skipped(&mut text);
        text
    }

    /// The probes as a table: place, cost, what each is for.
    #[must_use]
    pub fn probes(&self) -> String {
        let mut text = String::new();
        let rows: Vec<[String; 3]> = self
            .plan
            .probes
            .iter()
            .map(|probe| {
                [self.code(probe.address), cost(probe.cost).to_owned(), probe.what.clone()]
            })
            .collect();
        table(&mut text, &rows);
        self.skipped(&mut text);
        let _ = writeln!(
            text,
            "{} probes: {} emulated (about 0.5 us a hit), {} single-stepped (about 9 us a hit)",
            rows.len(),
            self.count(Cost::Emulated),
            self.count(Cost::SingleStepped)
        );
        text
    }

    /// The probes as a JSON document.
    ///
    /// # Errors
    ///
    /// When the document cannot be made.
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
                    what: &planned.what,
                })
                .collect(),
            not_probed: self
                .plan
                .skipped
                .iter()
                .map(|skipped| NotProbed { what: &skipped.what, reason: &skipped.reason })
                .collect(),
        };
        serde_json::to_string_pretty(&probes).map(|text| text + "\n")
    }

    fn count(&self, cost: Cost) -> usize {
        self.plan.probes.iter().filter(|probe| probe.cost == cost).count()
    }

    fn skipped(&self, text: &mut String) {
        if self.plan.skipped.is_empty() {
            return;
        }
        text.push_str("what cannot be probed:\n");
        let rows: Vec<[String; 3]> = self
            .plan
            .skipped
            .iter()
            .map(|skipped| [skipped.what.clone(), String::new(), skipped.reason.clone()])
            .collect();
        table(text, &rows);
    }

    /// The source line, or else the place in the code.
    fn place(&self, address: ProcessAddr) -> String {
        let resolution = self.symbolizer.resolve(address).ok();
        let line = |resolution: &Resolution| {
            let frame = resolution.frames.last()?;
            let file = frame.file.as_deref()?.file_name()?.to_string_lossy().into_owned();
            Some(format!("{file}:{}", frame.line?))
        };
        resolution.as_ref().and_then(line).unwrap_or_else(|| self.code(address))
    }

    /// `function+0x12 (module)`.
    fn code(&self, address: ProcessAddr) -> String {
        self.symbolizer
            .resolve(address)
            .map_or_else(|_| format!("{:#x}", address.0), |resolution| resolution.to_string())
    }
}

const fn cost(cost: Cost) -> &'static str {
    match cost {
        Cost::Emulated => "emulated",
        Cost::SingleStepped => "single-stepped",
    }
}

/// Wider cells do not move the column that follows.
const WIDEST: usize = 48;

fn table(text: &mut String, rows: &[[String; 3]]) {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).min(WIDEST)
    };
    let (first, second) = (width(0), width(1));
    for row in rows {
        let [one, two, three] = row.each_ref().map(|cell| printable(cell));
        let line = if second == 0 {
            format!("  {one:first$}  {three}")
        } else {
            format!("  {one:first$}  {two:second$}  {three}")
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
