//! Programs for tests of defects: text traces in which steps name their lines, and the names that defects ask for.

use crate::text::{Names, parse, run};
use checker::defect::{
    Class, Defect, Dependence, Describe, Origin, PlaceInfo, RegionInfo, RegionRole, Steps,
    SubjectInfo, defects,
};
use checker::event::{Event, EventNumber, LocationId, LockId, RegionId};
use checker::finding::{Findings, Object};
use checker::{Options, Relation};
use std::collections::HashMap;

/// Trace of a program. A step may name its line, as in `t1 r(x) @get:12`; without a function the line is of the
/// region's function. `@get:12'` is a copy of the line, another place in the code.
pub struct Program {
    pub events: Vec<Event>,
    names: Names,
    /// Function and line of each location.
    places: Vec<(Option<String>, u32)>,
    roles: HashMap<String, RegionRole>,
    libraries: Vec<String>,
    lock_words: Vec<String>,
    sets_of_waiters: Vec<String>,
    one_class: Vec<String>,
    parts: Vec<String>,
    dependences: HashMap<(u32, u32), Dependence>,
    texts: HashMap<u32, String>,
    changed: Option<bool>,
    same_value: Option<bool>,
    /// First event behind which reads find another value than before.
    changes_at: EventNumber,
    sees_data: bool,
    /// Number of lines inserted above all others.
    inserted: u32,
}

impl Program {
    pub fn new(trace: &str) -> Self {
        let mut places: Vec<(Option<String>, u32)> = Vec::new();
        let mut steps = Vec::new();
        let mut locations = Vec::new();
        for step in trace.split([';', '\n']).map(str::trim).filter(|step| !step.is_empty()) {
            let (step, place) = step.split_once('@').unwrap_or((step, ""));
            steps.push(step.trim());
            let (function, line) = place.split_once(':').unwrap_or(("", place));
            let (line, is_copy) = (line.trim_end_matches('\''), line.ends_with('\''));
            let function = (!function.is_empty()).then(|| function.to_owned());
            let place = (function, line.trim().parse().unwrap_or(0));
            let known = places.iter().position(|known| *known == place).filter(|_| !is_copy);
            locations.push(known.unwrap_or_else(|| {
                places.push(place);
                places.len() - 1
            }));
        }
        let (mut events, names) = parse(&steps.join(";"));
        for (event, location) in events.iter_mut().zip(locations) {
            event.location = LocationId(location as u32);
        }
        Self {
            events,
            names,
            places,
            roles: HashMap::new(),
            libraries: Vec::new(),
            lock_words: Vec::new(),
            sets_of_waiters: Vec::new(),
            one_class: Vec::new(),
            parts: Vec::new(),
            dependences: HashMap::new(),
            texts: HashMap::new(),
            changed: None,
            same_value: None,
            changes_at: EventNumber::MAX,
            sees_data: true,
            inserted: 0,
        }
    }

    pub fn role(mut self, region: &str, role: RegionRole) -> Self {
        self.roles.insert(region.to_owned(), role);
        self
    }

    /// Makes a function, region or not, one of a library.
    pub fn library(mut self, region: &str) -> Self {
        self.libraries.push(region.to_owned());
        self
    }

    pub fn lock_word(mut self, variable: &str) -> Self {
        self.lock_words.push(variable.to_owned());
        self
    }

    /// Makes a variable the set of a condition variable's waiters.
    pub fn set_of_waiters(mut self, variable: &str) -> Self {
        self.sets_of_waiters.push(variable.to_owned());
        self
    }

    /// Gives the variables one name, as objects of one class have.
    pub fn one_class(mut self, variables: &[&str]) -> Self {
        self.one_class.extend(variables.iter().map(|&variable| variable.to_owned()));
        self
    }

    /// Makes the variables parts of one container.
    pub fn parts(mut self, variables: &[&str]) -> Self {
        self.parts.extend(variables.iter().map(|&variable| variable.to_owned()));
        self
    }

    /// Says how the step on one line depends on the step on an earlier one.
    pub fn dependence(mut self, earlier: u32, later: u32, found: Dependence) -> Self {
        self.dependences.insert((earlier, later), found);
        self
    }

    pub fn text(mut self, line: u32, text: &str) -> Self {
        self.texts.insert(line, text.to_owned());
        self
    }

    /// Sets whether remote writes changed the value.
    pub fn changed(mut self, changed: bool) -> Self {
        self.changed = Some(changed);
        self
    }

    /// Sets whether two reads found the same value.
    pub fn same_value(mut self, same: bool) -> Self {
        self.same_value = Some(same);
        self
    }

    /// Reads find another value from this event on, whatever they found before.
    pub fn changes_at(mut self, event: EventNumber) -> Self {
        self.changes_at = event;
        self
    }

    pub fn blind(mut self) -> Self {
        self.sees_data = false;
        self
    }

    pub fn insert_lines(mut self, lines: u32) -> Self {
        self.inserted = lines;
        self
    }

    pub fn findings(&self) -> Findings {
        run(&self.events, Options::default())
    }

    pub fn defects(&mut self) -> Vec<Defect> {
        let findings = self.findings();
        defects(&findings, self)
    }

    /// Returns the defects as `CLASS PATTERN REGION`.
    pub fn summary(&mut self) -> Vec<String> {
        let found = self.defects();
        let line = |defect: &Defect| {
            let class = match defect.class {
                Class::Likely => "likely",
                Class::Possible => "possible",
                Class::ByDesign => "by design",
            };
            let region = self.names.name('r', defect.region.0);
            format!("{class} {:?} {region}", defect.pattern)
        };
        found.iter().map(line).collect()
    }

    pub fn region_name(&self, region: RegionId) -> &str {
        self.names.name('r', region.0)
    }

    pub fn lock_name(&self, lock: LockId) -> &str {
        self.names.name('l', lock.0)
    }

    /// Returns the line of a location.
    pub fn line(&self, location: LocationId) -> u32 {
        self.places[location.index()].1
    }

    pub fn data_findings(&self) -> Findings {
        run(&self.events, Options::default().relation(Relation::Data))
    }
}

impl Describe for Program {
    fn region(&mut self, region: RegionId) -> RegionInfo {
        let name = self.names.name('r', region.0).to_owned();
        let library = self.libraries.contains(&name);
        let origin = if library { Origin::Library } else { Origin::Own };
        let role = self.roles.get(&name).copied().unwrap_or_default();
        RegionInfo { name, origin, role }
    }

    fn place(&mut self, location: LocationId) -> PlaceInfo {
        let (function, line) = self.places[location.index()].clone();
        let text = self.texts.get(&line).cloned().unwrap_or_else(|| format!("text of {line}"));
        PlaceInfo {
            file: Some("/src/a.c".to_owned()),
            line: Some(line + self.inserted),
            text,
            origin: match &function {
                Some(function) if self.libraries.contains(function) => Origin::Library,
                _ => Origin::Own,
            },
            function: Some(function.unwrap_or_else(|| "itself".to_owned())),
            ..PlaceInfo::default()
        }
    }

    fn subject(&mut self, object: Object) -> SubjectInfo {
        let name = match object {
            Object::Variable(variable) => self.names.name('v', variable.0),
            Object::Lock(lock) => self.names.name('l', lock.0),
            Object::Sync(sync) => self.names.name('s', sync.0),
            _ => "thread",
        };
        let is_one = self.one_class.iter().any(|variable| variable == name);
        SubjectInfo {
            name: if is_one { "one class" } else { name }.to_owned(),
            is_set_of_waiters: self.sets_of_waiters.iter().any(|set| set == name),
            is_lock_word: self.lock_words.iter().any(|word| word == name),
            container: self.parts.iter().any(|part| part == name).then_some(1),
        }
    }

    fn changed_value(&mut self, _event: EventNumber) -> Option<bool> {
        self.changed
    }

    fn same_value(&mut self, _first: EventNumber, second: EventNumber) -> Option<bool> {
        if second >= self.changes_at { Some(false) } else { self.same_value }
    }

    fn dependence(&mut self, steps: Steps) -> Dependence {
        let lines = [steps.earlier, steps.later].map(|step| self.line(step));
        self.dependences.get(&lines.into()).copied().unwrap_or_default()
    }

    fn sees_data(&self) -> bool {
        self.sees_data
    }
}
