//! Recording of a run: its events go to a file as they come, with the known properties of their objects; names and
//! source lines follow when the run has ended. `checker` defines the format.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use checker::{
    defect::{Origin, RegionRole},
    event::{EventNumber, LocationId, LockId, RegionId, SyncId, ThreadId, VarId},
    finding,
    format::{self, AvtWriter, CodeAddress, Frame, Gap, LocationKind, ModuleId, WriteError},
};
use symbolize::{Module, ProcessAddr, Symbolizer};

use crate::{
    live::{
        location::{Location, Locations},
        source::Source,
        stream::{Item, Mark},
        sync::Known,
    },
    names::live::{LiveNames, size_of_kind, watched_as},
    offline::recording,
    probes::plan::Site,
    report::{self, Names, NotSeen, SourceFrame},
};

/// Interval at which recorded events are written, as long as events come.
const FLUSH: Duration = Duration::from_millis(500);

/// Reason for which a recording failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace to `{path}`: {error}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// Cause.
    pub error: WriteError,
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    writer: AvtWriter<File>,
    /// First error; nothing is written after it.
    failed: Option<WriteError>,
    defined: Defined,
    gaps: u64,
    flushed: Instant,
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

impl Recorder {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let failed = |error| RecordError { path: path.to_owned(), error };
        let file = File::create(path).map_err(|error| failed(error.into()))?;
        let mut writer = AvtWriter::new(file).map_err(failed)?;
        writer.property(&recording::mark()).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            failed: None,
            defined: Defined::default(),
            gaps: 0,
            flushed: Instant::now(),
        })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says which process this is, as far as that is known.
    pub fn process(&mut self, process: &format::Process) {
        self.attempt(|recorder| recorder.writer.process(process));
    }

    /// Notes that events came before the first one, as of a process that runs already. Locks may be held then.
    pub fn begin_within(&mut self) {
        self.attempt(|recorder| recorder.writer.gap(Gap::default()));
    }

    /// Returns the recorded events, as the counts of a run in which nothing was checked.
    #[must_use]
    pub fn counts(&self) -> finding::Counts {
        let mut counts = finding::Counts::default();
        counts.events = self.writer.events_written();
        counts.threads = self.defined.threads.into();
        counts.gaps = self.gaps;
        counts
    }

    /// Records what came out of the source just now.
    pub fn record(&mut self, source: &Source, sites: &[Site], symbolizer: &Symbolizer) {
        self.attempt(|recorder| recorder.try_record(source, sites, symbolizer));
    }

    /// Adds names and source lines, and what else is known now that the run has ended.
    ///
    /// # Errors
    /// When something could not be written, now or before.
    pub fn finish(
        mut self,
        names: Option<&mut LiveNames<'_>>,
        process: &format::Process,
        not_seen: &NotSeen,
    ) -> Result<EventNumber, RecordError> {
        self.attempt(|recorder| match names {
            Some(names) => recorder.name(names),
            None => Ok(()),
        });
        self.attempt(|recorder| {
            recorder.writer.process(process)?;
            let (lost, property) =
                recording::not_seen(not_seen).map_err(|error| WriteError::Io(error.into()))?;
            lost.iter().try_for_each(|lost| recorder.writer.lost(lost))?;
            recorder.writer.property(&property)
        });
        let Self { path, writer, failed, .. } = self;
        let events = writer.events_written();
        match failed.map_or_else(|| writer.finish().map(drop), Err) {
            Ok(()) => Ok(events),
            Err(error) => Err(RecordError { path, error }),
        }
    }

    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> Result<(), WriteError>) {
        if self.failed.is_none() {
            self.failed = write(self).err();
        }
    }

    fn try_record(
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
            let thread = format::Thread { name: thread.name.clone(), tid: Some(thread.tid) };
            writer.thread(ThreadId(defined.threads), &thread)?;
            defined.threads += 1;
        }
        while let Some(known) = source.regions().get(RegionId(defined.regions)) {
            let (name, location) = (known.name.clone(), Some(known.location));
            let region = format::Region { name, location };
            writer.region(RegionId(defined.regions), &region)?;
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
        while let Some(cell) = source.memory().variable(VarId(defined.variables)) {
            let variable = format::Object {
                name: watched_as(source.watches(), &cell),
                address: Some(cell.address),
                size: Some(cell.length),
                ..format::Object::new(format::ObjectKind::Variable)
            };
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
            let build_id = module.file().ok().and_then(|file| file.build_id());
            writer.module(&format::Module {
                path: module.path().to_string_lossy().into_owned(),
                build_id: build_id.unwrap_or_default().to_owned(),
                load_bias: module.load_bias(),
            })?;
            defined.modules += 1;
        }
        let at = |address: u64, known: usize| {
            let known = &modules[..known.min(modules.len())];
            let found = known.iter().enumerate().rev().find_map(|(index, module)| {
                let link = module.link_address(ProcessAddr(address))?;
                Some(CodeAddress { module: Some(ModuleId(index as u32)), address: link.0 })
            });
            found.unwrap_or(CodeAddress { module: None, address })
        };
        while let Some(location) = locations.get(LocationId(defined.locations)) {
            let modules = locations.modules_known(LocationId(defined.locations));
            let at = |address: u64| at(address, modules);
            let (kind, stack) = match location {
                Location::Site(site) => {
                    let address = sites.get(site as usize).map(|site| site.address.0);
                    (LocationKind::Probe, address.into_iter().map(at).collect())
                }
                Location::Call(stack) => (LocationKind::Call, known(&stack).map(at).collect()),
                Location::Access(stack) => (LocationKind::Access, known(&stack).map(at).collect()),
            };
            let location = format::Location { label: None, kind, stack };
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
            let mut frames: Vec<Frame<'_>> = frames.iter().map(frame).collect();
            if let Some(first) = frames.first_mut() {
                first.is_library = names.origin(id) == Origin::Library;
                writer.frames(id, &frames)?;
            }
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
            let report::Object { name, address, .. } = names.object(finding::Object::Variable(id));
            let size = names.source().memory().variable(id).map(|cell| cell.length);
            let unnamed = format::Object::new(format::ObjectKind::Variable);
            writer.variable(id, &format::Object { name, address, size, ..unnamed })?;
        }
        let Defined { locations, variables, locks, syncs, .. } = *defined;
        let classes = names.recorded_classes((locations, variables, locks, syncs));
        let property =
            recording::classes(&classes).map_err(|error| WriteError::Io(error.into()))?;
        property.map_or(Ok(()), |property| writer.property(&property))?;
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

/// Iterates over the addresses of a stack, up to the first unknown one.
fn known(stack: &[u64]) -> impl Iterator<Item = u64> {
    stack.iter().copied().take_while(|&address| address != 0)
}

fn frame(frame: &SourceFrame) -> Frame<'_> {
    Frame {
        function: frame.function.as_deref(),
        file: frame.file.as_deref(),
        line: frame.line,
        column: frame.column,
        module: frame.module.as_deref(),
        is_inlined: false,
        is_wrapper: frame.is_wrapper,
        is_library: false,
        declared: frame.declared,
    }
}

fn synchronisation(known: Known, name: Option<String>) -> format::Object {
    let Known { address, object: kind, first_used } = known;
    format::Object {
        kind,
        name,
        address: Some(address),
        size: Some(size_of_kind(kind)),
        location: Some(first_used),
    }
}
