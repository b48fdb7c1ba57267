//! Names of the ids of a trace: names, addresses, code locations, and the description of the run. Events
//! are elsewhere, and so is the lookup from names to ids.

mod definitions;
mod table;

pub use definitions::{
    CodeAddress, Frame, IdSpace, Location, LocationKind, Lost, Module, ModuleId, Object,
    ObjectKind, Process, Property, Region, Segment, SourceExcerpt, Space, Thread,
};
pub(super) use definitions::{NO_STRING, ObjectExtra, StoredFrame};
pub(super) use table::Table;

use super::error::Reason;
use super::intern::Strings;
use crate::event::{LocationId, LockId, RegionId, SyncId, ThreadId, VarId};
use definitions::StoredLocation;
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// First location id that is a number and not an entry of a table (except for the last one, which is
/// "none").
const NUMBERED: u32 = 1 << 31;

/// Returns the location with this number, as text traces have them: it needs no entry in a table. `None` if
/// the number is too large: 2³¹ − 1 or more.
///
/// ```
/// use checker::format::{location_number, numbered_location};
/// let location = numbered_location(345).unwrap();
/// assert_eq!(location_number(location), Some(345));
/// assert_eq!(numbered_location(u32::MAX), None);
/// ```
#[must_use]
pub const fn numbered_location(number: u32) -> Option<LocationId> {
    if number < NUMBERED - 1 { Some(LocationId(NUMBERED + number)) } else { None }
}

/// Returns the number of a location that [`numbered_location`] made.
#[must_use]
pub const fn location_number(location: LocationId) -> Option<u32> {
    if location.0 == NO_LOCATION.0 { None } else { location.0.checked_sub(NUMBERED) }
}

/// Value for an id without a number in the whole recording.
const NO_ORIGIN: u32 = u32::MAX;

/// Value for an unknown location.
pub const NO_LOCATION: LocationId = LocationId(u32::MAX);

/// Returns the number that a label is, if it is one in the form in which it would be printed.
pub(super) fn label_number(label: &[u8]) -> Option<u32> {
    let digits = !label.is_empty() && label.len() <= 10 && label.iter().all(u8::is_ascii_digit);
    if !digits || (label[0] == b'0' && label.len() > 1) {
        return None;
    }
    let number = label.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    u32::try_from(number).ok().filter(|&number| numbered_location(number).is_some())
}

/// Target of a definition that replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Defined {
    Thread(u32),
    Region(u32),
    Object(Space, u32),
    Location(u32),
}

/// Names of a trace, by ids. It grows while the trace is read; unknown fields are `None` or empty.
#[derive(Debug, Default)]
pub struct Names {
    pub(super) threads: Table<Option<u32>>,
    pub(super) regions: Table<Option<LocationId>>,
    pub(super) variables: Table<ObjectExtra>,
    pub(super) locks: Table<ObjectExtra>,
    pub(super) syncs: Table<ObjectExtra>,
    pub(super) locations: Table<()>,
    places: FxHashMap<u32, StoredLocation>,
    modules: Vec<Module>,
    strings: Strings,
    process: Option<Process>,
    lost: Vec<Lost>,
    properties: Vec<Property>,
    excerpts: Vec<SourceExcerpt>,
    segment: Option<Segment>,
    /// By space; `NO_ORIGIN` where there is none.
    origins: [Vec<u32>; IdSpace::ALL.len()],
    /// Memory of everything except the tables' names.
    spent: u64,
    revisions: Vec<Defined>,
}

impl Names {
    /// Returns the number of threads.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Returns the number of regions.
    #[must_use]
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// Returns the number of variables.
    #[must_use]
    pub fn variable_count(&self) -> usize {
        self.variables.len()
    }

    /// Returns the number of locks.
    #[must_use]
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// Returns the number of other synchronisation objects.
    #[must_use]
    pub fn sync_count(&self) -> usize {
        self.syncs.len()
    }

    /// Returns the number of locations that are in the table, and not numbers.
    #[must_use]
    pub fn location_count(&self) -> usize {
        self.locations.len()
    }

    pub(super) fn string_count(&self) -> usize {
        self.strings.len()
    }

    /// Returns a thread.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> Option<Thread> {
        let name = self.threads.name(id.0)?;
        Some(Thread { name: non_empty(name), tid: self.threads.extra(id.0) })
    }

    /// Returns a region.
    #[must_use]
    pub fn region(&self, id: RegionId) -> Option<Region> {
        let name = self.regions.name(id.0)?.to_owned();
        Some(Region { name, location: self.regions.extra(id.0) })
    }

    /// Returns a variable.
    #[must_use]
    pub fn variable(&self, id: VarId) -> Option<Object> {
        self.object(Space::Variable, id.0)
    }

    /// Returns a lock.
    #[must_use]
    pub fn lock(&self, id: LockId) -> Option<Object> {
        self.object(Space::Lock, id.0)
    }

    /// Returns a synchronisation object that is not a lock.
    #[must_use]
    pub fn sync(&self, id: SyncId) -> Option<Object> {
        self.object(Space::Sync, id.0)
    }

    pub(super) fn object(&self, space: Space, id: u32) -> Option<Object> {
        let table = self.objects(space);
        Some(table.extra(id).object(space, non_empty(table.name(id)?)))
    }

    pub(super) fn objects(&self, space: Space) -> &Table<ObjectExtra> {
        match space {
            Space::Variable => &self.variables,
            Space::Lock => &self.locks,
            Space::Sync => &self.syncs,
        }
    }

    fn objects_mut(&mut self, space: Space) -> &mut Table<ObjectExtra> {
        match space {
            Space::Variable => &mut self.variables,
            Space::Lock => &mut self.locks,
            Space::Sync => &mut self.syncs,
        }
    }

    /// Returns the label of a location, if it has one: free text of a text trace, or a number.
    #[must_use]
    pub fn label(&self, id: LocationId) -> Option<Cow<'_, str>> {
        match location_number(id) {
            Some(number) => Some(number.to_string().into()),
            None => self.locations.name(id.0).filter(|name| !name.is_empty()).map(Cow::Borrowed),
        }
    }

    /// Returns the recorded location, without its frames. `None` for locations of text traces.
    #[must_use]
    pub fn location(&self, id: LocationId) -> Option<Location> {
        let place = self.places.get(&id.0)?;
        let label = non_empty(self.locations.name(id.0)?);
        Some(Location { label, kind: place.kind, stack: place.stack.clone() })
    }

    /// Returns the resolved frames of a location, innermost inlined call first; empty if none were
    /// recorded.
    pub fn frames(&self, id: LocationId) -> impl Iterator<Item = Frame<'_>> {
        let frames = self.places.get(&id.0).map_or(&[][..], |place| &place.frames);
        frames.iter().map(|frame| frame.resolve(&self.strings))
    }

    /// Returns a file that code was loaded from.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(id.0 as usize)
    }

    /// Returns the files that code was loaded from, by their ids.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the process that was recorded.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns the events lost in recording, by class.
    #[must_use]
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// Returns the other properties of the recording, in the order of their recording.
    #[must_use]
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Returns the lines of source files that the recording holds, in the order of their recording.
    #[must_use]
    pub fn excerpts(&self) -> &[SourceExcerpt] {
        &self.excerpts
    }

    /// Returns the place of the trace in a recording that was written as several traces; `None` for all others.
    #[must_use]
    pub fn segment(&self) -> Option<Segment> {
        self.segment
    }

    /// Returns the number of an id in the whole recording that the trace is a segment of.
    #[must_use]
    pub fn origin(&self, space: IdSpace, id: u32) -> Option<u32> {
        let origins = &self.origins[usize::from(space.code())];
        origins.get(id as usize).copied().filter(|&origin| origin != NO_ORIGIN)
    }

    /// Returns the number of ids of a space, without locations that are numbers.
    #[must_use]
    pub fn count(&self, space: IdSpace) -> usize {
        match space {
            IdSpace::Thread => self.thread_count(),
            IdSpace::Region => self.region_count(),
            IdSpace::Variable => self.variable_count(),
            IdSpace::Lock => self.lock_count(),
            IdSpace::Sync => self.sync_count(),
            IdSpace::Location => self.location_count(),
        }
    }

    /// Returns a label for a thread: its name, or `T` and its id.
    #[must_use]
    pub fn thread_label(&self, id: ThreadId) -> Cow<'_, str> {
        label(self.threads.name(id.0), "T", id.0)
    }

    /// Returns a label for a region: its name, or `region` and its id.
    #[must_use]
    pub fn region_label(&self, id: RegionId) -> Cow<'_, str> {
        label(self.regions.name(id.0), "region", id.0)
    }

    /// Returns a label for a variable: its name, or `v` and its id.
    #[must_use]
    pub fn variable_label(&self, id: VarId) -> Cow<'_, str> {
        label(self.variables.name(id.0), "v", id.0)
    }

    /// Returns a label for a lock: its name, or `lock` and its id.
    #[must_use]
    pub fn lock_label(&self, id: LockId) -> Cow<'_, str> {
        label(self.locks.name(id.0), "lock", id.0)
    }

    /// Returns a label for another synchronisation object: its name, or `sync` and its id.
    #[must_use]
    pub fn sync_label(&self, id: SyncId) -> Cow<'_, str> {
        label(self.syncs.name(id.0), "sync", id.0)
    }

    /// Returns the memory in use, in bytes, roughly.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let objects = self.variables.bytes() + self.locks.bytes() + self.syncs.bytes();
        let code = self.threads.bytes() + self.regions.bytes() + self.locations.bytes();
        objects + code + self.strings.bytes() + self.spent
    }

    /// Returns the targets of repeated definitions, in their order.
    pub(super) fn revisions(&self) -> &[Defined] {
        &self.revisions
    }

    // Definitions, in the order of a binary trace. Each returns whether it is valid: the id is the next
    // one, or a defined one.

    pub(super) fn define_thread(&mut self, id: u32, name: &str, tid: Option<u32>) -> bool {
        let new = self.threads.len();
        self.threads.define(id, name, tid) && self.note(Defined::Thread(id), new, id)
    }

    pub(super) fn define_region(
        &mut self,
        id: u32,
        name: &str,
        location: Option<LocationId>,
    ) -> bool {
        let new = self.regions.len();
        self.regions.define(id, name, location) && self.note(Defined::Region(id), new, id)
    }

    pub(super) fn define_object(
        &mut self,
        space: Space,
        id: u32,
        name: &str,
        extra: ObjectExtra,
    ) -> bool {
        let new = self.objects(space).len();
        self.objects_mut(space).define(id, name, extra)
            && self.note(Defined::Object(space, id), new, id)
    }

    pub(super) fn define_location(
        &mut self,
        id: u32,
        label: &str,
        kind: LocationKind,
        stack: Vec<CodeAddress>,
    ) -> bool {
        let known = |at: &CodeAddress| {
            at.module.is_none_or(|module| (module.0 as usize) < self.modules.len())
        };
        if !stack.iter().all(known) {
            return false;
        }
        let new = self.locations.len();
        if !self.locations.define(id, label, ()) {
            return false;
        }
        if kind != LocationKind::Other || !stack.is_empty() || self.places.contains_key(&id) {
            self.spent += 64 + (stack.len() * size_of::<CodeAddress>()) as u64;
            let place = self.places.entry(id).or_default();
            (place.kind, place.stack) = (kind, stack);
        }
        self.note(Defined::Location(id), new, id)
    }

    pub(super) fn define_frames(&mut self, id: u32, frames: Vec<StoredFrame>) -> bool {
        let known = frames.iter().all(|frame| frame.is_known(&self.strings));
        if !known || id as usize >= self.locations.len() {
            return false;
        }
        self.spent += 64 + (frames.len() * size_of::<StoredFrame>()) as u64;
        self.places.entry(id).or_default().frames = frames;
        self.revise(Defined::Location(id));
        true
    }

    pub(super) fn define_string(&mut self, text: &str) -> bool {
        self.strings.push(text).is_some()
    }

    pub(super) fn define_module(&mut self, module: Module) {
        self.spent += 64 + (module.path.len() + module.build_id.len()) as u64;
        self.modules.push(module);
    }

    pub(super) fn define_process(&mut self, process: Process) {
        let arguments: usize = process.argv.iter().map(|argument| 24 + argument.len()).sum();
        self.spent += arguments as u64;
        self.process = Some(process);
    }

    pub(super) fn define_lost(&mut self, lost: Lost) {
        self.spent += 32 + lost.class.len() as u64;
        self.lost.push(lost);
    }

    pub(super) fn define_property(&mut self, property: Property) {
        self.spent += 48 + (property.key.len() + property.value.len()) as u64;
        self.properties.push(property);
    }

    pub(super) fn define_excerpt(&mut self, excerpt: SourceExcerpt) {
        let lines: usize = excerpt.lines.iter().map(|line| 24 + line.len()).sum();
        self.spent += 64 + (excerpt.file.len() + lines) as u64;
        self.excerpts.push(excerpt);
    }

    pub(super) fn define_segment(&mut self, segment: Segment) {
        self.segment = Some(segment);
    }

    pub(super) fn define_origin(&mut self, space: IdSpace, id: u32, origin: u32) -> bool {
        let index = id as usize;
        if index >= self.count(space) {
            return false;
        }
        let origins = &mut self.origins[usize::from(space.code())];
        if index >= origins.len() {
            self.spent += (size_of::<u32>() * (index + 1 - origins.len())) as u64;
            origins.resize(index + 1, NO_ORIGIN);
        }
        origins[index] = origin;
        true
    }

    fn note(&mut self, defined: Defined, new: usize, id: u32) -> bool {
        if (id as usize) < new {
            self.revise(defined);
        }
        true
    }

    fn revise(&mut self, defined: Defined) {
        self.spent += size_of::<Defined>() as u64;
        self.revisions.push(defined);
    }

    /// Fails when the names have grown beyond a limit, in bytes.
    pub(super) fn check(&self, limit: u64) -> Result<(), Reason> {
        if self.bytes() > limit { Err(Reason::TooManyNames { limit }) } else { Ok(()) }
    }
}

fn non_empty(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

fn label<'a>(name: Option<&'a str>, kind: &str, id: u32) -> Cow<'a, str> {
    match name {
        Some(name) if !name.is_empty() => name.into(),
        _ => format!("{kind}{id}").into(),
    }
}
