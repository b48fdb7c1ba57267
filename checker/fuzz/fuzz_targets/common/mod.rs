//! Helpers of the targets: reading to the end in several ways, and `.avt` files with right checksums around
//! arbitrary contents. The contents read are not checked.

use checker::event::Event;
use checker::format::{
    AvtWriter, Gap, Item, ReadOptions, TextWriter, TraceReader, TraceWriter, convert,
};
use std::io::Read;

/// Everything that a checker sees of a trace, and whether the trace ends in an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub events: Vec<Event>,
    pub gaps: Vec<(usize, Gap)>,
    pub error: Option<String>,
}

fn options(lenient: bool) -> ReadOptions {
    let options = ReadOptions::new("t");
    if lenient { options.lenient() } else { options }
}

/// Asserts that two ways of reading see the same. The part of damaged compressed input that is passed on
/// before the damage is noticed depends on the arrival of the bytes.
pub fn assert_same(left: Seen, right: Seen) {
    let damaged = |seen: &Seen| seen.error.as_ref().is_some_and(|e| e.contains("failed to read"));
    if damaged(&left) || damaged(&right) {
        let count = left.events.len().min(right.events.len());
        assert_eq!(left.events[..count], right.events[..count]);
    } else {
        assert_eq!(left, right);
    }
}

/// Reads bytes that are in memory.
pub fn whole(bytes: &[u8], lenient: bool) -> Seen {
    see(TraceReader::from_bytes(bytes, options(lenient)))
}

/// Reads bytes that arrive a few at a time.
pub fn trickled(bytes: &[u8], lenient: bool, at_once: usize) -> Seen {
    see(TraceReader::from_reader(Trickle(bytes, at_once.max(1)), options(lenient)))
}

struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.1);
        self.0.read(&mut buffer[..count])
    }
}

fn see(reader: Result<TraceReader<'_>, checker::format::ReadError>) -> Seen {
    let mut seen = Seen::default();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => {
            seen.error = Some(error.to_string());
            return seen;
        }
    };
    loop {
        match reader.next_item() {
            Ok(Some(Item::Events(batch))) => {
                assert_eq!(batch.first, seen.events.len() as u64);
                seen.events.extend_from_slice(batch.events);
            }
            Ok(Some(Item::Gap(gap))) => seen.gaps.push((seen.events.len(), gap)),
            Ok(None) => break,
            Err(error) => {
                seen.error = Some(error.to_string());
                break;
            }
        }
    }
    assert_eq!(reader.summary().events, seen.events.len() as u64);
    // Nothing comes after the end, nor after an error.
    assert!(matches!(reader.next_item(), Ok(None)));
    seen
}

/// Converts the trace to text, if it can be read to its end.
pub fn to_text(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut writer = TextWriter::new(Vec::new());
    convert_to(bytes, &mut writer)?;
    Some(writer.into_inner())
}

/// Converts the trace to `.avt`, if it can be read to its end.
pub fn to_avt(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut writer = AvtWriter::new(Vec::new()).expect("memory takes everything");
    convert_to(bytes, &mut writer)?;
    Some(writer.into_inner())
}

fn convert_to(bytes: &[u8], writer: &mut dyn TraceWriter) -> Option<()> {
    let mut reader = TraceReader::from_bytes(bytes, options(false)).ok()?;
    convert(&mut reader, writer).ok().map(|_| ())
}

/// Builds a file of blocks with right headers. Each block is taken from `plan`: its kind, its number of
/// definitions, the length of its payload in two bytes, and the payload.
pub fn assemble(mut plan: &[u8]) -> Vec<u8> {
    let mut file = b"\x89AVT\r\n\x1a\n\x02\0\0\0\x20\0\0\0".to_vec();
    file.extend([0; 12]);
    seal(&mut file, 0);
    let (mut events, mut number) = (0_u64, 0_u32);
    while let Some((&[kind, definitions, low, high], rest)) = plan.split_first_chunk() {
        let length = rest.len().min(usize::from(low) | usize::from(high & 15) << 8);
        let (payload, rest) = rest.split_at(length);
        plan = rest;
        let kind = kind % 8;
        let records = match kind {
            2 => length / 16,
            5 => packed(payload).len(),
            _ => usize::from(definitions),
        };
        let unit = [1, 1, 16, 1, 1, 1, 1, 1][usize::from(kind)];
        let payload = &payload[..length / unit * unit];
        let payload = if kind == 5 { &payload[..length - unpacked(payload)] } else { payload };
        let start = file.len();
        file.extend(b"avtB");
        file.extend([kind, 0, 0, 0]);
        file.extend((payload.len() as u32).to_le_bytes());
        file.extend((records as u32).to_le_bytes());
        file.extend(events.to_le_bytes());
        file.extend(number.to_le_bytes());
        file.extend([0; 4]);
        let mut body = payload.to_vec();
        body.resize(body.len().next_multiple_of(8), 0);
        file.extend(crc32fast::hash(&body).to_le_bytes());
        seal(&mut file, start);
        file.extend(&body);
        number += 1;
        if kind == 2 {
            events += payload.chunks(16).filter(|record| record[0] != 255).count() as u64;
        }
        if kind == 5 {
            events += packed(payload).into_iter().filter(|&op| op != 255).count() as u64;
        }
    }
    file
}

/// Returns the bytes that an event takes in a block of packed ones, in its first column and altogether.
fn widths(payload: &[u8]) -> (usize, usize) {
    let widths: Vec<usize> = payload.iter().skip(2).take(3).map(|&width| width.into()).collect();
    (widths.first().copied().unwrap_or(0), widths.iter().sum())
}

/// Returns the number of bytes at the end of a block of packed events that are not enough for one more.
fn unpacked(payload: &[u8]) -> usize {
    payload.len().saturating_sub(20).checked_rem(widths(payload).1).unwrap_or(0)
}

/// Returns the operations of the events in a block of packed ones.
fn packed(payload: &[u8]) -> Vec<u8> {
    let (first, all) = widths(payload);
    let count = payload.len().saturating_sub(20).checked_div(all).unwrap_or(0);
    let column = payload.get(20..).unwrap_or_default().get(..count * first).unwrap_or_default();
    let mask =
        1_u32.checked_shl(payload.get(1).copied().unwrap_or(0).into()).unwrap_or(0).wrapping_sub(1);
    let op = |number: &[u8]| (u32::from(number[0]) & mask) as u8;
    column.chunks(first.max(1)).map(|number| op(number).wrapping_add(payload[0])).collect()
}

/// Adds the checksum of everything from `start` on.
fn seal(file: &mut Vec<u8>, start: usize) {
    let checksum = crc32fast::hash(&file[start..]);
    file.extend(checksum.to_le_bytes());
}
