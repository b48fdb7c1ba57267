//! Recording of a program in segments: each is a trace of its own, with the names of what is in it, so that the oldest
//! can be removed. Their files are in `rotation`.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use checker::{
    defect::RegionRole,
    event::{LocationId, LockId, RegionId, SyncId, ThreadId, VarId},
    finding,
    format::{
        self, Descriptions, Gap, IdSpace, ModuleId, Property, Segment, SegmentWriter, Space,
        WriteError,
    },
};
use symbolize::{Module, Symbolizer};

use super::{
    End, FLUSH, RecordError, Recording,
    describe::{self, Code, synchronisation},
    rotation::{Rotation, SegmentFile},
    sources::{MAX_BYTES, Sources, sources},
};
use crate::{
    names::live::{KnownCode, LiveNames},
    offline::recording,
};
use events::{
    source::Source,
    stream::{Item, Mark},
    values::RetainedValues,
};
use linux::test_number;
use plan::plan::Site;
use report::{self, Names as _};

/// Time for looking code up between two batches of records, but for the last location, whose look-up is not divided.
/// Later events wait in the buffers, and must not exceed them: all locations of a segment may take seconds.
const LOOK_UP: Duration = Duration::from_millis(5);

/// Number of full segments that wait for their names at most: room is set aside for each. Of one more, the oldest is
/// named at once.
const WAITING: usize = 2;

/// Length of a program's arguments in each segment, in bytes.
const MAX_ARGUMENTS: usize = 4096;

#[derive(Debug)]
pub(super) struct SegmentRecorder {
    rotation: Arc<Rotation>,
    process: format::Process,
    /// Place of the next segment.
    next: Segment,
    begins_within: bool,
    /// The segment that is written, once there is something to write.
    current: Option<Current>,
    /// Full segments, the oldest first: all their events are in their files, and the names are not.
    unnamed: VecDeque<Current>,
    /// Code that was looked up for the names of segments.
    known: KnownCode,
    /// Time for that between two batches.
    look_up: Duration,
    counts: finding::Counts,
    flushed: Instant,
    embed_sources: bool,
}

#[derive(Debug)]
struct Current {
    writer: SegmentWriter<SegmentFile>,
    /// Length at which it is to end, and that which it may have with names.
    limits: (u64, u64),
    /// Number of its locations whose code was looked up.
    looked_up: usize,
}

impl Current {
    /// Looks the code of its locations up, at least of one, until this moment. Returns whether all of it was.
    fn look_up(&mut self, names: &mut LiveNames<'_>, until: Option<Instant>) -> bool {
        for &id in &self.writer.origins(IdSpace::Location)[self.looked_up..] {
            let _ = names.origin(LocationId(id));
            self.looked_up += 1;
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
        }
        true
    }

    /// Gives it its name.
    fn complete(self) -> Result<(), WriteError> {
        Ok(self.writer.finish()?.complete()?)
    }
}

impl SegmentRecorder {
    /// Makes the first segment.
    pub(super) fn create(
        rotation: &Arc<Rotation>,
        process: &format::Process,
        embed_sources: bool,
    ) -> Result<Self, RecordError> {
        let recording = RandomState::new().build_hasher().finish();
        let mut recorder = Self {
            rotation: Arc::clone(rotation),
            process: shortened(process),
            next: Segment { recording, number: 0, first_event: 0 },
            begins_within: false,
            current: None,
            unnamed: VecDeque::new(),
            known: KnownCode::default(),
            look_up: test_number::get("AVTRACE_TEST_LOOK_UP_US")
                .map_or(LOOK_UP, Duration::from_micros),
            counts: finding::Counts::default(),
            flushed: Instant::now(),
            embed_sources,
        };
        match recorder.current() {
            Ok(_) => Ok(recorder),
            Err(error) => Err(RecordError { path: rotation.directory().to_owned(), error }),
        }
    }

    /// Returns the segment that is written, and begins one if need be.
    fn current(&mut self) -> Result<&mut Current, WriteError> {
        if self.current.is_none() {
            let file = self.rotation.open(self.process.pid.unwrap_or(0))?;
            let limits = file.limits();
            let mut writer = SegmentWriter::new(file, self.next, self.begins_within)?;
            writer.property(&recording::mark())?;
            writer.process(&self.process)?;
            self.current = Some(Current { writer, limits, looked_up: 0 });
            self.next.number += 1;
            // Of what comes before the next ones, they know nothing.
            self.begins_within = true;
        }
        match &mut self.current {
            Some(current) => Ok(current),
            None => unreachable!("it was made"),
        }
    }

    /// Ends the current segment. Its names come later.
    fn put_off(&mut self) -> Result<(), WriteError> {
        if let Some(mut current) = self.current.take() {
            self.next.first_event += current.writer.events_written();
            current.writer.flush()?;
            self.unnamed.push_back(current);
        }
        Ok(())
    }

    /// Names full segments until no more than so many are left, or this moment. Looking up goes on where it has ended.
    fn name_full(
        &mut self,
        source: &Source,
        sites: &[Site],
        symbolizer: &Symbolizer,
        most: usize,
        until: Option<Instant>,
    ) -> Result<(), WriteError> {
        if self.unnamed.len() <= most {
            return Ok(());
        }
        let values = RetainedValues::default();
        let known = std::mem::take(&mut self.known);
        let mut names = LiveNames::new(source, sites, symbolizer, &values).knowing(known);
        let named = self.name_with(&mut names, most, until);
        self.known = names.into_known();
        named
    }

    /// Names full segments as [`name_full`](Self::name_full), with these names.
    fn name_with(
        &mut self,
        names: &mut LiveNames<'_>,
        most: usize,
        until: Option<Instant>,
    ) -> Result<(), WriteError> {
        while self.unnamed.len() > most {
            let Some(first) = self.unnamed.front_mut() else { break };
            if !first.look_up(names, until) {
                break;
            }
            name(&mut first.writer, names, first.limits.1, self.embed_sources)?;
            self.unnamed.pop_front().map_or(Ok(()), Current::complete)?;
        }
        Ok(())
    }
}

impl Recording for SegmentRecorder {
    fn path(&self) -> &Path {
        self.rotation.directory()
    }

    fn begin_within(&mut self) -> Result<(), WriteError> {
        self.current()?.writer.gap(Gap::default())
    }

    /// Events of removed segments are counted, too.
    fn counts(&self) -> finding::Counts {
        self.counts
    }

    fn finish(
        mut self: Box<Self>,
        mut names: Option<&mut LiveNames<'_>>,
        end: &End<'_>,
    ) -> Result<(), WriteError> {
        if let Some(names) = &mut names {
            self.name_with(names, 0, None)?;
        }
        std::mem::take(&mut self.unnamed).into_iter().try_for_each(Current::complete)?;
        let embed_sources = self.embed_sources;
        let Current { writer, limits, .. } = self.current()?;
        writer.process(&shortened(end.process))?;
        end.lost.iter().try_for_each(|lost| writer.lost(lost))?;
        writer.property(&end.not_seen)?;
        writer.property(&end.run)?;
        if let Some(names) = names {
            name(writer, names, limits.1, embed_sources)?;
        }
        self.current.take().map_or(Ok(()), Current::complete)
    }

    fn record(
        &mut self,
        source: &Source,
        sites: &[Site],
        symbolizer: &Symbolizer,
    ) -> Result<(), WriteError> {
        self.counts.threads = source.threads().seen().len() as u64;
        let modules: Vec<&Module> = symbolizer.modules().collect();
        let code = Code { locations: source.locations(), sites, modules: &modules };
        let mut run = Run { source, code };
        let first = self.counts.events;
        let mut values =
            source.watches().shared_values().skip_while(|value| value.event < first).peekable();
        for item in source.stream().items() {
            let events = match item {
                Item::Events(events) => events,
                Item::Mark(Mark::Gap) => {
                    self.counts.gaps += 1;
                    self.current()?.writer.gap(Gap::default())?;
                    continue;
                }
                // Nothing is left out of a recording.
                Item::Mark(Mark::Epoch(_) | Mark::Deferred(_)) => continue,
            };
            for event in events {
                let number = self.counts.events;
                let Current { writer, limits, .. } = self.current()?;
                while let Some(value) = values.next_if(|value| value.event <= number) {
                    writer.value(value)?;
                }
                writer.event(event, &mut run)?;
                let is_full = writer.length() >= limits.0;
                self.counts.events += 1;
                if is_full {
                    self.put_off()?;
                    self.name_full(source, sites, symbolizer, WAITING, None)?;
                }
            }
        }
        let until = Some(Instant::now() + self.look_up);
        self.name_full(source, sites, symbolizer, 0, until)?;
        if self.flushed.elapsed() >= FLUSH
            && let Some(Current { writer, .. }) = &mut self.current
        {
            writer.flush()?;
            self.flushed = Instant::now();
        }
        Ok(())
    }
}

/// Names what is in a segment, as a report would. What there is no room for is left out: locations have their addresses
/// in any case.
fn name(
    writer: &mut SegmentWriter<SegmentFile>,
    names: &mut LiveNames<'_>,
    most: u64,
    embed_sources: bool,
) -> Result<(), WriteError> {
    let ids = |writer: &SegmentWriter<SegmentFile>, space| writer.origins(space).to_vec();
    let [locations, threads, locks, syncs, variables, regions] = [
        IdSpace::Location,
        IdSpace::Thread,
        IdSpace::Lock,
        IdSpace::Sync,
        IdSpace::Variable,
        IdSpace::Region,
    ]
    .map(|space| ids(writer, space));
    let roles: Vec<RegionRole> = (regions.iter())
        .filter_map(|&id| names.source().regions().get(RegionId(id)))
        .map(|known| known.role)
        .collect();
    let roles = recording::roles(&roles).map_err(|error| WriteError::Io(error.into()))?;
    add(writer, &roles, most)?;
    add(writer, &recording::sees_data(names.sees_data()), most)?;
    for id in locations.iter().copied().map(LocationId) {
        let frames = names.frames(id);
        let frames = describe::frames(&frames, names.origin(id));
        if !frames.is_empty() && has_room(writer, most) {
            writer.frames(id, &frames)?;
        }
    }
    for id in threads.iter().copied().map(ThreadId) {
        let report::ThreadName { name, tid } = names.thread(id);
        if has_room(writer, most) {
            writer.thread(id, &format::Thread { name, tid })?;
        }
    }
    let of_locks = locks.iter().map(|&id| (Space::Lock, id, finding::Object::Lock(LockId(id))));
    let of_syncs = syncs.iter().map(|&id| (Space::Sync, id, finding::Object::Sync(SyncId(id))));
    for (space, id, object) in of_locks.chain(of_syncs) {
        let known = match space {
            Space::Lock => names.source().lock(LockId(id)),
            _ => names.source().sync(SyncId(id)),
        };
        let name = names.object(object).name;
        if let Some(known) = known.filter(|_| has_room(writer, most)) {
            writer.object(space, id, &synchronisation(known, name))?;
        }
    }
    for &id in &variables {
        if has_room(writer, most) {
            writer.object(Space::Variable, id, &describe::named_variable(names, VarId(id)))?;
        }
    }
    let classes = names.recorded_classes([&locations, &variables, &locks, &syncs]);
    let classes = recording::classes(&classes).map_err(|error| WriteError::Io(error.into()))?;
    classes.map_or(Ok(()), |property| add(writer, &property, most))?;
    if embed_sources {
        let room = most.saturating_sub(writer.length() + RESERVE);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(MAX_BYTES);
        let locations = locations.into_iter().map(LocationId);
        let Sources { excerpts, left_out } = sources(names, locations, room);
        excerpts.iter().try_for_each(|excerpt| writer.excerpt(excerpt))?;
        writer.property(&recording::sources(left_out))?;
    }
    Ok(())
}

/// Room that is always left for the end of a segment and for one more name, in bytes.
const RESERVE: u64 = 8 << 10;

fn has_room(writer: &SegmentWriter<SegmentFile>, most: u64) -> bool {
    writer.length() + RESERVE < most
}

/// Adds a property if there is room for it.
fn add(
    writer: &mut SegmentWriter<SegmentFile>,
    property: &Property,
    most: u64,
) -> Result<(), WriteError> {
    if writer.length() + property.value.len() as u64 + RESERVE < most {
        writer.property(property)?;
    }
    Ok(())
}

/// Returns the description of a process with arguments of a bounded length.
fn shortened(process: &format::Process) -> format::Process {
    let mut length = 0;
    let fits = |argument: &&String| {
        length += argument.len();
        length <= MAX_ARGUMENTS
    };
    let argv = process.argv.iter().take_while(fits).cloned().collect();
    format::Process { argv, ..process.clone() }
}

/// Descriptions of what a source has seen.
struct Run<'run> {
    source: &'run Source,
    code: Code<'run>,
}

impl Descriptions for Run<'_> {
    fn thread(&mut self, id: ThreadId) -> format::Thread {
        self.source.threads().seen().get(id.index()).map(describe::thread).unwrap_or_default()
    }

    fn region(&mut self, id: RegionId) -> format::Region {
        self.source.regions().get(id).map(describe::region).unwrap_or_default()
    }

    fn object(&mut self, space: Space, id: u32) -> format::Object {
        let known = match space {
            Space::Lock => self.source.lock(LockId(id)),
            Space::Sync => self.source.sync(SyncId(id)),
            Space::Variable => {
                let unknown = || format::Object::new(format::ObjectKind::Variable);
                return describe::variable(self.source, VarId(id)).unwrap_or_else(unknown);
            }
        };
        known.map_or_else(
            || format::Object::new(format::ObjectKind::unknown(space)),
            |known| synchronisation(known, None),
        )
    }

    fn location(&mut self, id: LocationId) -> format::Location {
        self.code.location(id).unwrap_or_default()
    }

    fn module(&mut self, id: ModuleId) -> format::Module {
        let module = self.code.modules.get(id.0 as usize);
        module.map(|module| describe::module(module)).unwrap_or_default()
    }
}
