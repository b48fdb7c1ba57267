//! Writer of text traces. Names are made fit for a line in `unique` and `escape`.

use super::escape::{Field, escape};
use super::ops::{kind_of_op, spelling};
use super::unique::Texts;
use super::{DIRECTIVE, ESCAPES, GAP};
use crate::event::{Event, LocationId, Op, RegionId};
use crate::format::batch::{Batch, Gap};
use crate::format::convert::{TraceWriter, WriteError};
use crate::format::names::{Names, location_number};
use std::io::Write;

/// Number of bytes that are gathered before they are written.
const CHUNK: usize = 64 * 1024;

/// Writes a trace as text.
///
/// Every id gets a unique name, so that the same objects are read back: where two ids have the same name,
/// `#2` distinguishes the second from the first. Bars, line ends and the like in names are escaped, after a
/// directive that says so.
#[derive(Debug)]
pub struct TextWriter<W> {
    out: W,
    buffer: Vec<u8>,
    escapes: bool,
    threads: Texts,
    regions: Texts,
    variables: Texts,
    locks: Texts,
    syncs: Texts,
    locations: Texts,
}

impl<W: Write> TextWriter<W> {
    /// Creates a writer to `out`, which receives everything at the latest after each batch of events.
    pub fn new(out: W) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(CHUNK),
            escapes: false,
            threads: Texts::new(Field::Thread),
            regions: Texts::new(Field::Object),
            variables: Texts::new(Field::Object),
            locks: Texts::new(Field::Object),
            syncs: Texts::new(Field::Object),
            locations: Texts::new(Field::Location),
        }
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Gives names to the ids that an event mentions for the first time.
    fn prepare(&mut self, names: &Names, event: &Event) {
        let Self { threads, regions, variables, locks, syncs, locations, .. } = self;
        let mut special = threads.add(event.thread.0, || names.thread_label(event.thread).into());
        if let Op::SplitVariable { from, to } = event.op {
            for id in [from, to] {
                special |= variables.add(id.0, || names.variable_label(id).into());
                special |= variables.get(id.0).contains(',');
            }
            return self.escape_if(special);
        }
        special |= match event.op {
            Op::End(None) | Op::Follow(None) | Op::Exit | Op::SplitVariable { .. } => false,
            Op::Begin(id)
            | Op::End(Some(id))
            | Op::Follow(Some(id))
            | Op::Rest(id)
            | Op::Resume(id) => regions.add(id.0, || region_name(names, id)),
            Op::Read(id)
            | Op::Write(id)
            | Op::Update(id)
            | Op::CommutingUpdate(id)
            | Op::Alloc(id)
            | Op::Free(id) => variables.add(id.0, || names.variable_label(id).into()),
            Op::Acquire(id)
            | Op::Release(id)
            | Op::AcquireShared(id)
            | Op::ReleaseShared(id)
            | Op::Reset(id) => locks.add(id.0, || names.lock_label(id).into()),
            Op::Fork(id) | Op::Join(id) => threads.add(id.0, || names.thread_label(id).into()),
            Op::Signal(id) | Op::Wait(id) | Op::Arrive(id) | Op::Depart(id) => {
                syncs.add(id.0, || names.sync_label(id).into())
            }
        };
        if location_number(event.location).is_none() {
            special |= locations.add(event.location.0, || location_label(names, event.location));
        }
        self.escape_if(special);
    }

    /// Writes the directive for escapes if a name needs some and it has not been written.
    fn escape_if(&mut self, special: bool) {
        if special && !self.escapes {
            self.escapes = true;
            self.directive(ESCAPES);
        }
    }

    fn directive(&mut self, directive: &[u8]) {
        self.buffer.extend_from_slice(DIRECTIVE);
        self.buffer.extend_from_slice(directive);
        self.buffer.push(b'\n');
    }

    fn put_event(&mut self, event: &Event) {
        let Self { buffer, escapes, threads, regions, variables, locks, syncs, locations, .. } =
            self;
        let put = |text: &str, buffer: &mut Vec<u8>| match *escapes {
            true => escape(text, buffer),
            false => buffer.extend_from_slice(text.as_bytes()),
        };
        if let Op::SplitVariable { from, to } = event.op {
            put(threads.get(event.thread.0), buffer);
            buffer.push(b'|');
            buffer.extend_from_slice(spelling(kind_of_op(event.op)).as_bytes());
            for (id, before) in [(from, b'('), (to, b',')] {
                buffer.push(before);
                // A name with a comma in it is escaped.
                for (at, part) in variables.get(id.0).split(',').enumerate() {
                    if at > 0 {
                        buffer.extend_from_slice(b"\\2c");
                    }
                    put(part, buffer);
                }
            }
            buffer.extend_from_slice(b")|\n");
            return;
        }
        let object = match event.op {
            Op::End(None) | Op::Follow(None) | Op::Exit | Op::SplitVariable { .. } => None,
            Op::Begin(id) => Some(regions.get(id.0)).filter(|name| !name.is_empty()),
            Op::End(Some(id)) | Op::Follow(Some(id)) | Op::Rest(id) | Op::Resume(id) => {
                Some(regions.get(id.0))
            }
            Op::Read(id)
            | Op::Write(id)
            | Op::Update(id)
            | Op::CommutingUpdate(id)
            | Op::Alloc(id)
            | Op::Free(id) => Some(variables.get(id.0)),
            Op::Acquire(id)
            | Op::Release(id)
            | Op::AcquireShared(id)
            | Op::ReleaseShared(id)
            | Op::Reset(id) => Some(locks.get(id.0)),
            Op::Fork(id) | Op::Join(id) => Some(threads.get(id.0)),
            Op::Signal(id) | Op::Wait(id) | Op::Arrive(id) | Op::Depart(id) => {
                Some(syncs.get(id.0))
            }
        };
        put(threads.get(event.thread.0), buffer);
        buffer.push(b'|');
        buffer.extend_from_slice(spelling(kind_of_op(event.op)).as_bytes());
        if let Some(object) = object {
            buffer.push(b'(');
            put(object, buffer);
            buffer.push(b')');
        }
        buffer.push(b'|');
        match location_number(event.location) {
            Some(number) => put_number(number, buffer),
            None => put(locations.get(event.location.0), buffer),
        }
        buffer.push(b'\n');
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write> TraceWriter for TextWriter<W> {
    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), WriteError> {
        for event in batch.events {
            self.prepare(batch.names, event);
            self.put_event(event);
            if self.buffer.len() >= CHUNK {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn gap(&mut self, gap: Gap) -> Result<(), WriteError> {
        let mut directive = GAP.to_vec();
        if let Some(lost) = gap.lost {
            directive.extend_from_slice(format!(" {lost}").as_bytes());
        }
        self.directive(&directive);
        self.flush()
    }

    fn end(&mut self, _names: &Names) -> Result<(), WriteError> {
        self.flush()?;
        self.out.flush()?;
        Ok(())
    }
}

fn put_number(number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = number;
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Returns the name of a region, or an empty name for the unnamed region.
fn region_name(names: &Names, id: RegionId) -> String {
    names.region(id).map_or_else(String::new, |region| region.name)
}

/// Returns the location as written in a line: its label, its source line, its function, or its address.
fn location_label(names: &Names, id: LocationId) -> String {
    if let Some(label) = names.label(id) {
        return label.into_owned();
    }
    let shown = names.frames(id).find(|frame| !frame.is_wrapper);
    let frame = shown.or_else(|| names.frames(id).next()).unwrap_or_default();
    match (frame.file, frame.line, frame.function) {
        (Some(file), Some(line), _) => return format!("{file}:{line}"),
        (_, _, Some(function)) => return function.to_owned(),
        (Some(file), None, None) => return file.to_owned(),
        (None, _, None) => {}
    }
    let location = names.location(id).unwrap_or_default();
    let Some(at) = location.stack.first() else { return String::new() };
    match at.module.and_then(|module| names.module(module)) {
        Some(module) => format!("{}+{:#x}", module.path, at.address),
        None => format!("{:#x}", at.address),
    }
}
