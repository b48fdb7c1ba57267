//! One line to one event, and names to ids. Lines are told apart elsewhere.
//!
//! A line is read twice at worst: `quick` takes lines of the usual shape by comparing sixteen bytes at a time, and
//! leaves everything else, errors included, to `event`.

use super::escape::{Field, unescape};
use super::ops::{Kind, kind_of, kind_of_bytes, spelling};
use crate::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::format::error::{LineError, Reason};
use crate::format::intern::{Index, Key, SHORT};
use crate::format::names::{Names, Table, label_number, numbered_location};

/// Characters of a line that an error shows.
const SHOWN: usize = 60;

/// Names and their ids.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) names: Names,
    /// Whether backslashes in names are escapes.
    pub(super) escapes: bool,
    memory_limit: u64,
    threads: Index,
    regions: Index,
    variables: Index,
    locks: Index,
    syncs: Index,
    locations: Index,
}

/// The name's id; a new one if need be.
#[inline]
fn intern<E: Clone + Default + PartialEq>(
    (index, table): (&mut Index, &mut Table<E>),
    key: Key,
    name: &[u8],
) -> Option<u32> {
    match index.get(key, name, table.names()) {
        Some(id) => Some(id),
        None => add((index, table), key, name),
    }
}

/// Gives an id to a name; `None` when that fails, which `Lines::refuse` then explains.
#[cold]
fn add<E: Clone + Default + PartialEq>(
    (index, table): (&mut Index, &mut Table<E>),
    key: Key,
    name: &[u8],
) -> Option<u32> {
    let id = table.push(std::str::from_utf8(name).ok()?)?;
    index.insert(key, id);
    Some(id)
}

impl Lines {
    pub(super) fn new(memory_limit: u64) -> Self {
        Self {
            names: Names::default(),
            escapes: false,
            memory_limit,
            threads: Index::default(),
            regions: Index::default(),
            variables: Index::default(),
            locks: Index::default(),
            syncs: Index::default(),
            locations: Index::default(),
        }
    }

    /// Whether the names have grown too large.
    pub(super) fn check_memory(&self) -> Result<(), Reason> {
        self.names.check(self.memory_limit)
    }

    #[inline]
    fn thread(&mut self, key: Key, name: &[u8]) -> Option<ThreadId> {
        intern((&mut self.threads, &mut self.names.threads), key, name).map(ThreadId)
    }

    #[inline]
    fn region(&mut self, key: Key, name: &[u8]) -> Option<RegionId> {
        intern((&mut self.regions, &mut self.names.regions), key, name).map(RegionId)
    }

    #[inline]
    fn variable(&mut self, key: Key, name: &[u8]) -> Option<VarId> {
        intern((&mut self.variables, &mut self.names.variables), key, name).map(VarId)
    }

    #[inline]
    fn lock(&mut self, key: Key, name: &[u8]) -> Option<LockId> {
        intern((&mut self.locks, &mut self.names.locks), key, name).map(LockId)
    }

    #[inline]
    fn sync(&mut self, key: Key, name: &[u8]) -> Option<SyncId> {
        intern((&mut self.syncs, &mut self.names.syncs), key, name).map(SyncId)
    }

    #[inline]
    fn location(&mut self, key: Key, label: &[u8]) -> Option<LocationId> {
        intern((&mut self.locations, &mut self.names.locations), key, label).map(LocationId)
    }

    #[inline]
    fn op(&mut self, kind: Kind, key: Key, name: &[u8]) -> Option<Op> {
        Some(match kind {
            Kind::Read => Op::Read(self.variable(key, name)?),
            Kind::Write => Op::Write(self.variable(key, name)?),
            Kind::Acquire => Op::Acquire(self.lock(key, name)?),
            Kind::Release => Op::Release(self.lock(key, name)?),
            Kind::Begin => Op::Begin(self.region(key, name)?),
            Kind::End => Op::End(Some(self.region(key, name)?)),
            Kind::Update => Op::Update(self.variable(key, name)?),
            Kind::AcquireShared => Op::AcquireShared(self.lock(key, name)?),
            Kind::ReleaseShared => Op::ReleaseShared(self.lock(key, name)?),
            Kind::Fork => Op::Fork(self.thread(key, name)?),
            Kind::Join => Op::Join(self.thread(key, name)?),
            Kind::Signal => Op::Signal(self.sync(key, name)?),
            Kind::Wait => Op::Wait(self.sync(key, name)?),
            Kind::Arrive => Op::Arrive(self.sync(key, name)?),
            Kind::Depart => Op::Depart(self.sync(key, name)?),
            Kind::Alloc => Op::Alloc(self.variable(key, name)?),
            Kind::Free => Op::Free(self.variable(key, name)?),
            Kind::Reset => Op::Reset(self.lock(key, name)?),
            Kind::Exit => Op::Exit,
        })
    }

    /// The event in the first line of `text` and the line's length with its end, if it is of the usual shape.
    #[inline]
    pub(super) fn quick(&mut self, text: &[u8]) -> Option<(Event, usize)> {
        let word = load(text, 0)?;
        let length = find(word, b'|');
        if text[0] == b'#' || !(1..=SHORT).contains(&length) {
            return None;
        }
        // Whatever a word holds past its end has to be left out of keys; a line's end is looked for at its end
        // only, so names must not have one.
        let (thread, mut suspicious) = (Key::short(word, length)?, find(word, b'\n') < length);
        let thread_name = &text[..length];

        let mut at = length + 1;
        let word = load(text, at)?;
        let (bar, open) = (find(word, b'|'), find(word, b'('));
        let length = bar.min(open);
        if length > 8 || length == 0 {
            return None;
        }
        let kind = kind_of(word as u64 & (u64::MAX >> (64 - 8 * length)))?;
        at += length + 1;
        let mut object = None;
        if open < bar {
            let word = load(text, at)?;
            let length = find(word, b')');
            if !(1..=SHORT).contains(&length) || (word >> (8 * length + 8)) as u8 != b'|' {
                return None;
            }
            suspicious |= find(word, b'\n') < length;
            if self.escapes {
                suspicious |= find(word, b'\\') < length;
            }
            object = Some((Key::short(word, length)?, &text[at..at + length]));
            at += length + 2;
        } else if !matches!(kind, Kind::Begin | Kind::End | Kind::Exit) {
            return None;
        }
        if self.escapes {
            suspicious |= thread_name.contains(&b'\\');
        }

        let word = load(text, at)?;
        let mut length = find(word, b'\n');
        if suspicious || length > SHORT {
            return None;
        }
        let end = at + length + 1;
        if length > 0 && text[end - 2] == b'\r' {
            length -= 1;
        }
        let location = match number(word, length) {
            Some(number) => numbered_location(number)?,
            None if length == 0 || self.escapes => return None,
            None => {
                let label = &text[at..at + length];
                // The label may be a longer number.
                if label[0].is_ascii_digit() && label_number(label).is_some() {
                    return None;
                }
                self.location(Key::short(word, length)?, label)?
            }
        };
        // Names get their ids in the order in which they stand in the line, but for the location's. Should one
        // of them not be UTF-8, the line is refused as a whole, and the others' ids do no harm.
        let thread = self.thread(thread, thread_name)?;
        let op = match (object, kind) {
            (Some((key, name)), kind) => self.op(kind, key, name)?,
            (None, Kind::Begin) => Op::Begin(self.region(Key::of(b""), b"")?),
            (None, Kind::Exit) => Op::Exit,
            (None, _) => Op::End(None),
        };
        Some((Event { thread, op, location }, end))
    }

    /// The event in a line, which comes without its end.
    #[cold]
    #[inline(never)]
    pub(super) fn event(&mut self, line: &[u8]) -> Result<Event, Reason> {
        let not_three = || LineError::NotThreeParts { line: shown(line) };
        let bar = memchr::memchr(b'|', line).ok_or_else(not_three)?;
        if bar == 0 {
            return Err(LineError::NoThread.into());
        }
        let (thread, rest) = (&line[..bar], &line[bar + 1..]);
        let length = memchr::memchr2(b'|', b'(', rest).unwrap_or(rest.len());
        let word = &rest[..length];
        let kind =
            kind_of_bytes(word).ok_or_else(|| LineError::UnknownOperation { op: shown(word) })?;
        let op = || spelling(kind).to_owned();
        let (object, label) = match rest.get(length) {
            None => return Err(not_three().into()),
            Some(b'|') => (None, &rest[length + 1..]),
            Some(_) => {
                let object = &rest[length + 1..];
                let Some(length) = memchr::memmem::find(object, b")|") else {
                    let closed = object.last() == Some(&b')');
                    return Err(if closed {
                        not_three().into()
                    } else {
                        LineError::Unclosed { op: op() }.into()
                    });
                };
                (Some(&object[..length]), &object[length + 2..])
            }
        };

        let thread = self.plain(Field::Thread, thread)?;
        let thread = self.thread(Key::of(&thread), &thread).ok_or_else(|| self.full())?;
        let op = match (object, kind) {
            (None, Kind::End) => Op::End(None),
            (None, Kind::Exit) => Op::Exit,
            (None | Some(b""), Kind::Begin | Kind::End) => {
                self.op(kind, Key::of(b""), b"").ok_or_else(|| self.full())?
            }
            (None | Some(b""), _) => return Err(LineError::NoObject { op: op() }.into()),
            (Some(object), _) => {
                let object = self.plain(Field::Object, object)?;
                self.op(kind, Key::of(&object), &object).ok_or_else(|| self.full())?
            }
        };
        let label = self.plain(Field::Location, label)?;
        let location = match label_number(&label).and_then(numbered_location) {
            Some(location) => location,
            None => self.location(Key::of(&label), &label).ok_or_else(|| self.full())?,
        };
        Ok(Event { thread, op, location })
    }

    /// A name without escapes, checked to be text.
    fn plain<'a>(
        &self,
        field: Field,
        name: &'a [u8],
    ) -> Result<std::borrow::Cow<'a, [u8]>, LineError> {
        let field_name = field.name();
        let plain = if self.escapes {
            unescape(name).ok_or(LineError::BadEscape { field: field_name })?
        } else {
            name.into()
        };
        match std::str::from_utf8(&plain) {
            Ok(_) => Ok(plain),
            Err(_) => Err(LineError::NotUtf8 { field: field_name }),
        }
    }

    /// A table of names is full.
    fn full(&self) -> Reason {
        Reason::TooManyNames { limit: self.memory_limit }
    }
}

/// Sixteen bytes, lowest first; `None` near the end.
#[inline]
fn load(text: &[u8], at: usize) -> Option<u128> {
    text.get(at..at + 16)?.first_chunk().copied().map(u128::from_le_bytes)
}

/// Where in a word a byte is first, 16 if nowhere.
#[inline]
fn find(word: u128, byte: u8) -> usize {
    const ONES: u128 = u128::MAX / 255;
    let zeros = word ^ (ONES * u128::from(byte));
    // The lowest zero byte gets its highest bit; bytes above it may get theirs too.
    let marks = zeros.wrapping_sub(ONES) & !zeros & (ONES << 7);
    (marks.trailing_zeros() / 8) as usize
}

/// The number that the lowest `length` bytes of a word are, if they are at most eight digits without a leading zero.
#[inline]
fn number(word: u128, length: usize) -> Option<u32> {
    const ONES: u64 = u64::MAX / 255;
    if length == 0 || length > 8 {
        return None;
    }
    // Digits are moved up, so that zeros stand before them. In each step, neighbours are joined.
    let digits = ((word as u64) ^ (ONES * 0x30)) << (64 - 8 * length);
    if (digits | digits.wrapping_add(ONES * 6)) & (ONES * 0xf0) != 0 {
        return None;
    }
    if length > 1 && word as u8 == b'0' {
        return None;
    }
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000 << 32 | 1) >> 32) as u32)
}

fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN)]);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &[u8]) -> u128 {
        let mut bytes = [b'x'; 16];
        bytes[..text.len()].copy_from_slice(text);
        u128::from_le_bytes(bytes)
    }

    #[test]
    fn bytes_are_found_where_they_are_first() {
        for at in 0..16 {
            let mut bytes = [0x80_u8; 16];
            bytes[at] = b'|';
            bytes[15] = b'|';
            assert_eq!(find(u128::from_le_bytes(bytes), b'|'), at);
        }
        assert_eq!(find(word(b"}{\x7b\x7d"), b'|'), 16);
    }

    #[test]
    fn numbers_are_those_that_would_be_printed() {
        for value in [0_u32, 1, 9, 10, 99, 345, 65_536, 9_999_999, 12_345_678, 99_999_999] {
            let text = value.to_string();
            assert_eq!(number(word(text.as_bytes()), text.len()), Some(value));
        }
        for text in ["", "01", "00", "1a", "a1", "-1", "1:2", "/", ":", "123456789", "1 "] {
            assert_eq!(number(word(text.as_bytes()), text.len()), None, "{text}");
        }
    }

    #[test]
    fn the_quick_way_and_the_other_agree() {
        let lines = [
            "T1|r(x)|1",
            "T1|w(x)|345",
            "T2|acq(m)|a.c:1",
            "T2|rel(m)|a.c:1",
            "T1|begin|0",
            "T1|begin(f)|0",
            "T1|end|0",
            "T1|end(f)|0",
            "T1|end()|1",
            "T1|begin()|1",
            "main|fork(T1)|9",
            "main|join(T1)|10",
            "T1|racq(l)|1",
            "T1|rrel(l)|1",
            "T1|u(x)|1",
            "T1|rmw(x)|1",
            "T1|signal(c)|1",
            "T1|wait(c)|1",
            "T1|arrive(b)|1",
            "T1|depart(b)|1",
            "T1|alloc(x)|1",
            "T1|free(x)|1",
            "T1|r(a|b)|1",
            "T1|r(f())|1",
            "T1|r(x)|",
            "T1|r(x)|a|b",
            "T1|r(x)|2147483646",
            "T1|r(x)|2147483647",
            "T1|r(x)|123456789",
            "T1|r(x)|007",
            "T1|r(123456789012)|1",
            "T1|r(1234567890123)|1",
            "123456789012|r(x)|1",
            "1234567890123|r(x)|1",
            "T1|r(x)|123456789012",
            "T1|r(x)|1234567890123",
            "T1|r(x)|1\r",
        ];
        let (mut quick, mut slow) = (Lines::new(u64::MAX), Lines::new(u64::MAX));
        let mut taken = 0;
        for line in lines {
            let text = format!("{line}\n{}", "|".repeat(16));
            let expected = slow.event(line.trim_end_matches('\r').as_bytes()).unwrap();
            match quick.quick(text.as_bytes()) {
                Some((event, length)) => {
                    assert_eq!(event, expected, "{line}");
                    assert_eq!(length, line.len() + 1, "{line}");
                    taken += 1;
                }
                None => {
                    let line = line.trim_end_matches('\r').as_bytes();
                    assert_eq!(quick.event(line).unwrap(), expected);
                }
            }
        }
        assert!(taken > 25, "{taken}");
    }

    #[test]
    fn lines_that_are_no_events_are_told_why() {
        let mut lines = Lines::new(u64::MAX);
        for (line, reason) in [
            ("hello", "expected THREAD|OP(OBJECT)|LOCATION, found \"hello\""),
            ("T1|r(x)", "expected THREAD|OP(OBJECT)|LOCATION, found \"T1|r(x)\""),
            ("T1|begin", "expected THREAD|OP(OBJECT)|LOCATION, found \"T1|begin\""),
            ("|r(x)|1", "no thread before the first |"),
            ("T1|r|1", "r without an object"),
            ("T1|acq()|1", "acq without an object"),
            ("T1|jump(x)|1", "no such operation: \"jump\""),
            ("T1|r(x|1", "the object of r is not closed by )|"),
        ] {
            let error = lines.event(line.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), reason);
            assert!(lines.quick(format!("{line}\n{}", "|".repeat(16)).as_bytes()).is_none());
        }
        for line in [&b"T\xff|r(x)|1"[..], b"T1|r(\xff)|1", b"T1|r(x)|\xff"] {
            let error = lines.event(line).unwrap_err();
            assert!(matches!(error, Reason::Line(LineError::NotUtf8 { .. })));
        }
    }
}
