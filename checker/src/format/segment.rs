//! Writer of one segment of a recording. A segment is a trace by itself: its ids begin at 0, and each is defined when
//! the first event uses it. The caller decides when a segment ends and where it is stored; `join` puts segments
//! together again.

use super::avt::AvtWriter;
use super::batch::{Gap, ObservedValue};
use super::convert::WriteError;
use super::ids::{translate, translate_location};
use super::names::{
    CodeAddress, Frame, IdSpace, Location, Lost, Module, ModuleId, Object, Process, Property,
    Region, Segment, SourceExcerpt, Space, Thread,
};
use crate::event::{Event, EventNumber, LocationId, LockId, RegionId, SyncId, ThreadId, VarId};
use rustc_hash::FxHashMap;
use std::io::Write;

/// Descriptions of the ids of a whole recording. They refer to ids of the whole recording as well.
pub trait Descriptions {
    /// Describes a thread.
    fn thread(&mut self, id: ThreadId) -> Thread;
    /// Describes a region.
    fn region(&mut self, id: RegionId) -> Region;
    /// Describes a variable, a lock or another synchronisation object.
    fn object(&mut self, space: Space, id: u32) -> Object;
    /// Describes a location.
    fn location(&mut self, id: LocationId) -> Location;
    /// Describes a module that locations are in.
    fn module(&mut self, id: ModuleId) -> Module;
}

/// Ids of a segment for those of the whole recording.
#[derive(Debug, Default)]
struct Ids {
    /// By space: ids of the segment, by those of the recording.
    known: [FxHashMap<u32, u32>; IdSpace::ALL.len()],
    /// By space: ids of the recording, by those of the segment.
    origins: [Vec<u32>; IdSpace::ALL.len()],
    modules: FxHashMap<u32, ModuleId>,
}

/// Writes a segment. Its caller uses the ids and event numbers of the whole recording.
#[derive(Debug)]
pub struct SegmentWriter<W> {
    writer: AvtWriter<W>,
    first: EventNumber,
    ids: Ids,
}

impl<W: Write> SegmentWriter<W> {
    /// Starts a segment. A segment that `begins_within` the run starts with a gap: the locks held and the regions open
    /// there are unknown to a reader of this segment alone.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(out: W, segment: Segment, begins_within: bool) -> Result<Self, WriteError> {
        let mut writer = AvtWriter::new(out)?;
        writer.segment(segment)?;
        if begins_within {
            writer.gap(Gap::default())?;
        }
        Ok(Self { writer, first: segment.first_event, ids: Ids::default() })
    }

    /// Returns the number of events in the segment.
    #[must_use]
    pub fn events_written(&self) -> EventNumber {
        self.writer.events_written()
    }

    /// Returns a bound of the length of the segment in bytes, were it finished now.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.writer.length()
    }

    /// Returns the ids of the whole recording that the segment uses, by the segment's own ids.
    #[must_use]
    pub fn origins(&self, space: IdSpace) -> &[u32] {
        &self.ids.origins[usize::from(space.code())]
    }

    /// Writes the next event.
    ///
    /// # Errors
    /// When writing fails.
    pub fn event(
        &mut self,
        event: &Event,
        descriptions: &mut impl Descriptions,
    ) -> Result<(), WriteError> {
        let event = translate(event, |space, id| self.id(space, id, descriptions))?;
        self.writer.event(&event)
    }

    /// Writes the value that was observed at an event, as [`AvtWriter::value`]. One of an earlier segment is left out.
    ///
    /// # Errors
    /// As [`AvtWriter::value`].
    pub fn value(&mut self, value: ObservedValue) -> Result<(), WriteError> {
        match value.event.checked_sub(self.first) {
            Some(event) => self.writer.value(ObservedValue { event, ..value }),
            None => Ok(()),
        }
    }

    /// Writes that events were lost here.
    ///
    /// # Errors
    /// When writing fails.
    pub fn gap(&mut self, gap: Gap) -> Result<(), WriteError> {
        self.writer.gap(gap)
    }

    /// Describes a thread anew, by its id in the whole recording. A thread that the segment does not use is left out.
    /// The same goes for all ids that are described anew.
    ///
    /// # Errors
    /// When writing fails.
    pub fn thread(&mut self, id: ThreadId, thread: &Thread) -> Result<(), WriteError> {
        let known = self.known(IdSpace::Thread, id.0);
        known.map_or(Ok(()), |id| self.writer.thread(ThreadId(id), thread))
    }

    /// Describes an object anew, by its id in the whole recording.
    ///
    /// # Errors
    /// When writing fails.
    pub fn object(&mut self, space: Space, id: u32, object: &Object) -> Result<(), WriteError> {
        let Some(id) = self.known(space.into(), id) else { return Ok(()) };
        let known = |location: LocationId| {
            translate_location(location, |space, id| self.known(space, id).ok_or(())).ok()
        };
        let object = Object { location: object.location.and_then(known), ..object.clone() };
        define(&mut self.writer, space, id, &object)
    }

    /// Writes the source lines of a location, by its id in the whole recording.
    ///
    /// # Errors
    /// When writing fails.
    pub fn frames(&mut self, id: LocationId, frames: &[Frame<'_>]) -> Result<(), WriteError> {
        let known = self.known(IdSpace::Location, id.0);
        known.map_or(Ok(()), |id| self.writer.frames(LocationId(id), frames))
    }

    /// Describes the recorded process.
    ///
    /// # Errors
    /// When writing fails.
    pub fn process(&mut self, process: &Process) -> Result<(), WriteError> {
        self.writer.process(process)
    }

    /// Writes the total number of lost events of a class.
    ///
    /// # Errors
    /// When writing fails.
    pub fn lost(&mut self, lost: &Lost) -> Result<(), WriteError> {
        self.writer.lost(lost)
    }

    /// Writes a further property. Ids in its value are ids of the segment.
    ///
    /// # Errors
    /// When writing fails.
    pub fn property(&mut self, property: &Property) -> Result<(), WriteError> {
        self.writer.property(property)
    }

    /// Writes lines of a source file.
    ///
    /// # Errors
    /// When writing fails.
    pub fn excerpt(&mut self, excerpt: &SourceExcerpt) -> Result<(), WriteError> {
        self.writer.excerpt(excerpt)
    }

    /// Writes everything so far as whole blocks.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.writer.flush()
    }

    /// Ends the segment.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(self) -> Result<W, WriteError> {
        self.writer.finish()
    }

    fn known(&self, space: IdSpace, id: u32) -> Option<u32> {
        self.ids.known[usize::from(space.code())].get(&id).copied()
    }

    /// Returns the segment's id for one of the recording, which is defined if it is new.
    fn id(
        &mut self,
        space: IdSpace,
        origin: u32,
        descriptions: &mut impl Descriptions,
    ) -> Result<u32, WriteError> {
        if let Some(id) = self.known(space, origin) {
            return Ok(id);
        }
        let of_object = match space {
            IdSpace::Thread => {
                let thread = descriptions.thread(ThreadId(origin));
                let id = self.add(space, origin);
                self.writer.thread(ThreadId(id), &thread)?;
                return self.defined(space, id, origin);
            }
            IdSpace::Region => {
                let mut region = descriptions.region(RegionId(origin));
                region.location = self.place(region.location, descriptions)?;
                let id = self.add(space, origin);
                self.writer.region(RegionId(id), &region)?;
                return self.defined(space, id, origin);
            }
            IdSpace::Location => {
                let mut location = descriptions.location(LocationId(origin));
                for CodeAddress { module, .. } in &mut location.stack {
                    *module = module.map(|id| self.module(id, descriptions)).transpose()?;
                }
                let id = self.add(space, origin);
                self.writer.location(LocationId(id), &location)?;
                return self.defined(space, id, origin);
            }
            IdSpace::Variable => Space::Variable,
            IdSpace::Lock => Space::Lock,
            IdSpace::Sync => Space::Sync,
        };
        let mut object = descriptions.object(of_object, origin);
        object.location = self.place(object.location, descriptions)?;
        let id = self.add(space, origin);
        define(&mut self.writer, of_object, id, &object)?;
        self.defined(space, id, origin)
    }

    /// Gives the next id of the segment to one of the recording.
    fn add(&mut self, space: IdSpace, origin: u32) -> u32 {
        let origins = &mut self.ids.origins[usize::from(space.code())];
        let id = origins.len() as u32;
        origins.push(origin);
        self.ids.known[usize::from(space.code())].insert(origin, id);
        id
    }

    /// Notes where a defined id comes from.
    fn defined(&mut self, space: IdSpace, id: u32, origin: u32) -> Result<u32, WriteError> {
        self.writer.origin(space, id, origin)?;
        Ok(id)
    }

    fn place(
        &mut self,
        location: Option<LocationId>,
        descriptions: &mut impl Descriptions,
    ) -> Result<Option<LocationId>, WriteError> {
        let translated = location.map(|location| {
            translate_location(location, |space, id| self.id(space, id, descriptions))
        });
        translated.transpose()
    }

    fn module(
        &mut self,
        origin: ModuleId,
        descriptions: &mut impl Descriptions,
    ) -> Result<ModuleId, WriteError> {
        if let Some(&id) = self.ids.modules.get(&origin.0) {
            return Ok(id);
        }
        let id = self.writer.module(&descriptions.module(origin))?;
        self.ids.modules.insert(origin.0, id);
        Ok(id)
    }
}

/// Defines an object, or describes it anew.
fn define<W: Write>(
    writer: &mut AvtWriter<W>,
    space: Space,
    id: u32,
    object: &Object,
) -> Result<(), WriteError> {
    match space {
        Space::Variable => writer.variable(VarId(id), object),
        Space::Lock => writer.lock(LockId(id), object),
        Space::Sync => writer.sync(SyncId(id), object),
    }
}
