//! Puts names on defects, and on what the checker asks about while it groups findings into them.

use checker::{
    defect::{self, Describe, PlaceInfo, RegionInfo, SubjectInfo},
    event::{EventNumber, LocationId, RegionId},
    finding::{self, Findings, Point},
};
use serde_json::Value;

use super::{
    super::{
        model::{Defect, Gap, GapEnd, Location, Reason},
        reason::describe,
    },
    resolver::{Known, Resolver},
};

/// Groups findings into defects, numbered `d1`, `d2`, … in the order of the report. `ids` has the id of the violation
/// that each finding became.
pub(super) fn defects(
    findings: &Findings,
    ids: &[String],
    resolver: &mut Resolver<'_>,
) -> Vec<Defect> {
    let found = defect::defects(findings, resolver);
    let numbered = found.iter().enumerate();
    numbered.map(|(index, found)| resolver.defect(index + 1, found, ids)).collect()
}

impl Resolver<'_> {
    fn defect(&mut self, number: usize, found: &defect::Defect, ids: &[String]) -> Defect {
        let Known { name: region, role, origin, .. } = self.known_region(found.region);
        let (region, role, origin) = (region.clone(), *role, *origin);
        let outer = |id: &RegionId| self.known_region(*id).name.clone();
        let outer_regions = found.outer_regions.iter().map(outer).collect();
        let mut violations: Vec<String> = Vec::with_capacity(found.violations.len());
        for id in found.violations.iter().filter_map(|&index| ids.get(index)) {
            if !violations.contains(id) {
                violations.push(id.clone());
            }
        }
        let mut subjects: Vec<String> = Vec::new();
        for &object in &found.objects {
            let name = self.names.subject(object).name;
            if !subjects.contains(&name) {
                subjects.push(name);
            }
        }
        Defect {
            id: format!("d{number}"),
            fingerprint: format!("{:016x}", found.fingerprint),
            class: found.class,
            region,
            outer_regions,
            role,
            origin,
            pattern: found.pattern,
            subject: subjects.join(" and "),
            objects: found.objects.iter().map(|&object| self.object(object)).collect(),
            evidence: found.evidence,
            order: found.order,
            gap: Gap {
                left: self.end(&found.gap.left).0,
                returned: self.end(&found.gap.returned).0,
                left_at: self.end(&found.gap.left).1,
                returned_at: self.end(&found.gap.returned).1,
                kind: found.gap.kind,
            },
            reasons: found.reasons.iter().map(reason).collect(),
            runs: found.runs,
            cut_runs: found.cut_runs,
            occurrences: found.occurrences,
            ways: found.ways,
            violations,
        }
    }

    fn end(&mut self, point: &Point) -> (Option<Location>, GapEnd) {
        let place = self.point(point);
        let end = GapEnd {
            label: place.label,
            action: point.action,
            source_text: place.source_text,
            frames: place.frames,
        };
        (place.location, end)
    }
}

/// Returns the reason as the report has it: its kind, its data, and a sentence.
fn reason(found: &defect::Reason) -> Reason {
    let mut data = match serde_json::to_value(found) {
        Ok(Value::Object(data)) => data,
        // A reason is an object with its kind.
        _ => serde_json::Map::new(),
    };
    let kind = match data.remove("kind") {
        Some(Value::String(kind)) => kind,
        _ => String::new(),
    };
    Reason { kind, text: describe(found), data }
}

impl Describe for Resolver<'_> {
    fn region(&mut self, region: RegionId) -> RegionInfo {
        let Known { name, role, origin, .. } = self.known_region(region);
        RegionInfo { name: name.clone(), origin: *origin, role: *role }
    }

    fn place(&mut self, location: LocationId) -> PlaceInfo {
        let place = self.place(location);
        let (file, line) = match &place.location {
            Some(Location { file, line, .. }) => (Some(file.clone()), *line),
            None => (None, None),
        };
        PlaceInfo {
            file,
            line,
            text: place.source_text.unwrap_or(place.label),
            function: place.frames.get(place.shown).and_then(|frame| frame.function.clone()),
            origin: self.names.origin(location),
        }
    }

    fn subject(&mut self, object: finding::Object) -> SubjectInfo {
        self.names.subject(object)
    }

    fn changed_value(&mut self, event: EventNumber) -> Option<bool> {
        self.names.changed_value(event)
    }

    fn sees_data(&self) -> bool {
        self.names.sees_data()
    }
}
