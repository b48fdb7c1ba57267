//! Puts names on defects, and answers the questions of the checker while it groups findings into defects.

use std::path::Path;

use checker::{
    defect::{self, Dependence, Describe, Origin, PlaceInfo, RegionInfo, Steps, SubjectInfo},
    event::{EventNumber, LocationId, LockId, RegionId},
    finding::{self, Findings, Point},
};
use serde_json::Value;
use symbolize::is_system_file;

use super::{
    super::{
        functions::is_function,
        help::help,
        listing::distinct,
        model::{
            Defect, Gap, GapEnd, Location, Object, OthersHeld, Reason, SourceFrame, Violation,
        },
        names::lines_alike,
    },
    resolver::{Known, Place, Resolver},
};

/// Groups findings into defects, numbered `d1`, `d2`, … in the order of the report. `ids` has the id of the violation
/// that each finding became; `counted` has the violations that count, `exemplars` those that only defects show.
pub(super) fn defects(
    findings: &Findings,
    ids: &[String],
    counted: &[Violation],
    exemplars: &[Violation],
    resolver: &mut Resolver<'_>,
) -> Vec<Defect> {
    let found = defect::defects(findings, resolver);
    let shown = |defect: &defect::Defect| {
        let number = *defect.violations.first()?;
        let id = ids.get(number)?;
        let violation = counted.iter().chain(exemplars).find(|violation| violation.id == *id)?;
        Some((findings.violation(number)?, violation))
    };
    let mut defects: Vec<Defect> = Vec::with_capacity(found.len());
    for defect in &found {
        let Some((finding, shown)) = shown(defect) else { continue };
        let defect = resolver.defect(defects.len() + 1, defect, ids, finding, shown);
        defects.push(defect);
    }
    defects
}

impl Resolver<'_> {
    fn defect(
        &mut self,
        number: usize,
        found: &defect::Defect,
        ids: &[String],
        finding: &finding::Violation,
        violation: &Violation,
    ) -> Defect {
        self.within = Some((found.gap.left.thread, found.region));
        let Known { name: region, role, origin, .. } = self.known_region(found.region);
        let (region, role, origin) = (region.clone(), *role, *origin);
        let outer = |id: &RegionId| self.known_region(*id).name.clone();
        let outer_regions = distinct(found.outer_regions.iter().map(outer));
        let violations = distinct(found.violations.iter().filter_map(|&at| ids.get(at).cloned()));
        let subject = |object: &finding::Object| self.names.subject(*object).name;
        let subjects = distinct(found.objects.iter().map(subject));
        let subject = |object: &finding::Object| self.names.subject(*object).name;
        let mut other_subjects = distinct(found.other_objects.iter().map(subject));
        other_subjects.retain(|name| !subjects.contains(name));
        let (left, mut left_at) =
            self.end(&region, &found.gap.left, found.gap.left_chain.as_deref());
        left_at.held = self.locks(found.gap.left_held.as_deref());
        let (returned, mut returned_at) =
            self.end(&region, &found.gap.returned, found.gap.returned_chain.as_deref());
        returned_at.held = self.locks(found.gap.returned_held.as_deref());
        let others = OthersHeld {
            entered: self.locks(found.gap.others.entered.as_deref()),
            left: self.locks(found.gap.others.left.as_deref()),
            throughout: self.locks(found.gap.others.throughout.as_deref()),
        };
        let held = found.gap.held_throughout.iter();
        let gap = Gap {
            left,
            returned,
            left_at,
            returned_at,
            kind: found.gap.kind,
            lock: found.gap.lock.as_ref().map(|lock| self.split(lock)),
            held: held.map(|&lock| self.object(finding::Object::Lock(lock))).collect(),
            others,
        };
        let mut defect = Defect {
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
            other_subjects,
            evidence: found.evidence,
            order: found.order,
            gap,
            reasons: found.reasons.iter().map(reason).collect(),
            runs: found.runs,
            cut_runs: found.cut_runs,
            occurrences: found.occurrences,
            violations,
            ways: found.ways,
            help: String::new(),
            set_aside: None,
            hunted: None,
            merged: None,
        };
        // One call that releases a lock and acquires it again. A line is not enough: it may have several calls.
        let is_wait = finding.released_locks.iter().any(|split| {
            split.holder.is_some() && split.released.location == split.reacquired.location
        });
        let hint = violation.hint.clone();
        defect.help = if is_wait { hint } else { help(&defect, violation, found.gap.obstacle) };
        defect
    }

    /// Describes a place for the checker.
    fn info(&mut self, location: LocationId, place: Place) -> PlaceInfo {
        let frame = place.frames.get(place.shown).cloned().unwrap_or_default();
        // A language's library works for its callers, which are not known here: the region decides.
        let of_language = |frame: &SourceFrame| {
            frame.file.as_deref().is_some_and(|file| is_system_file(Path::new(file)))
        };
        let origin = if place.frames.iter().all(of_language) {
            Origin::default()
        } else {
            self.names.origin(location)
        };
        let in_library = place.frames.first().is_some_and(of_language);
        PlaceInfo {
            in_library,
            ordinal: lines_alike(self.names, &frame).len() as u32,
            text: place.source_text.or_else(|| line_in_function(&frame)).unwrap_or(place.label),
            file: frame.file,
            line: frame.line,
            function: frame.function,
            origin,
        }
    }

    /// Returns the objects of locks that were held, if these are known.
    fn locks(&mut self, held: Option<&[LockId]>) -> Option<Vec<Object>> {
        let held = held?.iter();
        Some(held.map(|&lock| self.object(finding::Object::Lock(lock))).collect())
    }

    /// Returns the place of a step of the region, and the step; the locks held there are not known yet.
    fn end(
        &mut self,
        region: &str,
        point: &Point,
        nested: Option<&[RegionId]>,
    ) -> (Option<Location>, GapEnd) {
        let place = self.point(point);
        let nested = nested.unwrap_or_default().iter();
        let nested: Vec<String> = nested.map(|id| self.known_region(*id).name.clone()).collect();
        let (chain, called_at) = calls(region, &place, nested);
        let end = GapEnd {
            event: point.event,
            label: place.label,
            action: point.action,
            source_text: place.source_text,
            chain,
            called_at,
            module: place.frames.get(place.shown).and_then(|frame| frame.module.clone()),
            held: None,
        };
        (place.location, end)
    }
}

/// Returns a label for a line whose text is not known, which stays when lines are inserted before its function.
fn line_in_function(frame: &SourceFrame) -> Option<String> {
    let within = frame.line?.checked_sub(frame.declared?)?;
    Some(format!("line {within} of {}", frame.function.as_deref()?))
}

/// Returns the calls that led from a region to a place in it, by the frames of the place or else by the regions nested
/// in it, and the place of the first of them.
fn calls(region: &str, place: &Place, nested: Vec<String>) -> (Vec<String>, Option<Location>) {
    let is_region = |frame: &SourceFrame| is_function(frame, region);
    let own = place.frames.iter().position(is_region);
    let shown = place.frames.get(place.shown).and_then(|frame| {
        let function = frame.function.as_deref()?;
        // Without lines, the offset is the offset of the place.
        let name = function.rsplit_once("+0x").filter(|_| frame.file.is_none());
        Some(name.map_or(function, |(name, _)| name).to_owned())
    });
    let mut chain = vec![region.to_owned()];
    match own.filter(|&own| own >= place.shown) {
        Some(own) => {
            let callees = place.frames[place.shown..own].iter().rev();
            chain.extend(
                callees
                    .filter(|frame| !frame.is_wrapper)
                    .filter_map(|frame| frame.function.clone()),
            );
        }
        None => {
            chain.extend(nested);
            // The function around a region that a marker names is not a callee of the region.
            if chain.len() > 1 {
                chain.extend(shown);
            }
        }
    }
    chain.dedup();
    let called_at = own.filter(|_| chain.len() > 1).and_then(|own| {
        let SourceFrame { file, line, column, function, .. } = place.frames[own].clone();
        Some(Location { file: file?, line, column, function })
    });
    (chain, called_at)
}

/// Returns the reason as the report has it: its kind, its data, and a sentence.
#[must_use]
pub fn reason(found: &defect::Reason) -> Reason {
    let mut data = match serde_json::to_value(found) {
        Ok(Value::Object(data)) => data,
        // A reason is an object with its kind.
        _ => serde_json::Map::new(),
    };
    let kind = match data.remove("kind") {
        Some(Value::String(kind)) => kind,
        _ => String::new(),
    };
    Reason { kind, text: found.to_string(), data }
}

impl Describe for Resolver<'_> {
    fn region(&mut self, region: RegionId) -> RegionInfo {
        let Known { name, role, origin, .. } = self.known_region(region);
        RegionInfo { name: name.clone(), origin: *origin, role: *role }
    }

    fn place(&mut self, location: LocationId) -> PlaceInfo {
        let place = self.place(location);
        self.info(location, place)
    }

    fn place_in(&mut self, region: RegionId, location: LocationId) -> PlaceInfo {
        let place = self.place_in(Some(region), location);
        self.info(location, place)
    }

    fn subject(&mut self, object: finding::Object) -> SubjectInfo {
        self.names.subject(object)
    }

    fn same_value(&mut self, first: EventNumber, second: EventNumber) -> Option<bool> {
        let read = self.names.value(first)?.before?;
        let last = self.names.value(second)?;
        Some(last.after.or(last.before)? == read)
    }

    fn changed_value(&mut self, event: EventNumber) -> Option<bool> {
        self.names.changed_value(event)
    }

    fn dependence(&mut self, steps: Steps) -> Dependence {
        self.names.dependence(steps)
    }

    fn sees_data(&self) -> bool {
        self.names.sees_data()
    }
}
