//! Recording of a run in one file: its events go there as they come, with the known properties of their objects; names
//! and source lines follow when the run has ended.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Instant,
};

use checker::{
    defect::RegionRole,
    event::{LocationId, LockId, RegionId, SyncId, ThreadId, VarId},
    finding,
    format::{self, AvtWriter, Gap, WriteError},
};
use symbolize::{Module, Symbolizer};

use super::{
    End, FLUSH, RecordError, Recording,
    describe::{self, Code, synchronisation},
    sources::{MAX_BYTES, Sources, sources},
};
use crate::{names::live::LiveNames, offline::recording};
use events::{
    location::Locations,
    source::Source,
    stream::{Item, Mark},
};
use linux::output::OutputFile;
use plan::plan::Site;
use report::{self, Names};

/// A recording in one file.
#[derive(Debug)]
pub(super) struct WholeRecorder {
    path: PathBuf,
    writer: AvtWriter<File>,
    defined: Defined,
    gaps: u64,
    flushed: Instant,
    embed_sources: bool,
}

/// Number of defined ids of each kind.
#[derive(Debug, Default)]
struct Defined {
    modules: usize,
    locations: u32,
    threads: u32,
    regions: u32,
    locks: u32,
    variables: u32,
    syncs: u32,
}

impl WholeRecorder {
    /// Creates the file, or replaces an existing one. A name that the user has not given may be that of a link of a
    /// program that runs already.
    pub(super) fn create(
        path: &Path,
        is_given: bool,
        process: &format::Process,
        embed_sources: bool,
    ) -> Result<Self, RecordError> {
        let failed = |error| RecordError { path: path.to_owned(), error };
        let open = if is_given { OutputFile::create } else { OutputFile::create_named };
        let file = open(path).and_then(OutputFile::place);
        let file = file.map_err(|error| failed(error.into()))?;
        let mut writer = AvtWriter::new(file).map_err(failed)?;
        writer.property(&recording::mark()).map_err(failed)?;
        writer.process(process).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            defined: Defined::default(),
            gaps: 0,
            flushed: Instant::now(),
            embed_sources,
        })
    }
}

impl Recording for WholeRecorder {
    fn path(&self) -> &Path {
        &self.path
    }

    fn begin_within(&mut self) -> Result<(), WriteError> {
        self.writer.gap(Gap::default())
    }

    fn counts(&self) -> finding::Counts {
        let mut counts = finding::Counts::default();
        counts.events = self.writer.events_written();
        counts.threads = self.defined.threads.into();
        counts.gaps = self.gaps;
        counts
    }

    fn finish(
        mut self: Box<Self>,
        names: Option<&mut LiveNames<'_>>,
        end: &End<'_>,
    ) -> Result<(), WriteError> {
        if let Some(names) = names {
            self.name(names)?;
        }
        self.writer.process(end.process)?;
        end.lost.iter().try_for_each(|lost| self.writer.lost(lost))?;
        self.writer.property(&end.not_seen)?;
        self.writer.property(&end.run)?;
        self.writer.finish().map(drop)
    }

    fn record(
        &mut self,
        source: &Source,
        sites: &[Site],
        symbolizer: &Symbolizer,
    ) -> Result<(), WriteError> {
        self.define(source, sites, symbolizer)?;
        let first = self.writer.events_written();
        let mut values =
            source.watches().shared_values().skip_while(|value| value.event < first).peekable();
        for item in source.stream().items() {
            let events = match item {
                Item::Events(events) => events,
                Item::Mark(Mark::Gap) => {
                    self.gaps += 1;
                    self.writer.gap(Gap::default())?;
                    continue;
                }
                // Nothing is left out of a recording.
                Item::Mark(Mark::Epoch(_) | Mark::Deferred(_)) => continue,
            };
            for event in events {
                let number = self.writer.events_written();
                while let Some(value) = values.next_if(|value| value.event <= number) {
                    self.writer.value(value)?;
                }
                self.writer.event(event)?;
            }
        }
        if self.flushed.elapsed() >= FLUSH {
            self.writer.flush()?;
            self.flushed = Instant::now();
        }
        Ok(())
    }
}

impl WholeRecorder {
    /// Defines the ids that are new, as far as their meaning is known while the program runs.
    fn define(
        &mut self,
        source: &Source,
        sites: &[Site],
        symbolizer: &Symbolizer,
    ) -> Result<(), WriteError> {
        self.define_locations(source.locations(), sites, symbolizer)?;
        let Self { writer, defined, .. } = self;
        for thread in source.threads().seen().iter().skip(defined.threads as usize) {
            let thread = describe::thread(thread);
            writer.thread(ThreadId(defined.threads), &thread)?;
            defined.threads += 1;
        }
        while let Some(known) = source.regions().get(RegionId(defined.regions)) {
            writer.region(RegionId(defined.regions), &describe::region(known))?;
            defined.regions += 1;
        }
        while let Some(known) = source.lock(LockId(defined.locks)) {
            writer.lock(LockId(defined.locks), &synchronisation(known, None))?;
            defined.locks += 1;
        }
        while let Some(known) = source.sync(SyncId(defined.syncs)) {
            writer.sync(SyncId(defined.syncs), &synchronisation(known, None))?;
            defined.syncs += 1;
        }
        while let Some(variable) = describe::variable(source, VarId(defined.variables)) {
            writer.variable(VarId(defined.variables), &variable)?;
            defined.variables += 1;
        }
        Ok(())
    }

    fn define_locations(
        &mut self,
        locations: &Locations,
        sites: &[Site],
        symbolizer: &Symbolizer,
    ) -> Result<(), WriteError> {
        let Self { writer, defined, .. } = self;
        if locations.get(LocationId(defined.locations)).is_none() {
            return Ok(());
        }
        let modules: Vec<&Module> = symbolizer.modules().collect();
        for module in &modules[defined.modules.min(modules.len())..] {
            writer.module(&describe::module(module))?;
            defined.modules += 1;
        }
        let code = Code { locations, sites, modules: &modules };
        while let Some(location) = code.location(LocationId(defined.locations)) {
            writer.location(LocationId(defined.locations), &location)?;
            defined.locations += 1;
        }
        Ok(())
    }

    /// Names what was recorded, as a report would.
    fn name(&mut self, names: &mut LiveNames<'_>) -> Result<(), WriteError> {
        self.define(names.source(), names.sites(), names.symbolizer())?;
        let Self { writer, defined, .. } = self;
        for id in (0..defined.locations).map(LocationId) {
            let frames = names.frames(id);
            let frames = describe::frames(&frames, names.origin(id));
            if !frames.is_empty() {
                writer.frames(id, &frames)?;
            }
        }
        if self.embed_sources {
            let all = (0..defined.locations).map(LocationId);
            let Sources { excerpts, left_out } = sources(names, all, MAX_BYTES);
            excerpts.iter().try_for_each(|excerpt| writer.excerpt(excerpt))?;
            writer.property(&recording::sources(left_out))?;
        }
        for id in (0..defined.threads).map(ThreadId) {
            let report::ThreadName { name, tid } = names.thread(id);
            writer.thread(id, &format::Thread { name, tid })?;
        }
        for id in (0..defined.locks).map(LockId) {
            let name = names.object(finding::Object::Lock(id)).name;
            if let Some(known) = names.source().lock(id) {
                writer.lock(id, &synchronisation(known, name))?;
            }
        }
        for id in (0..defined.syncs).map(SyncId) {
            let name = names.object(finding::Object::Sync(id)).name;
            if let Some(known) = names.source().sync(id) {
                writer.sync(id, &synchronisation(known, name))?;
            }
        }
        for id in (0..defined.variables).map(VarId) {
            writer.variable(id, &describe::named_variable(names, id))?;
        }
        let Defined { locations, variables, locks, syncs, .. } = *defined;
        let all = [locations, variables, locks, syncs].map(|count| (0..count).collect::<Vec<_>>());
        let classes = names.recorded_classes(all.each_ref().map(Vec::as_slice));
        let property =
            recording::classes(&classes).map_err(|error| WriteError::Io(error.into()))?;
        property.map_or(Ok(()), |property| writer.property(&property))?;
        let dependences = recording::dependences(&names.dependences());
        let dependences = dependences.map_err(|error| WriteError::Io(error.into()))?;
        dependences.map_or(Ok(()), |property| writer.property(&property))?;
        let regions = names.source().regions();
        let roles: Vec<RegionRole> = (0..defined.regions)
            .filter_map(|id| regions.get(RegionId(id)))
            .map(|known| known.role)
            .collect();
        let roles = recording::roles(&roles).map_err(|error| WriteError::Io(error.into()))?;
        writer.property(&roles)?;
        writer.property(&recording::sees_data(report::Names::sees_data(names)))?;
        Ok(())
    }
}
