//! Puts names and source lines on the ids of findings, once each, and lays the steps of a witness out in time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use checker::{
    defect::{Origin, RegionRole},
    event::{LocationId, RegionId, ThreadId},
    finding::{self, Point, Tx},
};

use super::super::{
    explain,
    functions::without_arguments,
    model::{
        Action, DataSeen, Edge, Evidence, Location, Object, Region, Role, SourceFrame, Split, Step,
        Thread, Transaction, Violation,
    },
    names::{Names, RegionName},
};

/// Limit of source lines in characters. Longer lines are cut, since reports show them and do not store them.
const MAX_SOURCE_CHARS: usize = 400;

/// A part of a static witness, to compare by.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Mark {
    Region(Option<String>),
    Evidence(Evidence),
    Line(String, u32),
    Label(String),
    Nowhere(LocationId),
    Action(Action),
}

/// A code location with all that is known about it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) location: Option<Location>,
    pub(super) label: String,
    via: Vec<String>,
    pub(super) source_text: Option<String>,
    pub(super) frames: Vec<SourceFrame>,
    pub(super) shown: usize,
}

/// A region with all that is known about it.
pub(super) struct Known {
    pub(super) name: String,
    place: Place,
    pub(super) role: RegionRole,
    pub(super) origin: Origin,
}

/// Place of a step in time. Deferred accesses follow the event that they have been made after, of which there may be
/// several.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StepKey {
    event: u64,
    deferred_at: Option<LocationId>,
    action: Action,
}

impl StepKey {
    const fn of_event(event: u64, action: Action) -> Self {
        Self { event, deferred_at: None, action }
    }

    fn of(point: &Point) -> Self {
        let deferred_at = point.deferred.then_some(point.location);
        Self { event: point.event, deferred_at, action: point.action }
    }
}

/// Looks names up once and keeps them.
pub(super) struct Resolver<'a> {
    pub(super) names: &'a mut dyn Names,
    places: HashMap<(Option<RegionId>, LocationId), Place>,
    regions: BTreeMap<RegionId, Known>,
    threads: BTreeSet<ThreadId>,
    objects: HashMap<finding::Object, Object>,
    /// Objects that are parts of a container of a library, or are known not to be.
    parts: HashMap<finding::Object, bool>,
    /// Region that a thread runs at its steps outside transactions, if it is one that is followed.
    pub(super) within: Option<(ThreadId, RegionId)>,
    pub(super) unresolved: BTreeSet<LocationId>,
    /// Names of all regions, without the arguments of templates, with the names themselves.
    functions: Option<HashMap<String, String>>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(names: &'a mut dyn Names) -> Self {
        Self {
            names,
            places: HashMap::new(),
            regions: BTreeMap::new(),
            threads: BTreeSet::new(),
            objects: HashMap::new(),
            parts: HashMap::new(),
            within: None,
            unresolved: BTreeSet::new(),
            functions: None,
        }
    }

    pub(super) fn place(&mut self, id: LocationId) -> Place {
        self.place_in(None, id)
    }

    /// The place of a step in an execution of a region, if it is in one.
    pub(super) fn place_in(&mut self, region: Option<RegionId>, id: LocationId) -> Place {
        if let Some(place) = self.places.get(&(region, id)) {
            return place.clone();
        }
        let frames = match region {
            Some(region) => self.names.frames_in(region, id),
            None => self.names.frames(id),
        };
        let place = self.place_of(frames);
        if place.is_unknown() {
            self.unresolved.insert(id);
        }
        self.places.insert((region, id), place.clone());
        place
    }

    fn place_of(&mut self, frames: Vec<SourceFrame>) -> Place {
        let shown = frames.iter().position(|frame| !frame.is_wrapper).unwrap_or(0);
        self.place_at(frames, shown)
    }

    /// The place of an event. Within a region that is a function, what is shown is in it or what it calls: never in a
    /// caller, even where all of it is a wrapper.
    pub(super) fn point(&mut self, point: &Point) -> Place {
        let followed = self.within.filter(|(thread, _)| *thread == point.thread);
        let region = point.tx.region.or_else(|| Some(followed?.1));
        let place = self.place_in(region, point.location);
        let Some(region) = point.tx.region else { return place };
        let region = self.region(region).0;
        let is_region = |frame: &SourceFrame| frame.function.as_ref() == Some(&region);
        match place.frames.iter().position(is_region) {
            Some(function) if function < place.shown => self.place_at(place.frames, function),
            _ => place,
        }
    }

    fn place_at(&mut self, frames: Vec<SourceFrame>, shown: usize) -> Place {
        let Some(frame) = frames.get(shown) else {
            return Place {
                location: None,
                label: "unknown location".to_owned(),
                via: Vec::new(),
                source_text: None,
                frames,
                shown,
            };
        };
        let location = frame.file.clone().map(|file| Location {
            file,
            line: frame.line,
            column: frame.column,
            function: frame.function.clone(),
        });
        let source_text = match &location {
            Some(Location { file, line: Some(line), .. }) => self.names.source_line(file, *line),
            _ => None,
        };
        Place {
            location,
            label: label_of(frame),
            via: frames[..shown].iter().rev().filter_map(|frame| frame.function.clone()).collect(),
            source_text: source_text
                .map(|text| text.trim().chars().take(MAX_SOURCE_CHARS).collect()),
            frames,
            shown,
        }
    }

    fn region(&mut self, id: RegionId) -> (String, Place) {
        let Known { name, place, .. } = self.known_region(id);
        (name.clone(), place.clone())
    }

    pub(super) fn known_region(&mut self, id: RegionId) -> &Known {
        if !self.regions.contains_key(&id) {
            let RegionName { name, frames, role, origin } = self.names.region(id);
            let place = self.place_of(frames);
            self.regions.insert(id, Known { name, place, role, origin });
        }
        &self.regions[&id]
    }

    /// Returns the innermost function among frames that is a region.
    fn innermost(&mut self, frames: &[SourceFrame]) -> Option<String> {
        if self.functions.is_none() {
            let regions = self.names.regions();
            let names = regions.into_iter().map(|id| self.known_region(id).name.clone());
            self.functions = Some(names.map(|name| (without_arguments(&name), name)).collect());
        }
        let functions = self.functions.as_ref()?;
        let own = frames.iter().filter(|frame| !frame.is_wrapper);
        own.filter_map(|frame| functions.get(&without_arguments(frame.function.as_deref()?)))
            .next()
            .cloned()
    }

    pub(super) fn object(&mut self, object: finding::Object) -> Object {
        let names = &mut *self.names;
        self.objects.entry(object).or_insert_with(|| names.object(object)).clone()
    }

    pub(super) fn transaction(&mut self, tx: &Tx) -> Transaction {
        self.threads.insert(tx.thread);
        Transaction {
            thread: tx.thread.0,
            ordinal: tx.ordinal,
            region: tx.region.map(|region| self.region(region).0),
            begin_event: tx.begin_event,
        }
    }

    pub(super) fn violation(&mut self, found: &finding::Violation) -> Violation {
        self.within = Some((found.transaction.thread, found.region));
        let (region, region_place) = self.region(found.region);
        let mut begin = self.place(found.begin.location);
        if begin.is_unknown() {
            begin = region_place;
        }
        let mut violation = Violation {
            id: String::new(),
            region,
            occurrences: found.occurrences,
            evidence: found.evidence,
            order: found.order,
            transaction: self.transaction(&found.transaction),
            trigger_event: found.trigger_event,
            source_event: found.source_event,
            witness: found.witness.iter().map(|tx| self.transaction(tx)).collect(),
            edges: found.edges.iter().map(|edge| self.edge(edge)).collect(),
            steps: self.steps(found, &begin),
            begin: begin.location,
            begin_label: begin.label,
            splits: found.released_locks.iter().map(|split| self.split(split)).collect(),
            data_seen: self.data_seen(found),
            hint: String::new(),
        };
        // One call that releases a lock and takes it again. A line is not enough: it may have several calls.
        let waits: BTreeSet<u64> = (found.released_locks.iter())
            .filter(|split| split.released.location == split.reacquired.location)
            .map(|split| split.released.event)
            .collect();
        violation.hint = explain::hint(&violation, &|split| waits.contains(&split.released_event));
        violation
    }

    pub(super) fn edge(&mut self, edge: &finding::Edge) -> Edge {
        let (source, sink) = (self.point(&edge.source), self.point(&edge.sink));
        Edge {
            source_event: edge.source.event,
            sink_event: edge.sink.event,
            object: self.object(edge.object),
            source: source.location,
            sink: sink.location,
            source_label: source.label,
            sink_label: sink.label,
            source_action: edge.source.action,
            sink_action: edge.sink.action,
            source_transaction: self.transaction(&edge.source.tx),
            sink_transaction: self.transaction(&edge.sink.tx),
            order: edge.order,
        }
    }

    pub(super) fn split(&mut self, split: &finding::ReleasedLock) -> Split {
        let (released, reacquired) = (self.point(&split.released), self.point(&split.reacquired));
        Split {
            lock: self.object(finding::Object::Lock(split.lock)),
            released_event: split.released.event,
            reacquired_event: split.reacquired.event,
            released: released.location,
            reacquired: reacquired.location,
            released_label: released.label,
            reacquired_label: reacquired.label,
            holder: split.holder.map(|holder| self.transaction(&holder)),
        }
    }

    fn data_seen(&mut self, found: &finding::Violation) -> Option<DataSeen> {
        if found.evidence == finding::Evidence::Data || found.witness.is_empty() {
            return None;
        }
        let finding::DataSeen { without, met } = &found.data;
        Some(DataSeen {
            without: without.iter().map(|tx| self.transaction(tx)).collect(),
            met: met.iter().map(|&id| self.object(finding::Object::Variable(id))).collect(),
        })
    }

    /// The events that matter, in time order. An event may matter in several ways.
    fn steps(&mut self, found: &finding::Violation, begin: &Place) -> Vec<Step> {
        let mut steps = BTreeMap::<StepKey, Step>::new();
        let (at, name) = (&found.begin, self.region(found.region).0);
        let mut opening = begin.step(at.event, at.thread, Some(name), at.action);
        opening.add_role(Role::Begin);
        steps.insert(StepKey::of_event(at.event, opening.action), opening);
        for tx in &found.witness {
            // A unary transaction is its one event; the violating one may be nested, and is there already.
            let Some(region) = tx.region.filter(|_| *tx != found.transaction) else { continue };
            let step = steps
                .entry(StepKey::of_event(tx.begin_event, Action::Begin))
                .or_insert_with(|| {
                    let (name, place) = self.region(region);
                    place.step(tx.begin_event, tx.thread, Some(name), Action::Begin)
                });
            step.add_role(Role::Begin);
        }
        for edge in &found.edges {
            let (object, part_of) = (self.object(edge.object), Some(edge.object));
            self.add_step(&mut steps, &edge.source, &object, part_of, Role::Source);
            self.add_step(&mut steps, &edge.sink, &object, part_of, Role::Sink);
            if edge.sink.event == found.trigger_event {
                self.add_step(&mut steps, &edge.sink, &object, part_of, Role::Closes);
            }
        }
        // Of others it is not known that they let anybody in.
        for split in found.released_locks.iter().filter(|split| split.holder.is_some()) {
            let lock = self.object(finding::Object::Lock(split.lock));
            self.add_step(&mut steps, &split.released, &lock, None, Role::Released);
            self.add_step(&mut steps, &split.reacquired, &lock, None, Role::Reacquired);
        }
        steps.into_values().collect()
    }

    fn add_step(
        &mut self,
        steps: &mut BTreeMap<StepKey, Step>,
        point: &Point,
        object: &Object,
        part_of: Option<finding::Object>,
        role: Role,
    ) {
        self.threads.insert(point.thread);
        let action = point.action;
        let step = steps.entry(StepKey::of(point)).or_insert_with(|| {
            let region = point.tx.region.map(|region| self.region(region).0);
            let mut step = self.point(point).step(point.event, point.thread, region, action);
            step.innermost = self
                .innermost(&step.frames)
                .filter(|innermost| Some(innermost) != step.region.as_ref());
            // What a library stores in its objects says nothing to others.
            let is_part = part_of.is_some_and(|of| {
                let names = &mut *self.names;
                let find = || names.subject(of).container.is_some();
                *self.parts.entry(of).or_insert_with(find)
            });
            if matches!(
                action,
                Action::Read | Action::Write | Action::Update | Action::CommutingUpdate
            ) {
                let value = point.own_event().and_then(|event| self.names.value(event));
                step.value = value.filter(|_| !is_part);
            }
            step
        });
        step.object.get_or_insert_with(|| object.clone());
        step.add_role(role);
    }

    /// Returns the features that make two violations the same to a reader: evidence, regions, and the source lines of
    /// every event.
    pub(super) fn static_witness(&mut self, found: &finding::Violation) -> Vec<Mark> {
        let mut marks = vec![
            Mark::Region(Some(self.region(found.region).0)),
            Mark::Evidence(found.evidence),
            self.mark(found.begin.location),
        ];
        for tx in &found.witness {
            marks.push(Mark::Region(tx.region.map(|region| self.region(region).0)));
        }
        for point in found.edges.iter().flat_map(|edge| [&edge.source, &edge.sink]) {
            marks.push(Mark::Action(point.action));
            marks.push(self.mark(point.location));
        }
        marks
    }

    fn mark(&mut self, id: LocationId) -> Mark {
        let place = self.place(id);
        match place.location {
            Some(Location { file, line: Some(line), .. }) => Mark::Line(file, line),
            _ if place.frames.is_empty() => Mark::Nowhere(id),
            _ => Mark::Label(place.label),
        }
    }

    pub(super) fn note_thread(&mut self, thread: ThreadId) {
        self.threads.insert(thread);
    }

    pub(super) fn thread_table(&mut self) -> Vec<Thread> {
        let mut ids = std::mem::take(&mut self.threads);
        ids.extend(self.names.threads());
        let named = |id: ThreadId| {
            let thread = self.names.thread(id);
            Thread { id: id.0, name: thread.name, tid: thread.tid }
        };
        ids.into_iter().map(named).collect()
    }

    pub(super) fn region_table(&mut self) -> Vec<Region> {
        for id in self.names.regions() {
            self.region(id);
        }
        let named = |Known { name, place, .. }: &Known| Region {
            name: name.clone(),
            location: place.location.clone(),
        };
        self.regions.values().map(named).collect()
    }
}

impl Place {
    fn is_unknown(&self) -> bool {
        self.frames.iter().all(|frame| frame.function.is_none() && frame.file.is_none())
    }

    fn step(&self, event: u64, thread: ThreadId, region: Option<String>, action: Action) -> Step {
        Step {
            event,
            thread: thread.0,
            region,
            innermost: None,
            action,
            object: None,
            roles: Vec::new(),
            location: self.location.clone(),
            label: self.label.clone(),
            via: self.via.clone(),
            source_text: self.source_text.clone(),
            value: None,
            frames: self.frames.clone(),
        }
    }
}

impl Step {
    fn add_role(&mut self, role: Role) {
        if let Err(at) = self.roles.binary_search(&role) {
            self.roles.insert(at, role);
        }
    }
}

/// Returns whether the name of a function begins with the name of its file, such as `nginx+0x4a3f0+0x1c`.
fn function_of(function: &str, module: &str) -> bool {
    function.strip_prefix(module).is_some_and(|rest| rest.starts_with('+'))
}

/// A place in a few words: `bank.c:45`, `transfer+0x1c (bank)`, or what else is known.
fn label_of(frame: &SourceFrame) -> String {
    let module = frame.module.as_deref().map(explain::file_name);
    match (&frame.file, frame.line, &frame.function, module) {
        (Some(file), Some(line), ..) => format!("{file}:{line}"),
        (Some(file), None, Some(function), _) => format!("{function} ({file})"),
        (Some(file), None, None, _) => file.clone(),
        // A function of a stripped file goes by the file's name already.
        (None, _, Some(function), Some(module)) if function_of(function, module) => {
            function.clone()
        }
        (None, _, Some(function), Some(module)) => format!("{function} ({module})"),
        (None, _, Some(function), None) => function.clone(),
        (None, _, None, Some(module)) => format!("unknown location in {module}"),
        (None, _, None, None) => "unknown location".to_owned(),
    }
}
