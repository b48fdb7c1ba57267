//! Writer of binary traces: gathers records and definitions into blocks. They are encoded elsewhere.

use super::block::{BlockHeader, file_header};
use super::definition;
use super::footer::Footer;
use super::layout::{ALIGN, BLOCK_HEADER, EVENT, FOOTER, MAX_PAYLOAD, NONE, VALUE, block};
use super::packed::{self, COLUMNS};
use super::record::{self, Record};
use crate::event::{Event, EventNumber, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::format::batch::{BATCH, Gap, ObservedValue};
use crate::format::convert::WriteError;
use crate::format::intern::MAX_IDS;
use crate::format::names::{
    Frame, IdSpace, Location, Lost, Module, ModuleId, NO_LOCATION, Object, Process, Property,
    Region, Segment, SourceExcerpt, Space, Thread, location_number,
};
use rustc_hash::FxHashMap;
use std::io::Write;

/// Size of the gathered definitions, in bytes, at which they become a block at the latest.
const DEFINITIONS: usize = 256 * 1024;

/// Number of entries of each list that of names that have been copied.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) revisions: usize,
    pub(super) lost: usize,
    pub(super) properties: usize,
    pub(super) excerpts: usize,
    pub(super) has_segment: bool,
    /// By space.
    pub(super) origins: [u32; IdSpace::ALL.len()],
}

/// Writes a trace as `.avt`.
///
/// Every id is defined before it is used, in the order of ids; a later definition of the same id replaces the
/// earlier one. Blocks are written when they are full; [`flush`](Self::flush) writes the current one early,
/// so that a crash does not lose its contents. [`finish`](Self::finish) writes the footer: without it, the
/// trace reads as one that was cut short.
///
/// Memory is constant but for the strings of [`frames`](Self::frames), each stored once.
///
/// ```
/// use checker::event::{Event, Op, ThreadId, VarId};
/// use checker::format::{AvtWriter, NO_LOCATION, Object, ObjectKind, ReadOptions, Thread, TraceReader};
///
/// let mut writer = AvtWriter::new(Vec::new())?;
/// writer.thread(ThreadId(0), &Thread { name: Some("main".to_owned()), tid: Some(4711) })?;
/// let balance = Object { address: Some(0x7f00_1000), ..Object::new(ObjectKind::Variable) };
/// writer.variable(VarId(0), &balance)?;
/// let op = Op::Write(VarId(0));
/// writer.event(&Event { thread: ThreadId(0), op, location: NO_LOCATION })?;
/// let file = writer.finish()?;
///
/// let mut reader = TraceReader::from_bytes(&file, ReadOptions::new("t.avt"))?;
/// while reader.next_item()?.is_some() {}
/// assert_eq!(reader.names().variable(VarId(0)), Some(balance));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AvtWriter<W> {
    out: W,
    /// Number of bytes written.
    written: u64,
    definitions: Vec<u8>,
    definition_count: u32,
    records: Vec<Record>,
    /// Payload of the last block, for the next one to be made in.
    payload: Vec<u8>,
    values: Vec<ObservedValue>,
    /// Number of events before those of `records`.
    first: EventNumber,
    /// Number of events so far.
    events: EventNumber,
    pub(super) counts: Footer,
    headers: crc32fast::Hasher,
    strings: FxHashMap<Box<str>, u32>,
    pub(super) copied: Copied,
}

impl<W: Write> AvtWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut out: W) -> Result<Self, WriteError> {
        let header = file_header();
        out.write_all(&header)?;
        Ok(Self {
            out,
            written: header.len() as u64,
            definitions: Vec::new(),
            definition_count: 0,
            records: Vec::with_capacity(BATCH),
            payload: Vec::new(),
            values: Vec::new(),
            first: 0,
            events: 0,
            counts: Footer::default(),
            headers: crc32fast::Hasher::new(),
            strings: FxHashMap::default(),
            copied: Copied::default(),
        })
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Returns a reference to the underlying writer, which has only whole blocks.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Returns the number of events written.
    #[must_use]
    pub fn events_written(&self) -> EventNumber {
        self.events
    }

    /// Defines a thread.
    ///
    /// # Errors
    /// When its id is neither the next nor one of those before, and as [`event`](Self::event). The same goes for
    /// all definitions.
    pub fn thread(&mut self, id: ThreadId, thread: &Thread) -> Result<(), WriteError> {
        in_turn("thread", id.0, &mut self.counts.ids.threads)?;
        self.define(|out| definition::put_thread(id.0, thread, out))
    }

    /// Defines a region.
    ///
    /// # Errors
    /// As [`thread`](Self::thread).
    pub fn region(&mut self, id: RegionId, region: &Region) -> Result<(), WriteError> {
        in_turn("region", id.0, &mut self.counts.ids.regions)?;
        self.define(|out| definition::put_region(id.0, region, out))
    }

    /// Defines a variable.
    ///
    /// # Errors
    /// As [`thread`](Self::thread).
    pub fn variable(&mut self, id: VarId, object: &Object) -> Result<(), WriteError> {
        self.object(Space::Variable, id.0, object)
    }

    /// Defines a lock.
    ///
    /// # Errors
    /// As [`thread`](Self::thread).
    pub fn lock(&mut self, id: LockId, object: &Object) -> Result<(), WriteError> {
        self.object(Space::Lock, id.0, object)
    }

    /// Defines a synchronisation object that is not a lock.
    ///
    /// # Errors
    /// As [`thread`](Self::thread).
    pub fn sync(&mut self, id: SyncId, object: &Object) -> Result<(), WriteError> {
        self.object(Space::Sync, id.0, object)
    }

    pub(super) fn object(
        &mut self,
        space: Space,
        id: u32,
        object: &Object,
    ) -> Result<(), WriteError> {
        let (what, count) = match space {
            Space::Variable => ("variable", &mut self.counts.ids.variables),
            Space::Lock => ("lock", &mut self.counts.ids.locks),
            Space::Sync => ("synchronisation object", &mut self.counts.ids.syncs),
        };
        in_turn(what, id, count)?;
        self.define(|out| definition::put_object(space, id, object, out))
    }

    /// Defines a location. Numbered locations need no definition.
    ///
    /// # Errors
    /// As [`thread`](Self::thread), and when an address is of a module that is not defined.
    pub fn location(&mut self, id: LocationId, location: &Location) -> Result<(), WriteError> {
        let count = self.counts.ids.modules;
        for ModuleId(id) in location.stack.iter().filter_map(|at| at.module) {
            if id >= count {
                return Err(WriteError::Undefined { what: "module", id, count });
            }
        }
        in_turn("location", id.0, &mut self.counts.ids.locations)?;
        self.define(|out| definition::put_location(id.0, location, out))
    }

    /// Defines the source lines of a location, innermost inlined call first. This may come at any time
    /// after the location's definition.
    ///
    /// # Errors
    /// When the location is not defined, and as [`event`](Self::event).
    pub fn frames(&mut self, id: LocationId, frames: &[Frame<'_>]) -> Result<(), WriteError> {
        let count = self.counts.ids.locations;
        if id.0 >= count {
            return Err(WriteError::Undefined { what: "location", id: id.0, count });
        }
        for text in frames.iter().flat_map(|frame| [frame.function, frame.file, frame.module]) {
            if let Some(text) = text.filter(|text| !self.strings.contains_key(*text)) {
                self.define(|out| definition::put_string(text, out))?;
                self.strings.insert(text.into(), self.counts.ids.strings);
                self.counts.ids.strings += 1;
            }
        }
        let Self { definitions, strings, .. } = self;
        let start = definitions.len();
        let string = |text: &str| strings.get(text).copied().unwrap_or(NONE);
        definition::put_frames(id.0, frames, string, definitions);
        self.defined(start)
    }

    /// Defines a file that code was loaded from.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn module(&mut self, module: &Module) -> Result<ModuleId, WriteError> {
        self.define(|out| definition::put_module(module, out))?;
        self.counts.ids.modules += 1;
        Ok(ModuleId(self.counts.ids.modules - 1))
    }

    /// Describes the recorded process. The last description counts.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn process(&mut self, process: &Process) -> Result<(), WriteError> {
        self.define(|out| definition::put_process(process, out))
    }

    /// Writes the total number of lost events of a class.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn lost(&mut self, lost: &Lost) -> Result<(), WriteError> {
        self.define(|out| definition::put_lost(lost, out))
    }

    /// Writes lines of a source file, as a report shows them where the file is not.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn excerpt(&mut self, excerpt: &SourceExcerpt) -> Result<(), WriteError> {
        self.define(|out| definition::put_excerpt(excerpt, out))
    }

    /// Writes a further property of the recording.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn property(&mut self, property: &Property) -> Result<(), WriteError> {
        self.define(|out| definition::put_property(property, out))
    }

    /// Writes which part of a recording the trace is.
    ///
    /// # Errors
    /// As [`event`](Self::event).
    pub fn segment(&mut self, segment: Segment) -> Result<(), WriteError> {
        self.define(|out| definition::put_segment(segment, out))
    }

    /// Writes the number of an id in the whole recording that the trace is a segment of.
    ///
    /// # Errors
    /// When the id is not defined, and as [`event`](Self::event).
    pub fn origin(&mut self, space: IdSpace, id: u32, origin: u32) -> Result<(), WriteError> {
        let count = self.count(space);
        if id >= count {
            return Err(WriteError::Undefined { what: "id", id, count });
        }
        self.define(|out| definition::put_origin(space, id, origin, out))
    }

    pub(super) fn count(&self, space: IdSpace) -> u32 {
        let ids = &self.counts.ids;
        match space {
            IdSpace::Thread => ids.threads,
            IdSpace::Region => ids.regions,
            IdSpace::Variable => ids.variables,
            IdSpace::Lock => ids.locks,
            IdSpace::Sync => ids.syncs,
            IdSpace::Location => ids.locations,
        }
    }

    /// Returns a bound of the length of the file in bytes, were it finished now.
    #[must_use]
    pub fn length(&self) -> u64 {
        let records = self.records.len() * EVENT + COLUMNS;
        let pending = self.definitions.len() + records + self.values.len() * VALUE + FOOTER;
        // One block of each kind at most.
        self.written + (pending + 4 * (BLOCK_HEADER + ALIGN)) as u64
    }

    fn define(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), WriteError> {
        let start = self.definitions.len();
        put(&mut self.definitions);
        self.defined(start)
    }

    /// Counts a definition that was added to the buffer.
    fn defined(&mut self, start: usize) -> Result<(), WriteError> {
        let length = self.definitions.len() - start;
        if length > MAX_PAYLOAD {
            self.definitions.truncate(start);
            return Err(WriteError::TooLong { length, limit: MAX_PAYLOAD });
        }
        if start + length > MAX_PAYLOAD {
            let last = self.definitions.split_off(start);
            self.flush_definitions()?;
            self.definitions = last;
        }
        self.definition_count += 1;
        if self.definitions.len() >= DEFINITIONS {
            self.flush_definitions()?;
        }
        Ok(())
    }

    /// Writes an event.
    ///
    /// # Errors
    /// When it uses an id that is not defined, or when writing fails.
    #[inline]
    pub fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        self.check_ids(event)?;
        self.make_room()?;
        self.records.push(record::encode(event));
        self.events += 1;
        Ok(())
    }

    fn check_ids(&self, event: &Event) -> Result<(), WriteError> {
        let ids = &self.counts.ids;
        let check = |what, id: u32, count: u32| {
            if id < count { Ok(()) } else { Err(WriteError::Undefined { what, id, count }) }
        };
        check("thread", event.thread.0, ids.threads)?;
        if let Op::SplitVariable { from, to } = event.op {
            check("variable", from.0, ids.variables)?;
            return check("variable", to.0, ids.variables);
        }
        if event.location != NO_LOCATION && location_number(event.location).is_none() {
            check("location", event.location.0, ids.locations)?;
        }
        match event.op {
            Op::End(None) | Op::Follow(None) | Op::Exit | Op::SplitVariable { .. } => Ok(()),
            Op::Begin(id)
            | Op::End(Some(id))
            | Op::Follow(Some(id))
            | Op::Rest(id)
            | Op::Resume(id) => check("region", id.0, ids.regions),
            Op::Read(id)
            | Op::Write(id)
            | Op::Update(id)
            | Op::CommutingUpdate(id)
            | Op::Alloc(id)
            | Op::Free(id) => check("variable", id.0, ids.variables),
            Op::Acquire(id)
            | Op::Release(id)
            | Op::AcquireShared(id)
            | Op::ReleaseShared(id)
            | Op::Reset(id) => check("lock", id.0, ids.locks),
            Op::Fork(id) | Op::Join(id) => check("thread", id.0, ids.threads),
            Op::Signal(id) | Op::Wait(id) | Op::Arrive(id) | Op::Depart(id) => {
                check("synchronisation object", id.0, ids.syncs)
            }
        }
    }

    /// Writes the value that was observed at an event: before that event is written, or directly after it.
    /// A value whose event never comes is left out.
    ///
    /// # Errors
    /// When the event is in a block that was written, or before that of the last value.
    pub fn value(&mut self, value: ObservedValue) -> Result<(), WriteError> {
        let expected = self.values.last().map_or(self.first, |last| last.event.saturating_add(1));
        if value.event < expected {
            return Err(WriteError::ValueOrder { event: value.event, expected });
        }
        self.values.push(value);
        Ok(())
    }

    /// Writes that events were lost here.
    ///
    /// # Errors
    /// When writing fails.
    pub fn gap(&mut self, gap: Gap) -> Result<(), WriteError> {
        self.make_room()?;
        self.records.push(record::encode_gap(gap));
        self.counts.gaps += 1;
        self.counts.lost = self.counts.lost.saturating_add(gap.lost.unwrap_or(0));
        Ok(())
    }

    /// Writes a full block as soon as a record for the next one arrives, so that the last event's value can
    /// come after it.
    #[inline]
    fn make_room(&mut self) -> Result<(), WriteError> {
        if self.records.len() >= BATCH { self.flush_blocks() } else { Ok(()) }
    }

    /// Writes everything so far as whole blocks, and flushes the output.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.flush_blocks()?;
        Ok(self.out.flush()?)
    }

    /// Ends the file with its footer.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.write_end()?;
        Ok(self.out)
    }

    pub(super) fn write_end(&mut self) -> Result<(), WriteError> {
        self.flush_blocks()?;
        let checksum = self.headers.clone().finalize();
        let footer = Footer { events: self.events, checksum, ..self.counts };
        self.write_block(block::FOOTER, 1, &footer.encode())?;
        Ok(self.out.flush()?)
    }

    fn flush_blocks(&mut self) -> Result<(), WriteError> {
        self.flush_definitions()?;
        self.flush_values()?;
        if !self.records.is_empty() {
            let mut payload = std::mem::take(&mut self.payload);
            payload.clear();
            let kind = if packed::put_events(&self.records, &mut payload) {
                block::PACKED_EVENTS
            } else {
                self.records.iter().for_each(|record| payload.extend(record.to_bytes()));
                block::EVENTS
            };
            self.write_block(kind, self.records.len() as u32, &payload)?;
            self.payload = payload;
            self.records.clear();
            self.first = self.events;
        }
        Ok(())
    }

    fn flush_definitions(&mut self) -> Result<(), WriteError> {
        if self.definition_count > 0 {
            let definitions = std::mem::take(&mut self.definitions);
            let count = std::mem::take(&mut self.definition_count);
            self.write_block(block::COMPACT_DEFINITIONS, count, &definitions)?;
            self.counts.definitions += u64::from(count);
            self.definitions = definitions;
            self.definitions.clear();
        }
        Ok(())
    }

    /// Writes the gathered values: they stand before the events that they belong to.
    fn flush_values(&mut self) -> Result<(), WriteError> {
        // No more than there are events in a block.
        let ready = self.values.partition_point(|value| value.event < self.events);
        if ready > 0 {
            let mut payload = std::mem::take(&mut self.payload);
            payload.clear();
            packed::put_values(self.values.drain(..ready), self.first, &mut payload);
            self.write_block(block::PACKED_VALUES, ready as u32, &payload)?;
            self.payload = payload;
            self.counts.values += ready as u64;
        }
        Ok(())
    }

    fn write_block(&mut self, kind: u16, records: u32, payload: &[u8]) -> Result<(), WriteError> {
        let padding = &[0; ALIGN][..payload.len().next_multiple_of(ALIGN) - payload.len()];
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(payload);
        checksum.update(padding);
        let header = BlockHeader {
            kind,
            length: payload.len() as u32,
            records,
            first_event: self.first,
            number: self.counts.blocks as u32,
            checksum: checksum.finalize(),
        };
        let bytes = header.encode();
        self.out.write_all(&bytes)?;
        self.out.write_all(payload)?;
        self.out.write_all(padding)?;
        self.written += (bytes.len() + payload.len() + padding.len()) as u64;
        if kind != block::FOOTER {
            self.headers.update(&bytes);
            self.counts.blocks += 1;
        }
        Ok(())
    }
}

/// Checks that an id may be defined now; counts it if it is new.
fn in_turn(what: &'static str, id: u32, count: &mut u32) -> Result<(), WriteError> {
    // The upper half of the locations' ids are numbers; no other table gets there either.
    if id > *count || id >= MAX_IDS {
        return Err(WriteError::OutOfTurn { what, id, count: *count });
    }
    *count = (*count).max(id + 1);
    Ok(())
}
