//! Joins segments of a recording to one trace. Ids of the whole recording are numbered anew, as far as they are still
//! used. The caller reads the segments.

use super::batch::{Batch, Gap, ObservedValue};
use super::error::Reason;
use super::ids::{translate, translate_location};
use super::names::{
    CodeAddress, Defined, IdSpace, LocationKind, Lost, ModuleId, NO_STRING, Names, ObjectExtra,
    Property, Segment, SourceExcerpt, Space, StoredFrame,
};
use crate::event::{Event, EventNumber, LocationId, RegionId, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Limit of the memory for names, in bytes.
const MEMORY_LIMIT: u64 = 4 << 30;

/// Reasons for which segments cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// A trace is no segment.
    #[error("it is no segment of a recording: check it by itself")]
    NoSegment,
    /// A segment belongs to another recording than the earlier segments.
    #[error("it is of another recording than the segments before it: check them apart")]
    OtherRecording,
    /// A segment has an id without a number in the whole recording.
    #[error("it lacks numbers of the whole recording: check it by itself")]
    NoOrigin,
    /// The names take too much memory.
    #[error("the names of all segments take more than {} GiB: check fewer of them", MEMORY_LIMIT >> 30)]
    TooManyNames,
}

/// Puts segments together. They are to be passed in the order of their numbers; some may be missing.
///
/// Between a whole segment and the next one no events were lost, so that the trace just goes on there. Everywhere else
/// there is a gap.
#[derive(Debug, Default)]
pub struct Joiner {
    names: Names,
    /// By space: joined ids, by those of the recording.
    known: [FxHashMap<u32, u32>; IdSpace::ALL.len()],
    strings: FxHashMap<Box<str>, u32>,
    /// Lines of source files, of which segments repeat many.
    excerpts: FxHashSet<SourceExcerpt>,
    /// Losses of the whole recording, which its last segment has. They are no names of joined events before the end.
    lost: Vec<Lost>,
    /// Number of events of the segments before.
    before: EventNumber,
    /// Number of events so far.
    events: EventNumber,
    /// Expected place of the next segment, if the last one is whole.
    next: Option<Segment>,
    recording: Option<u64>,
    current: Current,
    batch: (EventNumber, Vec<Event>, Vec<ObservedValue>),
}

/// State of the current segment.
#[derive(Debug, Default)]
struct Current {
    /// Its place, once it has been read.
    segment: Option<Segment>,
    /// Set if it begins where the segment before ended, and no event of it has been passed on.
    skips_gap: bool,
    /// Set if a gap is to come before its first event.
    owes_gap: bool,
    /// By space: joined ids, by those of the segment.
    ids: [Vec<u32>; IdSpace::ALL.len()],
    modules: Vec<ModuleId>,
    revisions: usize,
}

impl Joiner {
    /// Returns the names of the joined ids.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the names of the joined ids, and the losses of the whole recording.
    #[must_use]
    pub fn into_names(self) -> Names {
        let Self { mut names, lost, .. } = self;
        lost.into_iter().for_each(|lost| names.define_lost(lost));
        names
    }

    /// Adds a property of the joined trace; the caller interprets the properties of segments.
    pub fn property(&mut self, property: Property) {
        self.names.define_property(property);
    }

    /// Returns the joined ids of the current segment's, by those.
    #[must_use]
    pub fn ids(&self, space: IdSpace) -> &[u32] {
        &self.current.ids[usize::from(space.code())]
    }

    /// Takes the next events of the current segment, which [`batch`](Self::batch) returns then. Returns true if a gap
    /// is before them.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn events(&mut self, batch: &Batch<'_>) -> Result<bool, JoinError> {
        self.start(batch.names)?;
        self.take_names(batch.names)?;
        let Self { current, batch: (first, events, values), .. } = self;
        events.clear();
        values.clear();
        for event in batch.events {
            events.push(translate(event, |space, id| current.joined(space, id))?);
        }
        *first = self.before + batch.first;
        let renumber =
            |value: &ObservedValue| ObservedValue { event: self.before + value.event, ..*value };
        values.extend(batch.values.iter().map(renumber));
        self.events = *first + events.len() as EventNumber;
        current.skips_gap = false;
        Ok(std::mem::take(&mut current.owes_gap))
    }

    /// Returns the events that were taken last.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        let (first, events, values) = &self.batch;
        Batch { first: *first, events, values, names: &self.names }
    }

    /// Takes a gap of the current segment, with the names so far. Returns the gap to be passed on, or `None` if the
    /// segment before goes on here.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn gap(&mut self, gap: Gap, names: &Names) -> Result<Option<Gap>, JoinError> {
        self.start(names)?;
        self.current.owes_gap = false;
        let is_skipped = std::mem::take(&mut self.current.skips_gap);
        Ok((!is_skipped).then_some(gap))
    }

    /// Takes the names that came after the last events of the current segment. `is_whole` if it was read to its
    /// footer.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn end(&mut self, names: &Names, is_whole: bool) -> Result<(), JoinError> {
        self.start(names)?;
        self.take_names(names)?;
        if let Some(process) = names.process() {
            self.names.define_process(process.clone());
        }
        if !names.lost().is_empty() {
            self.lost = names.lost().to_vec();
        }
        for excerpt in names.excerpts() {
            if self.excerpts.insert(excerpt.clone()) {
                self.names.define_excerpt(excerpt.clone());
            }
        }
        let events = self.events - self.before;
        self.next = self.current.segment.filter(|_| is_whole).map(|segment| Segment {
            number: segment.number.wrapping_add(1),
            first_event: segment.first_event.saturating_add(events),
            ..segment
        });
        Ok(())
    }

    /// Lets the next segment begin. Whatever was passed of the current one stays.
    pub fn begin(&mut self) {
        if self.current.segment.take().is_some() {
            self.before = self.events;
        }
        self.current = Current::default();
    }

    /// Looks at the place of the current segment, when its first names are known.
    fn start(&mut self, names: &Names) -> Result<(), JoinError> {
        if self.current.segment.is_some() {
            return Ok(());
        }
        let segment = names.segment().ok_or(JoinError::NoSegment)?;
        let is_first = self.recording.is_none();
        if *self.recording.get_or_insert(segment.recording) != segment.recording {
            return Err(JoinError::OtherRecording);
        }
        let continues = self.next.take() == Some(segment);
        self.current.segment = Some(segment);
        self.current.skips_gap = continues;
        self.current.owes_gap = !is_first && !continues;
        Ok(())
    }

    /// Takes the names that are new in the current segment, or have changed.
    fn take_names(&mut self, names: &Names) -> Result<(), JoinError> {
        for module in &names.modules()[self.current.modules.len()..] {
            let known = self.names.modules().iter().position(|known| known == module);
            let id = known.unwrap_or_else(|| {
                self.names.define_module(module.clone());
                self.names.modules().len() - 1
            });
            self.current.modules.push(ModuleId(id as u32));
        }
        // Others refer to locations.
        for space in [IdSpace::Location].into_iter().chain(IdSpace::ALL) {
            for id in self.ids(space).len()..names.count(space) {
                let id = id as u32;
                let origin = names.origin(space, id).ok_or(JoinError::NoOrigin)?;
                let known = &mut self.known[usize::from(space.code())];
                let next = known.len() as u32;
                let joined = *known.entry(origin).or_insert(next);
                self.current.ids[usize::from(space.code())].push(joined);
                // An earlier segment may have described it better than this one has until its end.
                if joined == next {
                    self.describe(names, space, id, joined)?;
                }
            }
        }
        for &defined in names.revisions().iter().skip(self.current.revisions) {
            let (space, id) = match defined {
                Defined::Thread(id) => (IdSpace::Thread, id),
                Defined::Region(id) => (IdSpace::Region, id),
                Defined::Object(space, id) => (space.into(), id),
                Defined::Location(id) => (IdSpace::Location, id),
            };
            let joined = self.current.joined(space, id)?;
            self.describe(names, space, id, joined)?;
        }
        self.current.revisions = names.revisions().len();
        self.names.check(MEMORY_LIMIT).map_err(|_: Reason| JoinError::TooManyNames)
    }

    /// Copies the description of an id.
    fn describe(
        &mut self,
        names: &Names,
        space: IdSpace,
        id: u32,
        joined: u32,
    ) -> Result<(), JoinError> {
        let is_defined = match space {
            IdSpace::Thread => {
                let thread = names.thread(ThreadId(id)).unwrap_or_default();
                self.names.define_thread(joined, &thread.name.unwrap_or_default(), thread.tid)
            }
            IdSpace::Region => {
                let region = names.region(RegionId(id)).unwrap_or_default();
                let location = self.place(region.location)?;
                self.names.define_region(joined, &region.name, location)
            }
            IdSpace::Location => {
                self.describe_location(names, LocationId(id), joined);
                true
            }
            IdSpace::Variable => self.describe_object(names, Space::Variable, id, joined)?,
            IdSpace::Lock => self.describe_object(names, Space::Lock, id, joined)?,
            IdSpace::Sync => self.describe_object(names, Space::Sync, id, joined)?,
        };
        if is_defined { Ok(()) } else { Err(JoinError::TooManyNames) }
    }

    fn describe_object(
        &mut self,
        names: &Names,
        space: Space,
        id: u32,
        joined: u32,
    ) -> Result<bool, JoinError> {
        let Some(mut object) = names.object(space, id) else { return Ok(true) };
        object.location = self.place(object.location)?;
        let name = object.name.as_deref().unwrap_or_default();
        let extra = ObjectExtra::from_object(&object, space);
        Ok(self.names.define_object(space, joined, name, extra))
    }

    fn describe_location(&mut self, names: &Names, id: LocationId, joined: u32) {
        let label = names.label(id).unwrap_or_default();
        let (kind, mut stack) = (names.location(id))
            .map_or((LocationKind::Other, Vec::new()), |location| (location.kind, location.stack));
        for CodeAddress { module, .. } in &mut stack {
            *module = module.and_then(|id| self.current.modules.get(id.0 as usize).copied());
        }
        self.names.define_location(joined, &label, kind, stack);
        let mut frames = Vec::new();
        for frame in names.frames(id) {
            frames.push(StoredFrame {
                function: self.string(frame.function),
                file: self.string(frame.file),
                module: self.string(frame.module),
                line: frame.line.unwrap_or(0),
                column: frame.column.unwrap_or(0),
                is_inlined: frame.is_inlined,
                is_wrapper: frame.is_wrapper,
                is_library: frame.is_library,
                declared: frame.declared.unwrap_or(0),
            });
        }
        if !frames.is_empty() {
            self.names.define_frames(joined, frames);
        }
    }

    fn place(&self, location: Option<LocationId>) -> Result<Option<LocationId>, JoinError> {
        let joined =
            |location| translate_location(location, |space, id| self.current.joined(space, id));
        location.map(joined).transpose()
    }

    fn string(&mut self, text: Option<&str>) -> u32 {
        let Some(text) = text else { return NO_STRING };
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = self.names.string_count() as u32;
        if !self.names.define_string(text) {
            return NO_STRING;
        }
        self.strings.insert(text.into(), id);
        id
    }
}

impl Current {
    /// Returns the joined id of one of the segment.
    fn joined(&self, space: IdSpace, id: u32) -> Result<u32, JoinError> {
        let ids = &self.ids[usize::from(space.code())];
        ids.get(id as usize).copied().ok_or(JoinError::NoOrigin)
    }
}
