//! Events of a trace as a table in a Parquet file (`docs/parquet.md`). Names may follow the events that have them, so
//! the trace is read twice: for its names, then for its events.

use std::{collections::HashMap, hash::Hash, io::Write, sync::Arc};

use checker::{
    event::{Event, LocationId, Op, RegionId, ThreadId},
    finding,
    format::{Batch, Gap, ObservedValue},
};
use parquet::errors::ParquetError;

use super::{
    convert::{ConvertFailure, Converted},
    input::{Input, InputError},
    names::TraceNames,
    read::{self, Consumer, Stopped},
};
use crate::progress::ReadBar;
use report::{
    Names as _, Object, SourceFrame, ThreadName, Value,
    table::{
        Kind::{Number, Text},
        Table, TableWriter,
    },
};

/// An event with names, or a gap between events.
#[derive(Debug, Default)]
pub struct EventRow {
    event: u64,
    operation: &'static str,
    thread: Option<u32>,
    thread_name: Option<Arc<ThreadName>>,
    /// Id among the objects of its space.
    object_id: Option<u32>,
    object: Option<Arc<Object>>,
    /// Other thread or variable.
    other_id: Option<u32>,
    region: Option<Arc<String>>,
    place: Option<Arc<SourceFrame>>,
    before: Option<i64>,
    after: Option<i64>,
    lost: Option<u64>,
}

/// Returns the table of events.
#[must_use]
pub fn table() -> Table<EventRow> {
    Table::new("events")
        .with("event", Number, |row: &EventRow| row.event.into())
        .with("operation", Text, |row| row.operation.into())
        .with_optional("thread", Number, |row| row.thread.into())
        .with_optional("thread_name", Text, |row| {
            row.thread_name.as_ref().and_then(|thread| thread.name.as_ref()).into()
        })
        .with_optional("tid", Number, |row| {
            row.thread_name.as_ref().and_then(|thread| thread.tid).into()
        })
        .with_optional("object_kind", Text, |row| {
            row.object.as_ref().map(|object| object.kind.to_string()).into()
        })
        .with_optional("object_id", Number, |row| row.object_id.into())
        .with_optional("object", Text, |row| {
            row.object.as_ref().and_then(|object| object.name.as_ref()).into()
        })
        .with_optional("address", Text, |row| {
            let address = row.object.as_ref().and_then(|object| object.address);
            address.map(|address| format!("{address:#x}")).into()
        })
        .with_optional("other_id", Number, |row| row.other_id.into())
        .with_optional("region", Text, |row| row.region.as_deref().into())
        .with_optional("function", Text, |row| {
            row.place.as_ref().and_then(|place| place.function.as_ref()).into()
        })
        .with_optional("file", Text, |row| {
            row.place.as_ref().and_then(|place| place.file.as_ref()).into()
        })
        .with_optional("line", Number, |row| row.place.as_ref().and_then(|place| place.line).into())
        .with_optional("column", Number, |row| {
            row.place.as_ref().and_then(|place| place.column).into()
        })
        .with_optional("module", Text, |row| {
            row.place.as_ref().and_then(|place| place.module.as_ref()).into()
        })
        .with_optional("value_before", Number, |row| row.before.into())
        .with_optional("value_after", Number, |row| row.after.into())
        .with_optional("lost", Number, |row| row.lost.into())
}

/// Writes the events of a trace that is used in place.
///
/// # Errors
/// When it cannot be read or written. The output is incomplete then.
pub fn write_events(
    input: &Input,
    lenient: bool,
    out: &mut (dyn Write + Send),
    bar: &mut ReadBar,
) -> Result<Converted, ConvertFailure> {
    let reader = input.reader(lenient).map_err(InputError::from)?;
    let names = read::names(input, reader, lenient, bar)?;
    let names = TraceNames::new(names, Default::default(), Vec::new());
    let mut reader = input.reader(lenient).map_err(InputError::from)?;
    let writer = TableWriter::new(table(), out)?;
    let mut rows = Rows { names: Cache::new(names), next: 0, writer };
    let incomplete = read::to_end(input, &mut reader, lenient, bar, &mut rows).map_err(
        |stopped| match stopped {
            Stopped::Read(error) => ConvertFailure::Input(error.into()),
            Stopped::Consumer(error) => error.into(),
        },
    )?;
    rows.writer.finish()?;
    Ok(Converted { read: reader.summary(), incomplete })
}

/// Names that were looked up.
struct Cache {
    names: TraceNames,
    threads: HashMap<ThreadId, Arc<ThreadName>>,
    objects: HashMap<finding::Object, Arc<Object>>,
    regions: HashMap<RegionId, Arc<String>>,
    places: HashMap<LocationId, Option<Arc<SourceFrame>>>,
}

impl Cache {
    fn new(names: TraceNames) -> Self {
        Self {
            names,
            threads: HashMap::new(),
            objects: HashMap::new(),
            regions: HashMap::new(),
            places: HashMap::new(),
        }
    }

    fn thread(&mut self, id: ThreadId) -> Arc<ThreadName> {
        once(&mut self.threads, id, || Arc::new(self.names.thread(id)))
    }

    fn object(&mut self, object: finding::Object) -> Arc<Object> {
        once(&mut self.objects, object, || Arc::new(self.names.object(object)))
    }

    fn region(&mut self, id: RegionId) -> Arc<String> {
        once(&mut self.regions, id, || Arc::new(self.names.region(id).name))
    }

    /// Returns the innermost frame that the user wrote.
    fn place(&mut self, id: LocationId) -> Option<Arc<SourceFrame>> {
        once(&mut self.places, id, || {
            let frames = self.names.frames(id);
            let own = frames.iter().find(|frame| !frame.is_wrapper).or(frames.first());
            own.cloned().map(Arc::new)
        })
    }
}

fn once<K: Copy + Eq + Hash, V: Clone>(
    known: &mut HashMap<K, V>,
    key: K,
    find: impl FnOnce() -> V,
) -> V {
    known.entry(key).or_insert_with(find).clone()
}

/// Writes a row for each event and gap.
struct Rows<W: Write + Send> {
    names: Cache,
    /// Number of the next event.
    next: u64,
    writer: TableWriter<EventRow, W>,
}

impl<W: Write + Send> Consumer for Rows<W> {
    type Error = ParquetError;

    const DONE: &'static str = "converted";

    fn events(&mut self, batch: &Batch<'_>) -> Result<(), Self::Error> {
        let mut values = batch.values.iter().peekable();
        for (number, event) in (batch.first..).zip(batch.events) {
            while values.next_if(|value| value.event < number).is_some() {}
            let value = values.peek().filter(|value| value.event == number).copied();
            let row = row(&mut self.names, number, event, value);
            self.writer.push(&row)?;
            self.next = number + 1;
        }
        Ok(())
    }

    fn gap(&mut self, gap: Gap, _names: &checker::format::Names) -> Result<(), Self::Error> {
        let row =
            EventRow { event: self.next, operation: "gap", lost: gap.lost, ..EventRow::default() };
        self.writer.push(&row)
    }
}

fn row(names: &mut Cache, number: u64, event: &Event, value: Option<&ObservedValue>) -> EventRow {
    use finding::Object::{Lock, Sync, Thread, Variable};
    // Operation, object with its id, the other id, region.
    let (operation, object, other, region) = match event.op {
        Op::Begin(region) => ("begin", None, None, Some(region)),
        Op::End(region) => ("end", None, None, region),
        Op::Follow(region) => ("follow", None, None, region),
        Op::Rest(region) => ("rest", None, None, Some(region)),
        Op::Resume(region) => ("resume", None, None, Some(region)),
        Op::Read(id) => ("read", Some((Variable(id), id.0)), None, None),
        Op::Write(id) => ("write", Some((Variable(id), id.0)), None, None),
        Op::Update(id) => ("update", Some((Variable(id), id.0)), None, None),
        Op::CommutingUpdate(id) => ("commuting_update", Some((Variable(id), id.0)), None, None),
        Op::Acquire(id) => ("acquire", Some((Lock(id), id.0)), None, None),
        Op::Release(id) => ("release", Some((Lock(id), id.0)), None, None),
        Op::AcquireShared(id) => ("acquire_shared", Some((Lock(id), id.0)), None, None),
        Op::ReleaseShared(id) => ("release_shared", Some((Lock(id), id.0)), None, None),
        Op::Reset(id) => ("reset", Some((Lock(id), id.0)), None, None),
        Op::Fork(id) => ("fork", Some((Thread(id), id.0)), None, None),
        Op::Join(id) => ("join", Some((Thread(id), id.0)), None, None),
        Op::Exit => ("exit", None, None, None),
        Op::Signal(id) => ("signal", Some((Sync(id), id.0)), None, None),
        Op::Wait(id) => ("wait", Some((Sync(id), id.0)), None, None),
        Op::Arrive(id) => ("arrive", Some((Sync(id), id.0)), None, None),
        Op::Depart(id) => ("depart", Some((Sync(id), id.0)), None, None),
        Op::Alloc(id) => ("alloc", Some((Variable(id), id.0)), None, None),
        Op::Free(id) => ("free", Some((Variable(id), id.0)), None, None),
        Op::SplitVariable { from, to } => {
            ("split_variable", Some((Variable(from), from.0)), Some(to.0), None)
        }
        // Of a later version.
        _ => ("other", None, None, None),
    };
    let value =
        value.map(|value| Value::observed(value.before, value.after, value.length, value.written));
    let number_of = |text: Option<String>| text?.parse().ok();
    let (before, after) = value.map_or((None, None), |value| (value.before, value.after));
    EventRow {
        event: number,
        operation,
        thread: Some(event.thread.0),
        thread_name: Some(names.thread(event.thread)),
        object_id: object.map(|(_, id)| id),
        object: object.map(|(object, _)| names.object(object)),
        other_id: other,
        region: region.map(|region| names.region(region)),
        place: names.place(event.location),
        before: number_of(before),
        after: number_of(after),
        lost: None,
    }
}
