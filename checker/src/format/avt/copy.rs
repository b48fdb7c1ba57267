//! Copying of names from a trace that was read: tracks which ones have been written.

use super::write::AvtWriter;
use crate::event::{LocationId, RegionId, ThreadId};
use crate::format::batch::{Batch, Gap};
use crate::format::convert::{TraceWriter, WriteError};
use crate::format::names::{Defined, Frame, IdSpace, Location, Names, Object, ObjectKind, Space};
use std::io::Write;

impl<W: Write> AvtWriter<W> {
    /// Writes the names that were added or changed since the last call.
    fn copy_names(&mut self, names: &Names) -> Result<(), WriteError> {
        // New ones are written in their current state.
        let ids = self.counts.ids;
        for module in names.modules().iter().skip(ids.modules as usize) {
            self.module(module)?;
        }
        let news = |from: u32, to: usize| from..to as u32;
        for id in news(ids.locations, names.location_count()) {
            self.copy_location(names, id)?;
        }
        for id in news(ids.threads, names.thread_count()) {
            self.copy(names, Defined::Thread(id))?;
        }
        for id in news(ids.regions, names.region_count()) {
            self.copy(names, Defined::Region(id))?;
        }
        for (space, from) in
            [(Space::Variable, ids.variables), (Space::Lock, ids.locks), (Space::Sync, ids.syncs)]
        {
            for id in news(from, names.objects(space).len()) {
                self.copy(names, Defined::Object(space, id))?;
            }
        }
        for &defined in names.revisions().iter().skip(self.copied.revisions) {
            let is_old = match defined {
                Defined::Thread(id) => id < ids.threads,
                Defined::Region(id) => id < ids.regions,
                Defined::Object(Space::Variable, id) => id < ids.variables,
                Defined::Object(Space::Lock, id) => id < ids.locks,
                Defined::Object(Space::Sync, id) => id < ids.syncs,
                Defined::Location(id) => id < ids.locations,
            };
            if is_old {
                self.copy(names, defined)?;
            }
        }
        self.copied.revisions = names.revisions().len();
        for lost in names.lost().iter().skip(self.copied.lost) {
            self.lost(lost)?;
        }
        self.copied.lost = names.lost().len();
        for property in names.properties().iter().skip(self.copied.properties) {
            self.property(property)?;
        }
        self.copied.properties = names.properties().len();
        for excerpt in names.excerpts().iter().skip(self.copied.excerpts) {
            self.excerpt(excerpt)?;
        }
        self.copied.excerpts = names.excerpts().len();
        if let Some(segment) = names.segment().filter(|_| !self.copied.has_segment) {
            self.segment(segment)?;
            self.copied.has_segment = true;
        }
        for space in IdSpace::ALL {
            let from = &mut self.copied.origins[usize::from(space.code())];
            let ids = std::mem::replace(from, names.count(space) as u32)..names.count(space) as u32;
            for (id, origin) in ids.filter_map(|id| Some((id, names.origin(space, id)?))) {
                self.origin(space, id, origin)?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, names: &Names, defined: Defined) -> Result<(), WriteError> {
        match defined {
            Defined::Thread(id) => {
                let thread = names.thread(ThreadId(id)).unwrap_or_default();
                self.thread(ThreadId(id), &thread)
            }
            Defined::Region(id) => {
                let region = names.region(RegionId(id)).unwrap_or_default();
                self.region(RegionId(id), &region)
            }
            Defined::Object(space, id) => {
                let unknown = || Object::new(ObjectKind::unknown(space));
                self.object(space, id, &names.object(space, id).unwrap_or_else(unknown))
            }
            Defined::Location(id) => self.copy_location(names, id),
        }
    }

    fn copy_location(&mut self, names: &Names, id: u32) -> Result<(), WriteError> {
        let id = LocationId(id);
        let label = || names.label(id).map(String::from);
        let location = names.location(id);
        let location =
            location.unwrap_or_else(|| Location { label: label(), ..Location::default() });
        self.location(id, &location)?;
        let frames: Vec<Frame<'_>> = names.frames(id).collect();
        if frames.is_empty() { Ok(()) } else { self.frames(id, &frames) }
    }
}

impl<W: Write> TraceWriter for AvtWriter<W> {
    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), WriteError> {
        self.copy_names(batch.names)?;
        for value in batch.values {
            self.value(*value)?;
        }
        batch.events.iter().try_for_each(|event| self.event(event))
    }

    fn gap(&mut self, gap: Gap) -> Result<(), WriteError> {
        AvtWriter::gap(self, gap)
    }

    fn end(&mut self, names: &Names) -> Result<(), WriteError> {
        self.copy_names(names)?;
        if let Some(process) = names.process() {
            self.process(process)?;
        }
        self.write_end()
    }
}
