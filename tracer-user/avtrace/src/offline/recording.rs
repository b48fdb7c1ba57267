//! Properties of avtrace's recordings besides events and names: their keys and values. Written when a run
//! is recorded, read when the recording is checked.

use std::collections::BTreeMap;

use checker::{
    defect::{Dependence, RegionRole, Steps},
    format::{IdSpace, Lost, Names, Property},
};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::names::classes::{KnownClasses, RecordedClasses};
use report::{
    Capture, Limitation, LostEvents, MemorySeen, NotSeen, Perturbation, Report, TrapDeath,
};

/// Key that marks a trace as recorded from a running program. Such a trace may begin in the middle of a
/// run: events that do not fit are no error in it.
const RECORDED_BY: &str = "avtrace.recorded-by";

/// Key of the limitations of the run, as JSON.
const NOT_SEEN: &str = "avtrace.not-seen";

/// Key of the dependences between steps, as JSON.
const DEPENDENCES: &str = "avtrace.dependences";

/// Key of the classes of objects, as JSON.
const CLASSES: &str = "avtrace.classes";

/// Key of the roles of regions, by their ids, as JSON.
const ROLES: &str = "avtrace.region-roles";

/// Key of the ability of the run to see data: `true` or `false`.
const SEES_DATA: &str = "avtrace.sees-data";

/// Key of the facts about the run itself, as JSON.
const RUN: &str = "avtrace.run";

/// Key of the number of source lines that there was no room for. A recording without it has no source lines.
const SOURCES: &str = "avtrace.source-lines-left-out";

/// Largest value of a property: a block of the file must hold it.
const MAX_VALUE: usize = 8 << 20;

/// Returns the property at the beginning of a recording.
#[must_use]
pub fn mark() -> Property {
    let version = concat!("avtrace ", env!("CARGO_PKG_VERSION"));
    Property { key: RECORDED_BY.to_owned(), value: version.to_owned() }
}

/// Returns whether a trace was recorded from a running program.
#[must_use]
pub fn is_live(names: &Names) -> bool {
    names.properties().iter().any(|property| property.key == RECORDED_BY)
}

/// Returns the counts and the property that record the run's limitations. Gaps are left out: they are in
/// the trace itself.
///
/// # Errors
/// When `serde_json` fails, for which there is no cause.
pub fn not_seen(seen: &NotSeen) -> Result<(Vec<Lost>, Property), serde_json::Error> {
    let lost = seen.lost_events.iter();
    let lost =
        lost.map(|lost| Lost { class: lost.class.clone(), count: lost.count }).collect::<Vec<_>>();
    let rest =
        NotSeen { lost_events: Vec::new(), gaps: 0, unresolved_locations: 0, ..seen.clone() };
    let value = serde_json::to_string(&rest)?;
    Ok((lost, Property { key: NOT_SEEN.to_owned(), value }))
}

/// Returns the property that records the classes of objects; `None` if there are too many for one.
///
/// # Errors
/// When `serde_json` fails, for which there is no cause.
pub(crate) fn classes(classes: &RecordedClasses) -> Result<Option<Property>, serde_json::Error> {
    let value = serde_json::to_string(classes)?;
    Ok((value.len() <= MAX_VALUE).then(|| Property { key: CLASSES.to_owned(), value }))
}

/// Returns the classes of the objects of a recording; empty if the recording has no readable property with them.
pub(crate) fn read_classes(names: &Names) -> KnownClasses {
    let property = names.properties().iter().rev().find(|property| property.key == CLASSES);
    let recorded =
        property.and_then(|property| serde_json::from_str::<RecordedClasses>(&property.value).ok());
    recorded.unwrap_or_default().into()
}

/// Returns the property that records how steps depend on one another; `None` if there are too many for one.
///
/// # Errors
/// When `serde_json` fails, for which there is no cause.
pub(crate) fn dependences(
    known: &[(Steps, Dependence)],
) -> Result<Option<Property>, serde_json::Error> {
    let value = serde_json::to_string(known)?;
    Ok((value.len() <= MAX_VALUE).then(|| Property { key: DEPENDENCES.to_owned(), value }))
}

/// Returns how steps of a recording depend on one another; empty if it has no readable property with that.
pub(super) fn read_dependences(names: &Names) -> FxHashMap<Steps, Dependence> {
    let property = names.properties().iter().rev().find(|property| property.key == DEPENDENCES);
    let known = property.and_then(|property| {
        serde_json::from_str::<Vec<(Steps, Dependence)>>(&property.value).ok()
    });
    known.unwrap_or_default().into_iter().collect()
}

/// Returns the property that records the roles of regions, by their ids.
///
/// # Errors
/// When `serde_json` fails, for which there is no cause.
pub(crate) fn roles(roles: &[RegionRole]) -> Result<Property, serde_json::Error> {
    Ok(Property { key: ROLES.to_owned(), value: serde_json::to_string(roles)? })
}

/// Returns the roles of the regions of a recording, by their ids; empty if it has no readable property with them.
pub(crate) fn read_roles(names: &Names) -> Vec<RegionRole> {
    let property = names.properties().iter().rev().find(|property| property.key == ROLES);
    property.and_then(|property| serde_json::from_str(&property.value).ok()).unwrap_or_default()
}

/// Returns the property that records whether the run was able to see accesses to memory.
#[must_use]
pub fn sees_data(sees: bool) -> Property {
    Property { key: SEES_DATA.to_owned(), value: sees.to_string() }
}

/// Returns whether the run was able to see accesses to memory; `None` where the recording has no word on it.
pub(crate) fn read_sees_data(names: &Names) -> Option<bool> {
    let property = names.properties().iter().rev().find(|property| property.key == SEES_DATA)?;
    property.value.parse().ok()
}

/// Facts about a run that its events do not show, as a report has them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecordedRun {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capture: Option<Capture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemorySeen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trap: Option<TrapDeath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) perturbation: Option<Perturbation>,
}

/// Returns the property that records the facts about the run itself.
///
/// # Errors
/// When `serde_json` fails, for which there is no cause.
pub(crate) fn run(report: &Report) -> Result<Property, serde_json::Error> {
    let Report { capture, memory, trap, perturbation, .. } = report.clone();
    let value = serde_json::to_string(&RecordedRun { capture, memory, trap, perturbation })?;
    Ok(Property { key: RUN.to_owned(), value })
}

/// Returns the facts about the run that was recorded; empty if the recording has no readable property with them.
pub(crate) fn read_run(names: &Names) -> RecordedRun {
    let property = names.properties().iter().rev().find(|property| property.key == RUN);
    property.and_then(|property| serde_json::from_str(&property.value).ok()).unwrap_or_default()
}

/// Returns the property of a recording with source lines. `left_out` is the number of lines that had no room.
#[must_use]
pub fn sources(left_out: u64) -> Property {
    Property { key: SOURCES.to_owned(), value: left_out.to_string() }
}

/// Returns the number of source lines that there was no room for in a recording; `None` if it has no source lines.
pub(crate) fn read_sources(names: &Names) -> Option<u64> {
    let of_sources = names.properties().iter().filter(|property| property.key == SOURCES);
    of_sources.filter_map(|property| property.value.parse::<u64>().ok()).reduce(u64::saturating_add)
}

/// Returns the limitations of the run that was recorded.
#[must_use]
pub fn read_not_seen(names: &Names) -> NotSeen {
    let property = names.properties().iter().rev().find(|property| property.key == NOT_SEEN);
    let mut seen: NotSeen = match property.map(|property| serde_json::from_str(&property.value)) {
        Some(Ok(seen)) => seen,
        Some(Err(error)) => NotSeen {
            limitations: vec![Limitation::UnreadableLimitations { error: error.to_string() }],
            ..NotSeen::default()
        },
        None => NotSeen::default(),
    };
    (seen.gaps, seen.unresolved_locations) = (0, 0);
    seen.lost_events = names
        .lost()
        .iter()
        .map(|lost| LostEvents { class: lost.class.clone(), count: lost.count })
        .collect();
    seen
}

/// Properties of all segments of a recording, with the ids of the joined trace.
#[derive(Debug, Default)]
pub(super) struct JoinedProperties {
    has_mark: bool,
    classes: KnownClasses,
    roles: BTreeMap<u32, RegionRole>,
    left_out: Option<u64>,
    /// Properties of which the last segment decides.
    latest: BTreeMap<&'static str, Property>,
}

impl JoinedProperties {
    /// Returns the mark of a recording the first time that a segment has it.
    pub(super) fn take_mark(&mut self, names: &Names) -> Option<Property> {
        if self.has_mark {
            return None;
        }
        let mark = names.properties().iter().find(|property| property.key == RECORDED_BY).cloned();
        self.has_mark = mark.is_some();
        mark
    }

    /// Adds the properties of a segment. `joined` maps ids of the segment to ids of the joined trace.
    pub(super) fn add(&mut self, names: &Names, joined: impl Fn(IdSpace, u32) -> Option<u32>) {
        for (id, role) in (0..).zip(read_roles(names)) {
            if let Some(id) = joined(IdSpace::Region, id) {
                self.roles.insert(id, role);
            }
        }
        self.classes.extend(read_classes(names), joined);
        if let Some(left_out) = read_sources(names) {
            *self.left_out.get_or_insert(0) += left_out;
        }
        for key in [SEES_DATA, NOT_SEEN, RUN] {
            let property = names.properties().iter().rev().find(|property| property.key == key);
            self.latest.extend(property.map(|property| (key, property.clone())));
        }
    }

    /// Returns the properties of the joined trace.
    pub(super) fn finish(self) -> Vec<Property> {
        let Self { classes: known, roles: by_id, latest, left_out, .. } = self;
        let last = by_id.last_key_value().map_or(0, |(&id, _)| id + 1);
        let all: Vec<RegionRole> =
            (0..last).map(|id| by_id.get(&id).copied().unwrap_or_default()).collect();
        let classes = classes(&known.into()).ok().flatten();
        let roles = roles(&all).ok().filter(|_| !all.is_empty());
        let sources = left_out.map(sources);
        latest.into_values().chain(classes).chain(roles).chain(sources).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ability_to_see_data_is_recorded() {
        assert_eq!(
            (sees_data(true).value.as_str(), sees_data(false).value.as_str()),
            ("true", "false")
        );
        assert_eq!(read_sees_data(&Names::default()), None, "a trace of another tool");
    }

    #[test]
    fn roles_are_read_as_they_were_written() {
        let all =
            [RegionRole::Named, RegionRole::ThreadBody, RegionRole::Function, RegionRole::Waits];
        let property = roles(&all).expect("JSON");
        assert_eq!(property.value, r#"["named","thread-body","function","waits"]"#);
        let read: Vec<RegionRole> = serde_json::from_str(&property.value).expect("roles");
        assert_eq!(read, all);
        assert!(read_roles(&Names::default()).is_empty());
    }
}
