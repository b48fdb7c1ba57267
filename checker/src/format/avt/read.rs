//! Reader of binary traces: bytes to blocks, and blocks to batches of events. Single records and
//! definitions are decoded elsewhere.

use super::block::{BlockHeader, check_file_header};
use super::definition;
use super::fields::Fields;
use super::footer::{Footer, Ids};
use super::layout::{BLOCK_HEADER, EVENT, HEADER, block, op};
use super::packed::{self, COLUMNS, Columns, Unpacked};
use super::record::{self, Record};
use crate::event::{Event, EventNumber, LocationId, Op, ThreadId};
use crate::format::batch::{BATCH, Batch, Gap, ObservedValue, Step, Summary};
use crate::format::error::{BlockError, Failure, Place, Reason};
use crate::format::input::Input;
use crate::format::names::{NO_LOCATION, Names, location_number};
use std::io;

/// Event in a place that none was decoded into yet.
const FILLER: Event = Event { thread: ThreadId(0), op: Op::Exit, location: NO_LOCATION };

/// Form of the event records of a block.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Records of sixteen bytes, for threads too far apart to be packed; they are consumed as they are decoded.
    Fixed,
    /// Columns, which are consumed with the padding.
    Packed(Columns),
}

#[derive(Debug)]
pub(in crate::format) struct AvtReader {
    memory_limit: u64,
    names: Names,
    events: Vec<Event>,
    values: Vec<ObservedValue>,
    first: EventNumber,
    summary: Summary,
    /// Expected counts of the footer for the blocks so far, except ids and checksum.
    counts: Footer,
    headers: crc32fast::Hasher,
    /// Start of the window in the file, in bytes.
    offset: u64,
    block: Place,
    /// Number of its records, number of those left, and length of the padding after them.
    block_records: usize,
    records: usize,
    padding: usize,
    form: Form,
    unpacked: Option<Box<Unpacked>>,
    /// Limits of the defined ids, by operation code; fixed while a block of events is read.
    limits: Box<[u32; 256]>,
    gap: Option<Gap>,
    ended: bool,
}

impl AvtReader {
    /// Reads the file's header.
    pub(in crate::format) fn start(
        input: &mut Input<'_>,
        memory_limit: u64,
    ) -> Result<Self, Failure> {
        let header = window(input, HEADER).map_err(|reason| (Place::Whole, reason))?;
        let length = check_file_header(header).map_err(|error| (Place::Whole, error.into()))?;
        let header = window(input, length).map_err(|reason| (Place::Whole, reason))?;
        if header.len() < length {
            let error = BlockError::HeaderCut { found: header.len(), expected: length };
            return Err((Place::Whole, error.into()));
        }
        input.skip(length);
        Ok(Self {
            memory_limit,
            names: Names::default(),
            events: Vec::with_capacity(BATCH),
            values: Vec::new(),
            first: 0,
            summary: Summary::default(),
            counts: Footer::default(),
            headers: crc32fast::Hasher::new(),
            offset: length as u64,
            block: Place::Whole,
            block_records: 0,
            records: 0,
            padding: 0,
            form: Form::Fixed,
            unpacked: None,
            limits: Box::new([0; 256]),
            gap: None,
            ended: false,
        })
    }

    pub(in crate::format) fn names(&self) -> &Names {
        &self.names
    }

    pub(in crate::format) fn into_names(self) -> Names {
        self.names
    }

    pub(in crate::format) fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the place of an event of the last batch.
    pub(in crate::format) fn place(&self, event: EventNumber) -> Place {
        let index = event.checked_sub(self.first);
        match self.block {
            Place::Block { block, offset }
                if index.is_some_and(|index| index < self.events.len() as u64) =>
            {
                Place::Event { event, block, offset }
            }
            _ => Place::Whole,
        }
    }

    pub(in crate::format) fn batch(&self) -> Batch<'_> {
        let end = self.first + self.events.len() as u64;
        let from = self.values.partition_point(|value| value.event < self.first);
        let to = self.values.partition_point(|value| value.event < end);
        let values = self.values.get(from..to).unwrap_or_default();
        Batch { first: self.first, events: &self.events, values, names: &self.names }
    }

    /// Reads up to the next batch, a gap, or the end.
    pub(in crate::format) fn advance(&mut self, input: &mut Input<'_>) -> Result<Step, Failure> {
        self.first += self.events.len() as EventNumber;
        self.events.clear();
        loop {
            if let Some(gap) = self.gap.take() {
                let lost = gap.lost.unwrap_or(0);
                self.summary.gaps += 1;
                self.summary.lost = self.summary.lost.saturating_add(lost);
                return Ok(Step::Gap(gap));
            }
            if self.ended {
                return Ok(Step::End);
            }
            if self.records == 0 {
                let padding = std::mem::take(&mut self.padding);
                self.skip(input, padding);
                if let Err(reason) = self.next_block(input) {
                    self.ended = true;
                    return Err((self.block, reason));
                }
                continue;
            }
            if let Err(error) = self.read_events(input) {
                self.ended = true;
                return Err((self.block, error));
            }
            if !self.events.is_empty() {
                self.summary.events += self.events.len() as u64;
                return Ok(Step::Events);
            }
        }
    }

    fn skip(&mut self, input: &mut Input<'_>, count: usize) {
        input.skip(count);
        self.offset += count as u64;
    }

    /// Reads events up to a full batch, a gap, or the block's end.
    fn read_events(&mut self, input: &mut Input<'_>) -> Result<(), Reason> {
        let wanted = self.records.min(BATCH);
        let (used, refused) = match self.form {
            Form::Fixed => {
                let bytes = window(input, wanted * EVENT)?;
                let (records, _) = bytes.as_chunks::<EVENT>();
                let records = records.iter().take(wanted).map(Record::from_bytes);
                self.take_records::<false>(wanted, records)
            }
            Form::Packed(columns) => {
                let bytes = window(input, self.padding)?;
                let start = self.block_records - self.records;
                let mut unpacked = self.unpacked.take().unwrap_or_default();
                columns.unpack(bytes, self.block_records, start..start + wanted, &mut unpacked);
                let threads = self.names.thread_count() as u32;
                let locations = self.names.location_count() as u32;
                let taken = if unpacked.are_known(wanted, threads, locations) {
                    self.take_records::<true>(wanted, unpacked.records(wanted))
                } else {
                    self.take_records::<false>(wanted, unpacked.records(wanted))
                };
                self.unpacked = Some(unpacked);
                taken
            }
        };
        let mut used = used;
        if let Some(record) = refused {
            if record.op == op::GAP {
                self.gap = Some(record::decode_gap(record));
                used += 1;
            } else if used == 0 {
                let threads = self.names.thread_count() as u32;
                let what = refusal(record, threads, self.limits[usize::from(record.op)]);
                let record = (self.block_records - self.records) as u64;
                return Err(BlockError::BadRecord { record, what }.into());
            }
        }
        if used == 0 {
            return Err(Reason::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        self.records -= used;
        if matches!(self.form, Form::Fixed) {
            self.skip(input, used * EVENT);
        }
        Ok(())
    }

    /// Decodes up to `wanted` records, and stops at one that is no valid event: returns how many were decoded, and
    /// that one. With `KNOWN`, their threads and locations were checked.
    #[inline]
    fn take_records<const KNOWN: bool>(
        &mut self,
        wanted: usize,
        records: impl Iterator<Item = Record>,
    ) -> (usize, Option<Record>) {
        let threads = self.names.thread_count() as u32;
        let locations = self.names.location_count() as u32;
        // Places are overwritten rather than added.
        let mut events = std::mem::take(&mut self.events);
        events.resize(wanted, FILLER);
        let mut refused = None;
        let mut used = 0;
        for (place, record) in events.iter_mut().zip(records) {
            let Record { op, thread, object, location } = record;
            let is_known = KNOWN
                || thread < threads && (location < locations || is_free(LocationId(location)));
            let is_valid = is_known && object < self.limits[usize::from(op)];
            let event = if is_valid || self.is_split(record, threads) {
                record::decode(record)
            } else {
                None
            };
            let Some(event) = event else {
                refused = Some(record);
                break;
            };
            *place = event;
            used += 1;
        }
        events.truncate(used);
        self.events = events;
        (used, refused)
    }

    /// Returns whether a record is a split of defined variables.
    #[cold]
    fn is_split(&self, record: Record, threads: u32) -> bool {
        let variables = self.limits[usize::from(op::READ)];
        record::split_ids(record)
            .is_some_and(|(thread, ids)| thread < threads && ids.iter().all(|&id| id < variables))
    }

    /// Advances to the next block, and consumes all of it except events.
    fn next_block(&mut self, input: &mut Input<'_>) -> Result<(), Reason> {
        let offset = self.offset;
        self.block = Place::Block { block: self.counts.blocks, offset };
        let start = window(input, BLOCK_HEADER)?;
        let Some(bytes) = start.first_chunk::<BLOCK_HEADER>().copied() else {
            self.cut();
            return Ok(());
        };
        let header = BlockHeader::decode(&bytes).ok_or(BlockError::BlockHeader)?;
        let whole = BLOCK_HEADER + header.padded();
        let bytes_left = window(input, whole)?;
        let Some(body) = bytes_left.get(BLOCK_HEADER..whole) else {
            self.cut();
            return Ok(());
        };
        let payload = &body[..header.length as usize];
        let (found, expected) = (crc32fast::hash(body), header.checksum);
        if found != expected {
            return Err(BlockError::Checksum { found, expected }.into());
        }
        let events = self.summary.events;
        if header.first_event != events || header.number != self.counts.blocks as u32 {
            let found = header.first_event;
            return Err(BlockError::Sequence { found, expected: events }.into());
        }
        match header.kind {
            block::EVENTS => {
                if payload.len() != header.records as usize * EVENT {
                    return Err(malformed("the block's length is not that of its records"));
                }
                self.records = header.records as usize;
                self.block_records = self.records;
                self.padding = whole - BLOCK_HEADER - payload.len();
                self.form = Form::Fixed;
                self.limits = limits(&self.names);
            }
            block::PACKED_EVENTS => {
                let columns = Columns::decode(payload, header.records)
                    .ok_or_else(|| malformed("the block's length is not that of its records"))?;
                self.records = header.records as usize;
                self.block_records = self.records;
                self.padding = header.padded() - COLUMNS;
                self.form = Form::Packed(columns);
                self.limits = limits(&self.names);
            }
            block::COMPACT_DEFINITIONS => {
                self.take_definitions(Fields::compact(payload), header.records)?;
            }
            block::PACKED_VALUES => {
                self.values.clear();
                packed::take_values(payload, header.records, events, &mut self.values)
                    .map_err(malformed)?;
                self.counts.values += u64::from(header.records);
            }
            block::FOOTER => {
                let footer = Footer::decode(payload)
                    .ok_or_else(|| malformed("a footer that is too short"))?;
                footer.compare(&Footer {
                    events,
                    gaps: self.summary.gaps,
                    lost: self.summary.lost,
                    ids: Ids::from_names(&self.names),
                    checksum: self.headers.clone().finalize(),
                    ..self.counts
                })?;
                self.ended = true;
                self.skip(input, whole);
                if !window(input, 1)?.is_empty() {
                    self.block =
                        Place::Block { block: self.counts.blocks + 1, offset: self.offset };
                    return Err(BlockError::AfterFooter.into());
                }
                return Ok(());
            }
            // A kind of a later minor version.
            _ => {}
        }
        self.headers.update(&bytes);
        self.counts.blocks += 1;
        // Records of events are consumed as they are decoded.
        let consumed = match header.kind {
            block::EVENTS => BLOCK_HEADER,
            block::PACKED_EVENTS => BLOCK_HEADER + COLUMNS,
            _ => whole,
        };
        self.skip(input, consumed);
        Ok(())
    }

    fn take_definitions(&mut self, mut fields: Fields<'_>, count: u32) -> Result<(), Reason> {
        for record in 0..u64::from(count) {
            definition::take(&mut fields, &mut self.names)
                .map_err(|what| BlockError::BadRecord { record, what })?;
        }
        self.counts.definitions += u64::from(count);
        self.names.check(self.memory_limit)
    }

    /// Notes that the file ends without a footer, or inside a block.
    fn cut(&mut self) {
        self.ended = true;
        self.summary.truncated = Some(self.offset);
    }
}

fn malformed(what: &'static str) -> Reason {
    BlockError::BadRecord { record: 0, what }.into()
}

/// Returns at least `least` bytes, and fewer only at the end of the input. Truncated compressed data ends
/// there too.
fn window<'i>(input: &'i mut Input<'_>, least: usize) -> Result<&'i [u8], Reason> {
    match input.window(least) {
        Ok(_) => Ok(input.at_hand()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(input.at_hand()),
        Err(error) => Err(Reason::Io(error)),
    }
}

/// Returns for each operation the smallest object id that is not defined. 0 refuses all; splits, which are
/// rare and have no location, get 0.
fn limits(names: &Names) -> Box<[u32; 256]> {
    let mut limits = Box::new([0; 256]);
    let Ids { threads, regions, variables, locks, syncs, .. } = Ids::from_names(names);
    limits[usize::from(op::END)] = u32::MAX;
    limits[usize::from(op::EXIT)] = u32::MAX;
    limits[usize::from(op::FOLLOW_NONE)] = u32::MAX;
    for (ops, limit) in [
        (&[op::BEGIN, op::END_NAMED, op::FOLLOW, op::REST, op::RESUME][..], regions),
        (&[op::READ, op::WRITE, op::UPDATE, op::COMMUTING_UPDATE], variables),
        (&[op::ALLOC, op::FREE, op::END_OF_LIFE], variables),
        (&[op::ACQUIRE, op::RELEASE, op::ACQUIRE_SHARED, op::RELEASE_SHARED, op::RESET], locks),
        (&[op::FORK, op::JOIN], threads),
        (&[op::SIGNAL, op::WAIT, op::ARRIVE, op::DEPART], syncs),
    ] {
        for &op in ops {
            limits[usize::from(op)] = limit;
        }
    }
    limits
}

/// Returns whether a location needs no definition.
fn is_free(location: LocationId) -> bool {
    location == NO_LOCATION || location_number(location).is_some()
}

/// Returns the reason why a record is invalid.
#[cold]
fn refusal(record: Record, threads: u32, limit: u32) -> &'static str {
    let Record { thread, object, .. } = record;
    if record::split_ids(record).is_some() {
        "a split of a variable or into one that is not defined, or by a thread that is not"
    } else if limit == 0 {
        "an operation that does not exist, or of objects of which none are defined"
    } else if thread >= threads {
        "a thread that is not defined"
    } else if object >= limit {
        "an object that is not defined"
    } else {
        "a location that is not defined"
    }
}
