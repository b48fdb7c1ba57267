//! Packed forms of event and value records. The events of a block are three columns, each of as many bytes as its
//! numbers need. Checks of ids are elsewhere.

use super::fields::{Fields, Put, put_number};
use super::layout::MAX_VALUES;
use super::record::Record;
use crate::event::EventNumber;
use crate::format::batch::{BATCH, ObservedValue};
use crate::format::intern::MAX_IDS;
use std::ops::Range;

/// Size of the description of columns at the start of a block's payload, in bytes.
pub(super) const COLUMNS: usize = 20;

/// Layout of a block of events: columns of operations with their threads, of objects, and of locations. A number is
/// stored as its difference from the smallest one of its kind in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    op: u8,
    /// Bits of the first column that are the operation; those above are the thread.
    op_bits: u8,
    thread: u32,
    object: u32,
    location: u32,
    /// Bytes that a number of each column takes: 0 where all are the same.
    widths: [usize; 3],
}

impl Columns {
    /// Returns the layout for records; `None` if there is none because their threads are too far apart.
    fn of(records: &[Record]) -> Option<Self> {
        let (op, ops) = range(records.iter().map(|record| record.op.into()));
        let (thread, threads) = range(records.iter().map(|record| record.thread));
        let (object, objects) = range(records.iter().map(|record| record.object));
        let (location, locations) = range(records.iter().map(|record| near_zero(record.location)));
        let op_bits = bits(ops);
        let first = (op_bits + bits(threads)).div_ceil(8).max(1);
        let widths = [first, bits(objects).div_ceil(8), bits(locations).div_ceil(8)];
        (first <= 4).then_some(Self {
            op: op as u8,
            op_bits: op_bits as u8,
            thread,
            object,
            location,
            widths: widths.map(|width| width as usize),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let [first, object, location] = self.widths.map(|width| width as u8);
        for byte in [self.op, self.op_bits, first, object, location, 0, 0, 0] {
            out.u8(byte);
        }
        for base in [self.thread, self.object, self.location] {
            out.u32(base);
        }
    }

    /// Decodes the description of the columns; `None` if the payload is not as long as so many events need, or no
    /// writer makes such columns.
    pub(super) fn decode(payload: &[u8], records: u32) -> Option<Self> {
        let mut fields = Fields::fixed(payload);
        let (op, op_bits) = (fields.u8()?, fields.u8().filter(|&bits| bits <= 8)?);
        let mut width =
            |least| fields.u8().filter(|width| (least..=4).contains(width)).map(usize::from);
        let widths = [width(1)?, width(0)?, width(0)?];
        fields.bytes(3)?;
        let (thread, object, location) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let columns = Self { op, op_bits, thread, object, location, widths };
        let width: usize = widths.iter().sum();
        let length = (records as usize).checked_mul(width)?.checked_add(COLUMNS)?;
        (payload.len() == length).then_some(columns)
    }

    /// Decodes the records of a range, which is at most a batch long, from the columns of so many records: the bytes
    /// of a payload behind the description. Past their end are zeros.
    pub(super) fn unpack(
        &self,
        columns: &[u8],
        records: usize,
        range: Range<usize>,
        unpacked: &mut Unpacked,
    ) {
        let count = range.len().min(BATCH);
        let mut start = 0;
        let mut column = |width: usize| {
            let from = start + range.start * width;
            start += records * width;
            columns.get(from..from + count * width).unwrap_or_default()
        };
        let [first, object, location] =
            self.widths.map(|width| PackedColumn { width, bytes: column(width) });
        let Unpacked { ops, threads, objects, locations } = unpacked;
        widen(first, count, threads, |number| number);
        let mask = (1 << self.op_bits) - 1;
        for (op, thread) in ops.iter_mut().zip(threads.iter_mut()).take(count) {
            *op = ((*thread & mask) as u8).wrapping_add(self.op);
            *thread = (*thread >> self.op_bits).wrapping_add(self.thread);
        }
        widen(object, count, objects, |number| number.wrapping_add(self.object));
        widen(location, count, locations, |number| {
            from_near_zero(number.wrapping_add(self.location))
        });
    }
}

/// Records as they are decoded, by columns.
#[derive(Clone, Debug)]
pub(super) struct Unpacked {
    pub(super) ops: [u8; BATCH],
    pub(super) threads: [u32; BATCH],
    pub(super) objects: [u32; BATCH],
    pub(super) locations: [u32; BATCH],
}

impl Default for Unpacked {
    fn default() -> Self {
        Self { ops: [0; BATCH], threads: [0; BATCH], objects: [0; BATCH], locations: [0; BATCH] }
    }
}

impl Unpacked {
    /// Returns the first records.
    #[inline]
    pub(super) fn records(&self, count: usize) -> impl Iterator<Item = Record> {
        let count = count.min(BATCH);
        let ids = self.objects[..count].iter().zip(&self.locations[..count]);
        self.ops[..count]
            .iter()
            .zip(&self.threads[..count])
            .zip(ids)
            .map(|((&op, &thread), (&object, &location))| Record { op, thread, object, location })
    }

    /// Returns whether the threads and locations of the first records are all defined, or free.
    pub(super) fn are_known(&self, count: usize, threads: u32, locations: u32) -> bool {
        let count = count.min(BATCH);
        let unknown = |location: u32| (location >= locations) & (location < MAX_IDS);
        // Without branches, so that they can be vectorised.
        !self.threads[..count].iter().fold(false, |any, &thread| any | (thread >= threads))
            && !self.locations[..count].iter().fold(false, |any, &id| any | unknown(id))
    }
}

/// Numbers of one column, each of `width` bytes.
struct PackedColumn<'a> {
    width: usize,
    bytes: &'a [u8],
}

/// Decodes numbers of a width in bytes. Loops are separate for each width, so that they can be vectorised.
#[inline]
fn widen(
    column: PackedColumn<'_>,
    count: usize,
    out: &mut [u32; BATCH],
    finish: impl Fn(u32) -> u32,
) {
    let PackedColumn { width, bytes } = column;
    let out = &mut out[..count];
    match width {
        1 => {
            for (number, &byte) in out.iter_mut().zip(bytes) {
                *number = finish(byte.into());
            }
        }
        2 => {
            for (number, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *number = finish(u16::from_le_bytes(*bytes).into());
            }
        }
        3 => {
            for (number, &[low, middle, high]) in out.iter_mut().zip(bytes.as_chunks::<3>().0) {
                *number = finish(u32::from_le_bytes([low, middle, high, 0]));
            }
        }
        4 => {
            for (number, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *number = finish(u32::from_le_bytes(*bytes));
            }
        }
        _ => out.fill(finish(0)),
    }
}

/// Returns the smallest number, and the greatest difference from it.
fn range(numbers: impl Iterator<Item = u32> + Clone) -> (u32, u32) {
    let least = numbers.clone().min().unwrap_or(0);
    (least, numbers.max().unwrap_or(0) - least)
}

fn bits(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// Returns a location as a small number, whichever of its three kinds it is: none, defined, or a number.
fn near_zero(location: u32) -> u32 {
    location.wrapping_add(1).rotate_left(1)
}

#[inline]
fn from_near_zero(number: u32) -> u32 {
    number.rotate_right(1).wrapping_sub(1)
}

/// Adds the payload of a block of events to a buffer; returns false, and adds nothing, if it has no packed form.
pub(super) fn put_events(records: &[Record], out: &mut Vec<u8>) -> bool {
    let Some(columns) = Columns::of(records) else { return false };
    columns.encode(out);
    let mut put = |width: usize, number: &dyn Fn(&Record) -> u32| {
        for record in records {
            out.extend_from_slice(&number(record).to_le_bytes()[..width]);
        }
    };
    let [first, object, location] = columns.widths;
    put(first, &|record| {
        u32::from(record.op - columns.op)
            | (record.thread - columns.thread).unbounded_shl(columns.op_bits.into())
    });
    put(object, &|record| record.object - columns.object);
    put(location, &|record| near_zero(record.location) - columns.location);
    true
}

/// Bits of a value: its length less 1 is in the lowest three.
const WRITTEN: u8 = 8;
const KNOWN: u8 = 16;
/// The value before the access is that after it, and not stored.
const SAME: u8 = 32;
/// Eight bytes are stored, though fewer count.
const WHOLE: u8 = 64;

/// Adds the payload of a block of values to a buffer. `next` is the number of the next event.
pub(super) fn put_values(
    values: impl Iterator<Item = ObservedValue>,
    mut next: EventNumber,
    out: &mut Vec<u8>,
) {
    for value in values {
        put_number(value.event.wrapping_sub(next), out);
        next = value.event.wrapping_add(1);
        let length = value.length.clamp(1, 8);
        let before = value.before.unwrap_or(value.after);
        let is_whole = length < 8 && (value.after | before) >> (8 * length) != 0;
        let is_same = value.before == Some(value.after);
        let flag = |bit: u8, is_set: bool| if is_set { bit } else { 0 };
        let flags = flag(WRITTEN, value.written)
            | flag(KNOWN, value.before.is_some())
            | flag(SAME, is_same)
            | flag(WHOLE, is_whole);
        out.u8((length - 1) | flags);
        let stored = if is_whole { 8 } else { usize::from(length) };
        out.extend_from_slice(&value.after.to_le_bytes()[..stored]);
        if let Some(before) = value.before.filter(|_| !is_same) {
            out.extend_from_slice(&before.to_le_bytes()[..stored]);
        }
    }
}

/// Decodes the payload of a block of values.
///
/// # Errors
/// A reason when the payload is not one of so many values, or their events are out of order.
pub(super) fn take_values(
    payload: &[u8],
    count: u32,
    mut next: EventNumber,
    values: &mut Vec<ObservedValue>,
) -> Result<(), &'static str> {
    const CUT: &str = "a value that goes past its block";
    if count as usize > MAX_VALUES {
        return Err("more values than a block may have");
    }
    values.reserve_exact(count as usize);
    let mut fields = Fields::fixed(payload);
    for index in 0..count {
        let later = fields.number().ok_or(CUT)?;
        // After the last event there could be, no other is left.
        if index > 0 && next == 0 {
            return Err("values out of order");
        }
        let event = next.checked_add(later).ok_or("values out of order")?;
        next = event.wrapping_add(1);
        let flags = fields.u8().ok_or(CUT)?;
        let length = (flags & 7) + 1;
        let stored = if flags & WHOLE == 0 { usize::from(length) } else { 8 };
        let mut number = || {
            let mut bytes = [0; 8];
            bytes[..stored].copy_from_slice(fields.bytes(stored)?);
            Some(u64::from_le_bytes(bytes))
        };
        let after = number().ok_or(CUT)?;
        let before = match (flags & KNOWN, flags & SAME) {
            (0, _) => None,
            (_, 0) => Some(number().ok_or(CUT)?),
            _ => Some(after),
        };
        let written = flags & WRITTEN != 0;
        values.push(ObservedValue { event, before, after, length, written });
    }
    if fields.is_empty() { Ok(()) } else { Err("the block's length is not that of its records") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let number = || prop_oneof![0..9_u32, any::<u32>(), Just(u32::MAX)];
        (any::<u8>(), number(), number(), number())
            .prop_map(|(op, thread, object, location)| Record { op, thread, object, location })
    }

    fn unpacked(payload: &[u8], count: usize) -> Vec<Record> {
        let columns = Columns::decode(payload, count as u32).unwrap();
        let mut unpacked = Unpacked::default();
        let mut records = Vec::new();
        // In two parts.
        for range in [0..count / 3, count / 3..count] {
            columns.unpack(&payload[COLUMNS..], count, range.clone(), &mut unpacked);
            records.extend(unpacked.records(range.len()));
        }
        records
    }

    #[test]
    fn events_take_as_many_bytes_as_their_ids_need() {
        let record = |thread, object, location| Record { op: 4, thread, object, location };
        let ops = |op| Record { op, ..record(u32::from(op), 0, 0) };
        for (records, width) in [
            // Nothing differs, but each event has a byte.
            (vec![record(1, 1_000_000, u32::MAX); 3], 1),
            // Two bits for the thread and eight for the object.
            (vec![record(0, 256, 7), record(3, 511, 7)], 2),
            // Four bits for the operation, and four for the thread.
            (vec![ops(4), ops(19)], 1),
            (vec![ops(4), ops(20)], 2),
            // A location that is defined, one that is a number, and none.
            (vec![record(0, 0, 1), record(0, 0, 1 << 31 | 1), record(0, 0, u32::MAX)], 2),
            (vec![record(0, 0, 0), record(u32::MAX, u32::MAX, 1 << 30)], 12),
        ] {
            let mut payload = Vec::new();
            assert!(put_events(&records, &mut payload));
            assert_eq!(payload.len(), COLUMNS + width * records.len(), "{records:?}");
            assert_eq!(unpacked(&payload, records.len()), records);
            assert_eq!(Columns::decode(&payload, records.len() as u32 + 1), None);
        }
        let far = [record(0, 0, 0), Record { op: 5, ..record(u32::MAX, 0, 0) }];
        assert!(!put_events(&far, &mut Vec::new()));
    }

    proptest! {
        #[test]
        fn events_survive_the_round_trip(
            records in proptest::collection::vec(any_record(), 1..40),
        ) {
            let mut payload = Vec::new();
            if put_events(&records, &mut payload) {
                prop_assert_eq!(unpacked(&payload, records.len()), records);
            } else {
                prop_assert!(payload.is_empty());
                prop_assert!(records.iter().any(|record| record.thread > 1 << 23));
            }
        }

        #[test]
        fn values_survive_the_round_trip(
            list in proptest::collection::vec(
                (0..u64::MAX / 50, any::<Option<u64>>(), any::<u64>(), 1..=8_u8, any::<[bool; 3]>()),
                0..40,
            ),
            cut in 1..9_usize,
        ) {
            let mut event = 7;
            let values: Vec<ObservedValue> = list
                .into_iter()
                .map(|(step, before, after, length, [written, is_short, is_same])| {
                    event += 1 + step;
                    let mask = if is_short { u64::MAX >> (64 - 8 * u32::from(length)) } else { u64::MAX };
                    let before = if is_same { before.map(|_| after) } else { before };
                    let before = before.map(|before| before & mask);
                    ObservedValue { event, before, after: after & mask, length, written }
                })
                .collect();
            let mut payload = Vec::new();
            put_values(values.iter().copied(), 7, &mut payload);
            let (mut read, count) = (Vec::new(), values.len() as u32);
            prop_assert_eq!(take_values(&payload, count, 7, &mut read), Ok(()));
            prop_assert_eq!(&read, &values);
            let cut = payload.len().saturating_sub(cut);
            prop_assert!(values.is_empty() || take_values(&payload[..cut], count, 7, &mut read).is_err());
            prop_assert!(values.is_empty() || take_values(&payload, count - 1, 7, &mut read).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0..90_u32) {
            let mut values = Vec::new();
            let _ = take_values(&bytes, count, u64::MAX - 3, &mut values);
            prop_assert!(values.is_sorted_by(|one, next| one.event < next.event));
            if let Some(columns) = Columns::decode(&bytes, count) {
                let mut unpacked = Unpacked::default();
                columns.unpack(&bytes[COLUMNS..], count as usize, 0..count as usize + 9, &mut unpacked);
            }
        }
    }
}
